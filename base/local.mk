# base: what is compiled into the ground floor, its simulator and its unit tests.
base_sources += \
	base/asymmetric_fence.cc \
	base/asymmetric_fence.h \
	base/biased_count.h \
	base/cgroups.cc \
	base/cgroups.h \
	base/config.cc \
	base/config.h \
	base/config_aliases.cc \
	base/config_aliases.h \
	base/config_table.cc \
	base/cpu_relax.h \
	base/error.cc \
	base/error.h \
	base/error_about.h \
	base/guest_environment.cc \
	base/guest_environment.h \
	base/hash.h \
	base/intrusive_heap.h \
	base/intrusive_list.h \
	base/json.h \
	base/json_array_file.cc \
	base/json_array_file.h \
	base/log.cc \
	base/log.h \
	base/log_levels.cc \
	base/log_levels.h \
	base/mapping.h \
	base/nearest.cc \
	base/nearest.h \
	base/precompiled.h \
	base/prefetch.h \
	base/printable.cc \
	base/printable.h \
	base/quantity.cc \
	base/quantity.h \
	base/spin_lock.h \
	base/time.h \
	base/view.cc \
	base/view.h \
	base/whole_file.cc \
	base/whole_file.h

# A library of its own: the test of the C ABI reads what aiacc_info gives with it, and nlohmann-json is compiled once.
noinst_LTLIBRARIES += libaiacc_json.la
libaiacc_json_la_SOURCES = base/json.cc base/json_text.cc

base_sources += \
	base/data/buffer.h \
	base/data/codec.cc \
	base/data/codec.h \
	base/data/compute.h \
	base/data/cpu_compute.cc \
	base/data/cpu_compute.h \
	base/data/dtype.cc \
	base/data/dtype.h \
	base/data/kernels.cc \
	base/data/kernels.h \
	base/data/magnitude.cc \
	base/data/magnitude.h \
	base/data/reduction.h \
	base/data/scratch_pool.h \
	base/data/user_reduce.cc \
	base/data/user_reduce.h

# The reduction kernels: one library for each instruction set, with its own flags. Fused multiply-adds would round
# differently from one to the next.
kernel_flags = $(program_flags) -ffp-contract=off
noinst_LTLIBRARIES += libaiacc_kernels_baseline.la
libaiacc_kernels_baseline_la_SOURCES = base/data/kernels_baseline.cc base/data/kernels_body.h \
	base/data/kernels_half.h base/data/kernels_half_f16c.h
libaiacc_kernels_baseline_la_CXXFLAGS = $(kernel_flags)
libaiacc_base_la_LIBADD = libaiacc_kernels_baseline.la libaiacc_json.la
if X86_64
noinst_LTLIBRARIES += libaiacc_kernels_avx2.la libaiacc_kernels_avx512.la
libaiacc_kernels_avx2_la_SOURCES = base/data/kernels_avx2.cc
libaiacc_kernels_avx2_la_CXXFLAGS = $(kernel_flags) -mavx2 -mf16c
libaiacc_kernels_avx512_la_SOURCES = base/data/kernels_avx512.cc
libaiacc_kernels_avx512_la_CXXFLAGS = $(kernel_flags) -mavx512f -mavx512bw -mavx512dq -mavx512vl
libaiacc_base_la_LIBADD += libaiacc_kernels_avx2.la libaiacc_kernels_avx512.la
else
EXTRA_DIST += base/data/kernels_avx2.cc base/data/kernels_avx512.cc
endif

# It includes <linux/tcp.h>, which others cannot beside <netinet/tcp.h>.
compiled_alone += base/io/flow_state.cc
base_sources += \
	base/fd.h \
	base/io/address.cc \
	base/io/bound_port.cc \
	base/io/bound_port.h \
	base/io/clock.h \
	base/io/congestion.cc \
	base/io/congestion.h \
	base/io/descriptor_passing.cc \
	base/io/descriptor_passing.h \
	base/io/fd_stream.cc \
	base/io/fd_stream.h \
	base/io/flow_state.cc \
	base/io/flow_state.h \
	base/io/host.h \
	base/io/host_addresses.cc \
	base/io/host_addresses.h \
	base/io/limits.cc \
	base/io/limits.h \
	base/io/machine_mark.cc \
	base/io/machine_mark.h \
	base/io/net.cc \
	base/io/net.h \
	base/io/nobody_listens.h \
	base/io/process_role.cc \
	base/io/process_role.h \
	base/io/processes.h \
	base/io/priority_pause.cc \
	base/io/priority_pause.h \
	base/io/procfs.cc \
	base/io/procfs.h \
	base/io/rdma_devices.cc \
	base/io/rdma_devices.h \
	base/io/quiet_write.cc \
	base/io/quiet_write.h \
	base/io/real_clock.cc \
	base/io/real_clock.h \
	base/io/real_host.cc \
	base/io/real_host.h \
	base/io/real_loop.cc \
	base/io/real_loop.h \
	base/io/real_net.cc \
	base/io/real_net.h \
	base/io/real_processes.cc \
	base/io/real_processes.h \
	base/io/real_signals.cc \
	base/io/real_signals.h \
	base/io/stream_range.cc \
	base/io/stream_range.h \
	base/io/traffic_marks.cc \
	base/io/traffic_marks.h \
	base/io/resolve.cc \
	base/io/resolve.h \
	base/io/same_host.cc \
	base/io/same_host.h \
	base/io/signals.h \
	base/io/silence_watch.cc \
	base/io/silence_watch.h \
	base/io/spawn.cc \
	base/io/spawn.h \
	base/io/terminal.cc \
	base/io/terminal.h

base_sources += \
	base/task/completion_thread.cc \
	base/task/completion_thread.h \
	base/task/driver_thread.cc \
	base/task/driver_thread.h \
	base/task/frame_pool.cc \
	base/task/frame_pool.h \
	base/task/lane.cc \
	base/task/lane.h \
	base/task/leave_deadline.h \
	base/task/loop.h \
	base/task/scope.cc \
	base/task/scope.h \
	base/task/slab_pool.cc \
	base/task/slab_pool.h \
	base/task/stop.h \
	base/task/task.cc \
	base/task/task.h \
	base/task/timer_queue.h \
	base/task/turn_queue.h

base_sources += \
	base/third_party/fmt.cc

base_sources += \
	base/wire/acceptor.cc \
	base/wire/acceptor.h \
	base/wire/agent_messages.h \
	base/wire/arrivals_text.cc \
	base/wire/arrivals_text.h \
	base/wire/channel.cc \
	base/wire/channel.h \
	base/wire/codec.cc \
	base/wire/codec.h \
	base/wire/control_messages.h \
	base/wire/path_messages.h \
	base/wire/frame.cc \
	base/wire/frame.h \
	base/wire/handshake.cc \
	base/wire/handshake.h \
	base/wire/hidden.cc \
	base/wire/hidden.h \
	base/wire/port_address.h \
	base/wire/launch_messages.h \
	base/wire/raw.h \
	base/wire/record_seal.cc \
	base/wire/record_seal.h \
	base/wire/rendezvous_messages.h \
	base/wire/sealed_stream.cc \
	base/wire/sealed_stream.h \
	base/wire/secret.cc \
	base/wire/secret.h \
	base/wire/secret_file.cc \
	base/wire/secret_file.h \
	base/wire/secure_channel.cc \
	base/wire/secure_channel.h
libaiacc_base_la_LIBADD += $(SODIUM_LIBS)

# The command lines of programs: ranks have none.
noinst_LTLIBRARIES += libaiacc_options.la
libaiacc_options_la_LIBADD = -lboost_program_options
libaiacc_options_la_SOURCES = \
	base/options/command_line.cc \
	base/options/command_line.h \
	base/options/option_table.cc \
	base/options/option_table.h \
	base/options/option_values.cc

# A library of its own, for aiaccrun and its agents: ranks do not carry hwloc.
noinst_LTLIBRARIES += libaiacc_topology.la
libaiacc_topology_la_CPPFLAGS = $(AM_CPPFLAGS) $(HWLOC_CFLAGS)
libaiacc_topology_la_LIBADD = $(HWLOC_LIBS)
libaiacc_topology_la_SOURCES = \
	base/topology/quota.cc \
	base/topology/quota.h \
	base/topology/topology.cc \
	base/topology/topology.h

# The same as a module, which libaiacc loads when somebody asks what this host is (aiacc_info).
pkglib_LTLIBRARIES += aiacc-topology.la
aiacc_topology_la_SOURCES = base/topology/module.cc
aiacc_topology_la_CPPFLAGS = $(AM_CPPFLAGS) $(HWLOC_CFLAGS)
aiacc_topology_la_LIBADD = libaiacc_topology.la libaiacc_base.la
# The run path is for a Python wheel, where libhwloc may lie beside libaiacc.
aiacc_topology_la_LDFLAGS = $(AM_LDFLAGS) -Wl,-rpath,'$$ORIGIN/..' -module -avoid-version -no-undefined \
	-Wl,--version-script=$(srcdir)/base/topology/module.map
EXTRA_aiacc_topology_la_DEPENDENCIES = $(srcdir)/base/topology/module.map
EXTRA_DIST += base/topology/module.map

# base/sim is part of libaiacc_sim, not of libaiacc.
sim_sources += \
	base/sim/deferred_work.h \
	base/sim/random.h \
	base/sim/sim_compute.cc \
	base/sim/sim_compute.h \
	base/sim/sim_connection.cc \
	base/sim/sim_connection.h \
	base/sim/sim_host.cc \
	base/sim/sim_host.h \
	base/sim/sim_loop.cc \
	base/sim/sim_loop.h \
	base/sim/sim_net.cc \
	base/sim/sim_net.h \
	base/sim/threaded_compute.cc \
	base/sim/threaded_compute.h \
	base/sim/world.cc \
	base/sim/world.h

base_tests += \
	base/io/clock_conformance.h \
	base/intrusive_heap_test.cc \
	base/io/congestion_test.cc \
	base/io/stream_range_test.cc \
	base/io/priority_pause_test.cc \
	base/io/rdma_devices_test.cc \
	base/io/rdma_tree_test.h \
	base/io/traffic_marks_test.cc \
	base/io/host_addresses_test.cc \
	base/io/host_conformance.h \
	base/io/net_conformance.h \
	base/io/real_clock_test.cc \
	base/io/real_fixture.h \
	base/io/real_host_test.cc \
	base/io/real_loop_test.cc \
	base/io/real_net_test.cc \
	base/io/real_processes_test.cc \
	base/io/resolve_test.cc \
	base/io/silence_watch_test.cc \
	base/wire/documented_vectors.h

base_tests += \
	base/task/lane_fixture_test.h \
	base/task/lane_test.cc \
	base/task/lane_waits_test.cc \
	base/task/slab_pool_test.cc \
	base/task/task_test.cc \
	base/task/test_loop.h

base_tests += \
	base/sim/sim_compute_test.cc \
	base/sim/sim_fixture.h \
	base/sim/sim_host_test.cc \
	base/sim/sim_net_test.cc \
	base/sim/threaded_compute_test.cc \
	base/sim/world_test.cc

base_tests += \
	base/guest_environment_test.cc \
	base/json_array_file_test.cc \
	base/json_test.cc \
	base/nearest_test.cc \
	base/printable_test.cc \
	base/topology/topology_test.cc

base_tests += \
	base/data/compute_conformance.cc \
	base/data/compute_conformance.h \
	base/data/cpu_compute_test.cc \
	base/data/reference_reduce.h \
	base/data/scratch_pool_test.cc

base_tests += \
	base/wire/arrivals_text_test.cc \
	base/wire/channel_test.cc \
	base/wire/codec_test.cc \
	base/wire/control_messages_test.cc \
	base/wire/handshake_test.cc \
	base/wire/hidden_test.cc \
	base/wire/launch_messages_test.cc \
	base/wire/rendezvous_messages_test.cc \
	base/wire/sealed_stream_test.cc \
	base/wire/secret_file_test.cc \
	base/wire/secure_channel_test.cc

base_tests += \
	base/asymmetric_fence_test.cc \
	base/biased_count_test.cc \
	base/config_aliases_test.cc \
	base/config_test.cc \
	base/log_test.cc \
	base/whole_file_test.cc
