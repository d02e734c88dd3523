# groupcomm: what training asks of a group beyond single collectives.
groupcomm_sources += \
	groupcomm/gradient/submission.h \
	groupcomm/gradient/slots.h \
	groupcomm/gradient/slots.cc \
	groupcomm/gradient/launches.h \
	groupcomm/gradient/launches.cc \
	groupcomm/gradient/launches_wire.cc \
	groupcomm/gradient/launch_memory.h \
	groupcomm/gradient/launch_memory.cc \
	groupcomm/gradient/waiting_launches.cc \
	groupcomm/gradient/waiting_launches.h \
	groupcomm/gradient/wire.h \
	groupcomm/gradient/wire.cc \
	groupcomm/gradient/kind.h \
	groupcomm/gradient/kind.cc \
	groupcomm/gradient/group_rounds.h \
	groupcomm/gradient/group_rounds.cc \
	groupcomm/gradient/engine.h \
	groupcomm/gradient/engine.cc \
	groupcomm/gradient/engine_ends.cc \
	groupcomm/gradient/engine_wait.h \
	groupcomm/gradient/inbox.h \
	groupcomm/gradient/inbox.cc \
	groupcomm/gradient/positions.h \
	groupcomm/gradient/positions.cc \
	groupcomm/gradient/results.h \
	groupcomm/gradient/results.cc \
	groupcomm/gradient/row_exchange.h \
	groupcomm/gradient/row_exchange.cc \
	groupcomm/gradient/rows.h \
	groupcomm/gradient/rows.cc \
	groupcomm/gradient/action_queue.cc \
	groupcomm/gradient/action_queue.h \
	groupcomm/gradient/dissemination.cc \
	groupcomm/gradient/dissemination.h \
	groupcomm/gradient/exchange.cc \
	groupcomm/gradient/exchange.h \
	groupcomm/gradient/negotiator.cc \
	groupcomm/gradient/negotiator.h \
	groupcomm/gradient/negotiator_online.cc \
	groupcomm/gradient/negotiator_scheduled.cc \
	groupcomm/gradient/negotiator_state.h \
	groupcomm/gradient/schedule.cc \
	groupcomm/gradient/schedule.h \
	groupcomm/gradient/submissions.cc \
	groupcomm/gradient/submissions.h \
	groupcomm/gradient/tensor_table.cc \
	groupcomm/gradient/tensor_table.h \
	groupcomm/gradient/tune_cache.cc \
	groupcomm/gradient/tune_cache.h \
	groupcomm/gradient/tuner.cc \
	groupcomm/gradient/tuner.h \
	groupcomm/gradient/tuning.cc \
	groupcomm/gradient/tuning.h \
	groupcomm/gradient/trace.cc \
	groupcomm/gradient/trace.h \
	groupcomm/gradient/word.cc \
	groupcomm/gradient/word.h
groupcomm_tests += \
	groupcomm/kv/part_test.cc \
	groupcomm/kv/round_choice_test.cc \
	groupcomm/kv/store_deaths_sim_test.cc \
	groupcomm/kv/store_leaving_sim_test.cc \
	groupcomm/kv/store_replicas_sim_test.cc \
	groupcomm/kv/store_schedule_world_test.h \
	groupcomm/kv/store_schedules_sim_test.cc \
	groupcomm/kv/store_sim_test.cc \
	groupcomm/kv/store_together_sim_test.cc \
	groupcomm/kv/store_traffic_sim_test.cc \
	groupcomm/kv/store_world_test.h \
	groupcomm/gradient/engine_leaving_sim_test.cc \
	groupcomm/gradient/engine_leaving_world_test.h \
	groupcomm/gradient/engine_line_sim_test.cc \
	groupcomm/gradient/engine_rows_sim_test.cc \
	groupcomm/gradient/engine_sim_test.cc \
	groupcomm/gradient/group_rounds_sim_test.cc \
	groupcomm/gradient/dissemination_test.cc \
	groupcomm/gradient/kind_test.cc \
	groupcomm/gradient/launch_memory_test.cc \
	groupcomm/gradient/launch_order_test.h \
	groupcomm/gradient/negotiator_random_test.cc \
	groupcomm/gradient/negotiator_recovers_test.cc \
	groupcomm/gradient/negotiator_steady_test.cc \
	groupcomm/gradient/negotiator_test.cc \
	groupcomm/gradient/negotiator_world_test.h \
	groupcomm/gradient/row_exchange_test.cc \
	groupcomm/gradient/rows_test.cc \
	groupcomm/gradient/schedule_test.cc \
	groupcomm/gradient/tensor_table_test.cc \
	groupcomm/gradient/tune_cache_test.cc \
	groupcomm/gradient/tuner_test.cc \
	groupcomm/gradient/tuner_world_test.h \
	groupcomm/gradient/wire_test.cc \
	groupcomm/gradient/word_test.cc

groupcomm_sources += \
	groupcomm/kv/copies.cc \
	groupcomm/kv/copies.h \
	groupcomm/kv/layout.cc \
	groupcomm/kv/layout.h \
	groupcomm/kv/messages.cc \
	groupcomm/kv/messages.h \
	groupcomm/kv/operation.h \
	groupcomm/kv/part.cc \
	groupcomm/kv/part.h \
	groupcomm/kv/reductions.cc \
	groupcomm/kv/reductions.h \
	groupcomm/kv/round_choice.cc \
	groupcomm/kv/round_choice.h \
	groupcomm/kv/saved.cc \
	groupcomm/kv/saved.h \
	groupcomm/kv/server.cc \
	groupcomm/kv/server.h \
	groupcomm/kv/server_replicas.cc \
	groupcomm/kv/store.cc \
	groupcomm/kv/store.h \
	groupcomm/kv/store_replicas.cc \
	groupcomm/kv/store_together.cc \
	groupcomm/kv/store_worker.cc \
	groupcomm/kv/twobit.cc \
	groupcomm/kv/twobit.h \
	groupcomm/kv/version.h \
	groupcomm/softmax/softmax.cc \
	groupcomm/softmax/softmax.h \
	groupcomm/syncbn/batch.h \
	groupcomm/syncbn/kernels.cc \
	groupcomm/syncbn/kernels.h \
	groupcomm/syncbn/sync_batch_norm.cc \
	groupcomm/syncbn/sync_batch_norm.h

# Loops that -O2 does not vectorise: those of optimizers, and those of SyncBN over channels. No flag changes a bit of what they compute,
# which does not depend on the processor (base/local.mk).
noinst_LTLIBRARIES += libaiacc_groupcomm_loops.la
libaiacc_groupcomm_loops_la_SOURCES = groupcomm/kv/updater.cc groupcomm/kv/updater.h groupcomm/syncbn/moments.cc \
	groupcomm/syncbn/moments.h groupcomm/syncbn/passes.cc groupcomm/syncbn/passes.h
libaiacc_groupcomm_loops_la_CXXFLAGS = $(kernel_flags) -O3 -fno-math-errno

# The passes over a batch, and the loops over records of its moments, for each instruction set: with the flags of the reduction
# kernels. Vectors are wider than the registers of some, which matters only to calls between units.
syncbn_flags = $(kernel_flags) -Wno-psabi
noinst_LTLIBRARIES += libaiacc_syncbn_baseline.la
libaiacc_syncbn_baseline_la_SOURCES = groupcomm/syncbn/kernels_baseline.cc groupcomm/syncbn/kernels_body.h \
	groupcomm/syncbn/kernels_channels.h groupcomm/syncbn/kernels_records.h groupcomm/syncbn/kernels_table.h
libaiacc_syncbn_baseline_la_CXXFLAGS = $(syncbn_flags)
libaiacc_groupcomm_la_LIBADD = libaiacc_syncbn_baseline.la libaiacc_groupcomm_loops.la
if X86_64
noinst_LTLIBRARIES += libaiacc_syncbn_avx2.la libaiacc_syncbn_avx512.la
libaiacc_syncbn_avx2_la_SOURCES = groupcomm/syncbn/kernels_avx2.cc
libaiacc_syncbn_avx2_la_CXXFLAGS = $(syncbn_flags) -mavx2 -mf16c
libaiacc_syncbn_avx512_la_SOURCES = groupcomm/syncbn/kernels_avx512.cc
libaiacc_syncbn_avx512_la_CXXFLAGS = $(syncbn_flags) -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl
libaiacc_groupcomm_la_LIBADD += libaiacc_syncbn_avx2.la libaiacc_syncbn_avx512.la
else
EXTRA_DIST += groupcomm/syncbn/kernels_avx2.cc groupcomm/syncbn/kernels_avx512.cc
endif

groupcomm_tests += \
	groupcomm/softmax/softmax_sim_test.cc \
	groupcomm/syncbn/exact_moments_test.h \
	groupcomm/syncbn/kernels_test.cc \
	groupcomm/syncbn/moments_test.cc \
	groupcomm/syncbn/passes_sim_test.cc \
	groupcomm/syncbn/records_test.cc
