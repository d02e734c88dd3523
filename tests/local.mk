# tests: the runner, and what needs processes, hosts, faults or frameworks (unit tests stand beside their sources).
EXTRA_DIST += \
	tests/abi/aiacc.abi \
	tests/abi/dump \
	tests/abi/growing.ini \
	tests/abi_baseline_test.py \
	tests/abi_manual_test.py \
	tests/abi_process_test.py \
	tests/abi_test.c \
	tests/active_hosts_support.py \
	tests/algorithm_hosts_test.py \
	tests/altered_data_test.py \
	tests/broken_control_test.py \
	tests/caffe/build \
	tests/caffe/caffe.mk \
	tests/caffe_test.py \
	tests/conftest.py \
	tests/cpp_test.py \
	tests/delay_hosts_test.py \
	tests/digits_test.py \
	tests/docs_test.py \
	tests/examples_test.py \
	tests/floors \
	tests/floors_test.py \
	tests/front_door_test.py \
	tests/info_test.py \
	tests/install_test.py \
	tests/launcher_exit_test.py \
	tests/launcher_growth_test.py \
	tests/launcher_hosts_support.py \
	tests/launcher_hosts_test.py \
	tests/launcher_input_test.py \
	tests/launcher_isolate_test.py \
	tests/launcher_lab_test.py \
	tests/launcher_losses_test.py \
	tests/launcher_machines_test.py \
	tests/launcher_memory_test.py \
	tests/launcher_options_test.py \
	tests/launcher_orphans_test.py \
	tests/launcher_output_test.py \
	tests/launcher_ranks_test.py \
	tests/launcher_secret_test.py \
	tests/launcher_signals_test.py \
	tests/launcher_slurm.py \
	tests/launcher_slurm_test.py \
	tests/launcher_sshd.py \
	tests/launcher_sshd_test.py \
	tests/launcher_start_test.py \
	tests/launcher_support.py \
	tests/launcher_unauthenticated_test.py \
	tests/launcher_wiring_test.py \
	tests/launcher_worlds_test.py \
	tests/long_messages_test.py \
	tests/manual_test.py \
	tests/mxnet_examples_test.py \
	tests/mxnet_store_test.py \
	tests/mxnet_test.py \
	tests/metrics_test.py \
	tests/namespace_hosts.py \
	tests/namespace_hosts_test.py \
	tests/ofi_hosts_test.py \
	tests/perf_test.py \
	tests/precompiled.h \
	tests/programs/breaking_proxy.py \
	tests/programs/corrupt.c \
	tests/programs/cpp.cc \
	tests/programs/deny_affinity.c \
	tests/programs/incast.py \
	tests/programs/job_rank.c \
	tests/programs/say_hello.py \
	tests/programs/several.py \
	tests/programs/surface.cc \
	tests/programs/unauthenticated_peer.py \
	tests/programs/worlds.c \
	tests/protocol_vectors.py \
	tests/rendezvous_test.py \
	tests/run \
	tests/run_test.py \
	tests/settings_test.py \
	tests/store_test.py \
	tests/streams_hosts_test.py \
	tests/surface_hosts_test.py \
	tests/tune_test.py \
	tests/ucx_hosts_test.py \
	tests/unauthenticated_test.py \
	tests/unpacked_packages.py \
	tests/wire_protocol_test.py

# Fuzz targets, built on request: `make agent_messages_fuzz'.
EXTRA_PROGRAMS += agent_messages_fuzz data_header_fuzz handshake_fuzz
agent_messages_fuzz_SOURCES = tests/fuzz/agent_messages_fuzz.cc tests/fuzz/driver.cc tests/fuzz/driver.h
agent_messages_fuzz_CXXFLAGS = $(program_flags)
agent_messages_fuzz_LDADD = $(floors_up_to_base)
data_header_fuzz_SOURCES = tests/fuzz/data_header_fuzz.cc tests/fuzz/driver.cc tests/fuzz/driver.h
data_header_fuzz_CXXFLAGS = $(program_flags)
data_header_fuzz_LDADD = $(floors_up_to_transports)
handshake_fuzz_SOURCES = tests/fuzz/handshake_fuzz.cc tests/fuzz/driver.cc tests/fuzz/driver.h
handshake_fuzz_CXXFLAGS = $(program_flags)
handshake_fuzz_LDADD = $(floors_up_to_base)

EXTRA_DIST += \
	tests/bench_gradients_test.py \
	tests/consumers_test.py \
	tests/gradients_process_test.py \
	tests/gradients_tuned_test.py \
	tests/gradients_rows_test.py \
	tests/gradients_wire_test.py \
	tests/groups_process_test.py \
	tests/horovod_order_test.py \
	tests/programs/caffe_solver.c \
	tests/programs/caffe_training.py \
	tests/programs/disagree.c \
	tests/programs/gradients.c \
	tests/programs/gradients_tuned.c \
	tests/programs/gradients_rows.c \
	tests/programs/gradients_wire.c \
	tests/programs/groups.c \
	tests/programs/hang_report.py \
	tests/programs/local_sgd_simulation.py \
	tests/programs/leaving.py \
	tests/programs/long_messages.c \
	tests/programs/mxnet_arguments.py \
	tests/programs/mxnet_checks.py \
	tests/programs/mxnet_collectives.py \
	tests/programs/mxnet_kvstore.c \
	tests/programs/mxnet_layers.py \
	tests/programs/mxnet_replicas.py \
	tests/programs/mxnet_store.py \
	tests/programs/mxnet_training.py \
	tests/programs/outstanding.c \
	tests/programs/python_arguments.py \
	tests/programs/python_core.py \
	tests/programs/rank_checks.py \
	tests/programs/rank.c \
	tests/programs/kvstore.py \
	tests/programs/softmax.c \
	tests/programs/syncbn.c \
	tests/programs/tensorflow_arguments.py \
	tests/programs/tensorflow_checks.py \
	tests/programs/tensorflow_collectives.py \
	tests/programs/tensorflow_elastic.py \
	tests/programs/tensorflow_keras.py \
	tests/programs/tensorflow_training.py \
	tests/programs/tensorflow_v1.py \
	tests/programs/torch_adasum.py \
	tests/programs/torch_arguments.py \
	tests/programs/torch_checks.py \
	tests/programs/torch_collectives.py \
	tests/programs/torch_device.cc \
	tests/programs/torch_device.py \
	tests/programs/torch_device_support.py \
	tests/programs/torch_dgc.py \
	tests/programs/torch_distributed.py \
	tests/programs/torch_elastic.py \
	tests/programs/torch_elastic_grows.py \
	tests/programs/torch_elastic_worlds.py \
	tests/programs/torch_faults.py \
	tests/programs/torch_gossip.py \
	tests/programs/torch_kvstore.py \
	tests/programs/torch_layers.py \
	tests/programs/torch_leaving.py \
	tests/programs/torch_local_sgd.py \
	tests/programs/torch_meetings.py \
	tests/programs/torch_gradient_memory.py \
	tests/programs/torch_optimizer.py \
	tests/programs/torch_overlap.py \
	tests/programs/torch_overlap_models.py \
	tests/programs/torch_profilers.py \
	tests/programs/torch_replicated_vars.py \
	tests/programs/torch_softmax.py \
	tests/programs/torch_sparse_gradients.py \
	tests/programs/torch_suite.py \
	tests/programs/torch_syncbn.py \
	tests/programs/torch_worlds.py \
	tests/programs/wrong_arguments.py \
	tests/provide_test.py \
	tests/python_support.py \
	tests/python_test.py \
	tests/runtime_hosts_test.py \
	tests/runtime_process_test.py \
	tests/kv_process_test.py \
	tests/leaving_test.py \
	tests/syncbn_process_test.py \
	tests/tensorflow_test.py \
	tests/timeline_picture_test.py \
	tests/timeline_test.py \
	tests/torch_collectives_test.py \
	tests/torch_device_test.py \
	tests/torch_demo_test.py \
	tests/torch_distributed_test.py \
	tests/torch_docs_test.py \
	tests/torch_examples_test.py \
	tests/torch_elastic_test.py \
	tests/torch_faults_test.py \
	tests/torch_layers_test.py \
	tests/torch_optimizer_test.py \
	tests/torch_suite_test.py

# Caffe in the build directory, and the tests with it; `make check' runs them too where it has been built.
check-caffe: stage
	@$(srcdir)/tests/caffe/build $(abs_builddir)/caffe
	@AIACC_BUILD=$(abs_builddir) AIACC_SOURCE=$(abs_srcdir) AIACC_STAGE=$(stage)$(prefix) $(srcdir)/tests/run caffe
.PHONY: check-caffe

# Ranks over verbs, in virtual machines with software RoCE: minutes, so not part of `make check'. TESTS_FILTER as there.
EXTRA_DIST += \
	tests/roce/checks \
	tests/roce/enter \
	tests/roce/host \
	tests/roce/init \
	tests/roce/run \
	tests/roce/serve
check-roce: stage
	@AIACC_SOURCE=$(abs_srcdir) AIACC_STAGE=$(stage)$(prefix) $(srcdir)/tests/roce/run $(abs_builddir)/roce $(TESTS_FILTER)
.PHONY: check-roce

# Traffic classes over queues and congestion control that a kernel may lack, in user-mode Linux: minutes, too.
EXTRA_DIST += \
	tests/qos/init \
	tests/qos/lab.py \
	tests/qos/mounts.py \
	tests/qos/run \
	tests/qos/scenarios.py
check-qos: stage
	@AIACC_SOURCE=$(abs_srcdir) AIACC_STAGE=$(stage)$(prefix) $(srcdir)/tests/qos/run $(abs_builddir)/qos $(TESTS_FILTER)
.PHONY: check-qos

# The ABI of aiacc.h as it is now becomes what later ones are compared with: at a release, or where a break is meant.
abi-baseline:
	$(srcdir)/tests/abi/dump $(srcdir)/include/aiacc/aiacc.h $(srcdir)/tests/abi/aiacc.abi
.PHONY: abi-baseline
