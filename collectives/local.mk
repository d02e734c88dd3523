# collectives: algorithms over a team.
collectives_sources += \
	collectives/grouped.cc \
	collectives/grouped.h \
	collectives/operation.cc \
	collectives/operation.h

collectives_tests += \
	collectives/operation_test.cc

collectives_sources += \
	collectives/net/alltoall.cc \
	collectives/net/alltoall.h \
	collectives/net/binomial_broadcast.cc \
	collectives/net/binomial_broadcast.h \
	collectives/net/binomial_reduce.cc \
	collectives/net/binomial_reduce.h \
	collectives/net/dissemination_barrier.cc \
	collectives/net/dissemination_barrier.h \
	collectives/net/gather.cc \
	collectives/net/gather.h \
	collectives/net/halving_doubling_allreduce.cc \
	collectives/net/halving_doubling_allreduce.h \
	collectives/net/net_call.h \
	collectives/net/one_round_reduce.cc \
	collectives/net/one_round_reduce.h \
	collectives/net/ordered_reduce.cc \
	collectives/net/ordered_reduce.h \
	collectives/net/partial_reduce.cc \
	collectives/net/partial_reduce.h \
	collectives/net/phases.h \
	collectives/net/point_to_point.cc \
	collectives/net/point_to_point.h \
	collectives/net/recursive_doubling_allreduce.cc \
	collectives/net/recursive_doubling_allreduce.h \
	collectives/net/ring_allgather.cc \
	collectives/net/ring_allgather.h \
	collectives/net/ring_allreduce.cc \
	collectives/net/ring_allreduce.h \
	collectives/net/ring_reduce_scatter.cc \
	collectives/net/ring_reduce_scatter.h \
	collectives/net/select.cc \
	collectives/net/select.h \
	collectives/net/short_call.cc \
	collectives/net/short_call.h

collectives_tests += \
	collectives/net/halving_doubling_test.cc \
	collectives/net/net_test.cc \
	collectives/net/net_world_test.h \
	collectives/net/short_call_test.cc \
	collectives/net/sim_scale_test.cc \
	tests/exact_inputs.h

collectives_sources += \
	collectives/host/allgather.cc \
	collectives/host/allgather.h \
	collectives/host/broadcast.cc \
	collectives/host/broadcast.h \
	collectives/host/channel.cc \
	collectives/host/channel.h \
	collectives/host/direct_reduce.cc \
	collectives/host/direct_reduce.h \
	collectives/host/exchange_blocks.cc \
	collectives/host/exchange_blocks.h \
	collectives/host/extents.h \
	collectives/host/host_post.cc \
	collectives/host/host_post.h \
	collectives/host/host_team.cc \
	collectives/host/host_team.h \
	collectives/host/meet.cc \
	collectives/host/meet.h \
	collectives/host/one_shot.cc \
	collectives/host/one_shot.h \
	collectives/host/pull_reduce.cc \
	collectives/host/pull_reduce.h \
	collectives/host/reduce_extents.cc \
	collectives/host/reduce_extents.h \
	collectives/host/reduce_scatter.cc \
	collectives/host/reduce_scatter.h \
	collectives/host/select.cc \
	collectives/host/select.h \
	collectives/host/small.cc \
	collectives/host/small.h \
	collectives/host/spread_extents.cc \
	collectives/host/spread_extents.h \
	collectives/host/staged_reduce.cc \
	collectives/host/staged_reduce.h \
	collectives/host/staging.h \
	collectives/host/turn_queue.h

collectives_tests += \
	collectives/host/channel_test.cc \
	collectives/host/host_collectives_test.cc \
	tests/host_world.h

collectives_sources += \
	collectives/hosts/allgather.cc \
	collectives/hosts/allgather.h \
	collectives/hosts/allreduce.cc \
	collectives/hosts/allreduce.h \
	collectives/hosts/barrier.cc \
	collectives/hosts/barrier.h \
	collectives/hosts/broadcast.cc \
	collectives/hosts/broadcast.h \
	collectives/hosts/exchange_blocks.cc \
	collectives/hosts/exchange_blocks.h \
	collectives/hosts/hosts_call.cc \
	collectives/hosts/hosts_call.h \
	collectives/hosts/ordered_reduce.cc \
	collectives/hosts/ordered_reduce.h \
	collectives/hosts/packed_layout.h \
	collectives/hosts/reduce.cc \
	collectives/hosts/reduce.h \
	collectives/hosts/reduce_scatter.cc \
	collectives/hosts/reduce_scatter.h \
	collectives/hosts/select.cc \
	collectives/hosts/select.h

collectives_tests += \
	collectives/hosts/hosts_test.cc
