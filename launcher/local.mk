# launcher: aiaccrun, its agent and its keeper. liblauncher.la holds everything but main(), so that tests can link it.
liblauncher_la_LIBADD = libaiacc_topology.la libaiacc_options.la

launcher_sources += \
	launcher/cli/failure.cc \
	launcher/cli/failure.h \
	launcher/cli/host_list.cc \
	launcher/cli/host_list.h \
	launcher/cli/mpirun.cc \
	launcher/cli/mpirun.h \
	launcher/cli/mpirun_table.cc \
	launcher/cli/mpirun_table.h \
	launcher/cli/option_values.cc \
	launcher/cli/option_values.h \
	launcher/cli/options.cc \
	launcher/cli/options.h \
	launcher/cli/options_table.cc \
	launcher/cli/options_table.h \
	launcher/cli/options_text.cc \
	launcher/cli/split.cc \
	launcher/cli/split.h \
	launcher/head/start_failure.cc \
	launcher/head/start_failure.h \
	launcher/plan/allocation.cc \
	launcher/plan/allocation.h \
	launcher/plan/binding.cc \
	launcher/plan/binding.h \
	launcher/plan/environment.cc \
	launcher/plan/environment.h \
	launcher/plan/hosts.cc \
	launcher/plan/hosts.h \
	launcher/plan/placement.cc \
	launcher/plan/placement.h \
	launcher/plan/plan.cc \
	launcher/plan/plan.h \
	launcher/plan/plan_text.cc \
	launcher/plan/program.cc \
	launcher/plan/program.h \
	launcher/plan/provide.cc \
	launcher/plan/provide.h \
	launcher/plan/starter.cc \
	launcher/plan/starter.h

launcher_sources += \
	launcher/agent/agent.cc \
	launcher/agent/agent.h \
	launcher/agent/agent_end.cc \
	launcher/agent/agent_start.cc \
	launcher/agent/exit_rules.cc \
	launcher/agent/exit_rules.h \
	launcher/agent/hello_server.cc \
	launcher/agent/hello_server.h \
	launcher/agent/keeper.cc \
	launcher/agent/keeper.h \
	launcher/agent/memory_kills.cc \
	launcher/agent/memory_kills.h \
	launcher/agent/process_tree.cc \
	launcher/agent/process_tree.h \
	launcher/agent/same_host_socket.cc \
	launcher/agent/same_host_socket.h \
	launcher/agent/segment.cc \
	launcher/agent/segment.h \
	launcher/channel/frames.cc \
	launcher/channel/frames.h \
	launcher/channel/lease.h \
	launcher/channel/marker.cc \
	launcher/channel/marker.h \
	launcher/head/escalation.cc \
	launcher/head/escalation.h \
	launcher/head/head.cc \
	launcher/head/head.h \
	launcher/head/first_hosts.cc \
	launcher/head/first_hosts.h \
	launcher/head/growth.cc \
	launcher/head/growth.h \
	launcher/head/head_end.cc \
	launcher/head/head_growth.cc \
	launcher/head/head_start.cc \
	launcher/head/host_discovery.cc \
	launcher/head/host_discovery.h \
	launcher/head/host_link.cc \
	launcher/head/host_link.h \
	launcher/head/host_pool.cc \
	launcher/head/host_pool.h \
	launcher/head/host_source.h \
	launcher/head/job_result.cc \
	launcher/head/job_result.h \
	launcher/head/same_host_detection.cc \
	launcher/head/same_host_detection.h \
	launcher/head/start_barrier.cc \
	launcher/head/start_barrier.h \
	launcher/job_settings.cc \
	launcher/job_settings.h \
	launcher/launch.cc \
	launcher/launch.h \
	launcher/roles.cc \
	launcher/roles.h \
	launcher/stdio/credit_gate.h \
	launcher/stdio/input_feed.cc \
	launcher/stdio/input_feed.h \
	launcher/stdio/input_source.cc \
	launcher/stdio/input_source.h \
	launcher/stdio/lines.cc \
	launcher/stdio/lines.h \
	launcher/stdio/output_pump.cc \
	launcher/stdio/output_pump.h \
	launcher/stdio/sink.cc \
	launcher/stdio/sink.h

launcher_tests += \
	launcher/agent/agent_test.cc \
	launcher/agent/same_host_socket_test.cc \
	launcher/channel/channel_start_test.cc \
	launcher/cli/host_list_test.cc \
	launcher/cli/manual_test.cc \
	launcher/cli/mpirun_test.cc \
	launcher/cli/options_test.cc \
	launcher/head/host_discovery_test.cc \
	launcher/head/host_pool_test.cc \
	launcher/head/job_result_test.cc \
	launcher/head/same_host_detection_test.cc \
	launcher/head/start_barrier_test.cc \
	launcher/head/start_failure_test.cc \
	launcher/launch_sim_growth_test.cc \
	launcher/launch_sim_test.cc \
	launcher/launch_sim_world_test.h \
	launcher/plan/allocation_test.cc \
	launcher/plan/binding_test.cc \
	launcher/plan/environment_test.cc \
	launcher/plan/hosts_test.cc \
	launcher/plan/placement_test.cc \
	launcher/plan/plan_test.cc \
	launcher/plan/planned.h \
	launcher/plan/program_test.cc \
	launcher/plan/provide_test.cc \
	launcher/plan/starter_test.cc

launcher_tests += \
	launcher/agent/exit_rules_test.cc \
	launcher/agent/hello_server_fixture_test.h \
	launcher/agent/hello_server_test.cc \
	launcher/agent/hello_server_worlds_test.cc \
	launcher/agent/memory_kills_test.cc \
	launcher/agent/process_tree_test.cc \
	launcher/head/escalation_test.cc \
	launcher/stdio/input_test.cc \
	launcher/stdio/lines_test.cc

bin_PROGRAMS += aiaccrun
aiaccrun_SOURCES = launcher/main.cc
aiaccrun_CXXFLAGS = $(program_flags)
aiaccrun_LDADD = liblauncher.la $(floors_up_to_transports)
# A call that is bound when it is first made saves the registers on the stack, and what a secret left in them.
# In a Python wheel, what it needs lies beside libaiacc.
aiaccrun_LDFLAGS = $(relocatable) -Wl,-z,now
