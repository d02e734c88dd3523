# launcher: aiaccrun, its agent and its keeper. liblauncher.la holds everything but main(), so that tests can link it.
liblauncher_la_LIBADD = libaiacc_topology.la libaiacc_options.la

launcher_sources += \
	launcher/attendance.cc \
	launcher/attendance.h \
	launcher/binding.cc \
	launcher/binding.h \
	launcher/environment.cc \
	launcher/environment.h \
	launcher/failure.cc \
	launcher/failure.h \
	launcher/host_list.cc \
	launcher/host_list.h \
	launcher/hosts.cc \
	launcher/hosts.h \
	launcher/option_values.cc \
	launcher/option_values.h \
	launcher/options.cc \
	launcher/options.h \
	launcher/options_table.cc \
	launcher/options_table.h \
	launcher/options_text.cc \
	launcher/placement.cc \
	launcher/placement.h \
	launcher/plan.cc \
	launcher/plan.h \
	launcher/plan_text.cc \
	launcher/program.cc \
	launcher/program.h \
	launcher/split.cc \
	launcher/split.h \
	launcher/start_failure.cc \
	launcher/start_failure.h \
	launcher/starter.cc \
	launcher/starter.h

launcher_sources += \
	launcher/agent.cc \
	launcher/agent.h \
	launcher/agent_end.cc \
	launcher/agent_start.cc \
	launcher/credit_gate.h \
	launcher/escalation.cc \
	launcher/escalation.h \
	launcher/exit_rules.cc \
	launcher/exit_rules.h \
	launcher/frames.cc \
	launcher/frames.h \
	launcher/head.cc \
	launcher/head.h \
	launcher/head_end.cc \
	launcher/head_start.cc \
	launcher/hello_server.cc \
	launcher/hello_server.h \
	launcher/host_link.cc \
	launcher/host_link.h \
	launcher/input_feed.cc \
	launcher/input_feed.h \
	launcher/input_source.cc \
	launcher/input_source.h \
	launcher/keeper.cc \
	launcher/keeper.h \
	launcher/launch.cc \
	launcher/launch.h \
	launcher/lease.h \
	launcher/lines.cc \
	launcher/lines.h \
	launcher/machine_census.cc \
	launcher/machine_census.h \
	launcher/marker.cc \
	launcher/marker.h \
	launcher/memory_kills.cc \
	launcher/memory_kills.h \
	launcher/output_pump.cc \
	launcher/output_pump.h \
	launcher/presence.cc \
	launcher/presence.h \
	launcher/printable.cc \
	launcher/printable.h \
	launcher/process_tree.cc \
	launcher/process_tree.h \
	launcher/roles.cc \
	launcher/roles.h \
	launcher/segment.cc \
	launcher/segment.h \
	launcher/sink.cc \
	launcher/sink.h \
	launcher/verdict.cc \
	launcher/verdict.h \
	launcher/world_fence.cc \
	launcher/world_fence.h

launcher_tests += \
	launcher/agent_test.cc \
	launcher/attendance_test.cc \
	launcher/launch_sim_test.cc \
	launcher/binding_test.cc \
	launcher/channel_start_test.cc \
	launcher/environment_test.cc \
	launcher/host_list_test.cc \
	launcher/hosts_test.cc \
	launcher/machine_census_test.cc \
	launcher/manual_test.cc \
	launcher/options_test.cc \
	launcher/placement_test.cc \
	launcher/plan_test.cc \
	launcher/planned.h \
	launcher/presence_test.cc \
	launcher/printable_test.cc \
	launcher/program_test.cc \
	launcher/start_failure_test.cc \
	launcher/starter_test.cc \
	launcher/verdict_test.cc \
	launcher/world_fence_test.cc

launcher_tests += \
	launcher/escalation_test.cc \
	launcher/exit_rules_test.cc \
	launcher/hello_server_test.cc \
	launcher/input_test.cc \
	launcher/lines_test.cc \
	launcher/memory_kills_test.cc \
	launcher/process_tree_test.cc

bin_PROGRAMS += aiaccrun
aiaccrun_SOURCES = launcher/main.cc
aiaccrun_LDADD = liblauncher.la $(floors_up_to_transports)
# A call that is bound when it is first made saves the registers on the stack, and what a secret left in them.
aiaccrun_LDFLAGS = $(AM_LDFLAGS) -Wl,-z,now
