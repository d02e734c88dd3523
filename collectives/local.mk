# collectives: algorithms over a team.
collectives_sources += \
	collectives/grouped.cc \
	collectives/grouped.h \
	collectives/operation.cc \
	collectives/operation.h \
	collectives/plain_call.h \
	collectives/plain_queue.h

collectives_tests += \
	collectives/operation_test.cc \
	collectives/plain_call_test.cc

collectives_sources += \
	collectives/inter/algorithm_info.h \
	collectives/inter/algorithm_rules.cc \
	collectives/inter/algorithm_rules.h \
	collectives/inter/algorithm_table.cc \
	collectives/inter/algorithm_table.h \
	collectives/inter/algorithm_timings.cc \
	collectives/inter/algorithm_timings.h \
	collectives/inter/algorithms.cc \
	collectives/inter/algorithms.h \
	collectives/inter/alltoall.cc \
	collectives/inter/alltoall.h \
	collectives/inter/binomial_broadcast.cc \
	collectives/inter/binomial_broadcast.h \
	collectives/inter/binomial_gather.cc \
	collectives/inter/binomial_gather.h \
	collectives/inter/binomial_reduce.cc \
	collectives/inter/binomial_reduce.h \
	collectives/inter/bruck_alltoall.cc \
	collectives/inter/bruck_alltoall.h \
	collectives/inter/chain_broadcast.cc \
	collectives/inter/chain_broadcast.h \
	collectives/inter/coded_allreduce.cc \
	collectives/inter/coded_allreduce.h \
	collectives/inter/dissemination_barrier.cc \
	collectives/inter/dissemination_barrier.h \
	collectives/inter/double_tree.cc \
	collectives/inter/double_tree.h \
	collectives/inter/gather.cc \
	collectives/inter/gather.h \
	collectives/inter/halving_doubling_allreduce.cc \
	collectives/inter/halving_doubling_allreduce.h \
	collectives/inter/inter_call.h \
	collectives/inter/one_round_reduce.cc \
	collectives/inter/one_round_reduce.h \
	collectives/inter/ordered_reduce.cc \
	collectives/inter/ordered_reduce.h \
	collectives/inter/partial_reduce.cc \
	collectives/inter/partial_reduce.h \
	collectives/inter/phases.h \
	collectives/inter/point_to_point.cc \
	collectives/inter/point_to_point.h \
	collectives/inter/recursive_doubling_allgather.cc \
	collectives/inter/recursive_doubling_allgather.h \
	collectives/inter/recursive_doubling_allreduce.cc \
	collectives/inter/recursive_doubling_allreduce.h \
	collectives/inter/recursive_halving_reduce_scatter.cc \
	collectives/inter/recursive_halving_reduce_scatter.h \
	collectives/inter/ring_allgather.cc \
	collectives/inter/ring_allgather.h \
	collectives/inter/ring_allreduce.cc \
	collectives/inter/ring_allreduce.h \
	collectives/inter/ring_reduce_scatter.cc \
	collectives/inter/ring_reduce_scatter.h \
	collectives/inter/select.cc \
	collectives/inter/select.h \
	collectives/inter/selector.cc \
	collectives/inter/selector.h \
	collectives/inter/short_call.cc \
	collectives/inter/short_call.h \
	collectives/inter/short_messages.cc \
	collectives/inter/short_messages.h \
	collectives/inter/two_trees.h

collectives_tests += \
	collectives/inter/algorithm_cost_test.cc \
	collectives/inter/algorithm_rules_test.cc \
	collectives/inter/algorithm_table_test.cc \
	collectives/inter/algorithm_timings_test.cc \
	collectives/inter/chain_broadcast_test.cc \
	collectives/inter/coded_allreduce_test.cc \
	collectives/inter/double_tree_test.cc \
	collectives/inter/halving_doubling_test.cc \
	collectives/inter/inter_collectives_test.cc \
	collectives/inter/inter_world_test.h \
	collectives/inter/ring_streams_test.cc \
	collectives/inter/short_call_test.cc \
	collectives/inter/sim_scale_test.cc \
	tests/exact_inputs.h

collectives_sources += \
	collectives/intra/allgather.cc \
	collectives/intra/allgather.h \
	collectives/intra/arrive.cc \
	collectives/intra/arrive.h \
	collectives/intra/broadcast.cc \
	collectives/intra/broadcast.h \
	collectives/intra/direct_reduce.cc \
	collectives/intra/direct_reduce.h \
	collectives/intra/exchange_blocks.cc \
	collectives/intra/exchange_blocks.h \
	collectives/intra/extents.h \
	collectives/intra/intra_messages.cc \
	collectives/intra/intra_messages.h \
	collectives/intra/intra_messages_now.h \
	collectives/intra/intra_messages_receives.cc \
	collectives/intra/intra_team.cc \
	collectives/intra/intra_team.h \
	collectives/intra/loans.cc \
	collectives/intra/loans.h \
	collectives/intra/message_memory.h \
	collectives/intra/one_shot.cc \
	collectives/intra/one_shot.h \
	collectives/intra/reduce_extents.cc \
	collectives/intra/reduce_extents.h \
	collectives/intra/reduce_scatter.cc \
	collectives/intra/reduce_scatter.h \
	collectives/intra/select.cc \
	collectives/intra/select.h \
	collectives/intra/small.h \
	collectives/intra/small_call.h \
	collectives/intra/small_queue.cc \
	collectives/intra/small_queue.h \
	collectives/intra/spread_extents.cc \
	collectives/intra/spread_extents.h \
	collectives/intra/staged_reduce.cc \
	collectives/intra/staged_reduce.h \
	collectives/intra/staging.h \
	collectives/intra/spare_ranges.h \
	collectives/intra/tag_queues.h

collectives_tests += \
	collectives/intra/intra_messages_test.cc \
	collectives/intra/intra_call_test.h \
	collectives/intra/intra_collectives_test.cc \
	collectives/intra/intra_errors_test.cc \
	collectives/intra/intra_lines_test.cc \
	collectives/intra/loans_test.cc \
	collectives/intra/messages_test.h \
	collectives/intra/spare_ranges_test.cc \
	collectives/intra/tag_queues_test.cc \
	tests/host_world.h

collectives_sources += \
	collectives/hier/allgather.cc \
	collectives/hier/allgather.h \
	collectives/hier/allreduce.cc \
	collectives/hier/allreduce.h \
	collectives/hier/barrier.cc \
	collectives/hier/barrier.h \
	collectives/hier/broadcast.cc \
	collectives/hier/broadcast.h \
	collectives/hier/combine_blocks.cc \
	collectives/hier/combine_blocks.h \
	collectives/hier/exchange_blocks.cc \
	collectives/hier/exchange_blocks.h \
	collectives/hier/hier_call.cc \
	collectives/hier/hier_call.h \
	collectives/hier/local_team.h \
	collectives/hier/ordered_reduce.cc \
	collectives/hier/ordered_reduce.h \
	collectives/hier/packed_layout.h \
	collectives/hier/reduce.cc \
	collectives/hier/reduce.h \
	collectives/hier/reduce_scatter.cc \
	collectives/hier/reduce_scatter.h \
	collectives/hier/select.cc \
	collectives/hier/select.h \
	collectives/hier/shm_local_team.cc \
	collectives/hier/shm_local_team.h \
	collectives/hier/slices.h

collectives_tests += \
	collectives/hier/hier_algorithms_test.cc \
	collectives/hier/hier_codec_test.cc \
	collectives/hier/hier_collectives_test.cc \
	collectives/hier/hier_overlap_test.cc \
	collectives/hier/hier_combine_blocks_test.cc \
	collectives/hier/hier_slices_test.cc \
	collectives/hier/hier_world_test.h \
	collectives/hier/message_local_team_test.h
