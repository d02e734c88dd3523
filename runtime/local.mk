# runtime: the Context of one rank, bootstrap providers, groups.
runtime_sources += \
	runtime/alone.cc \
	runtime/alone.h \
	runtime/birth.cc \
	runtime/birth.h \
	runtime/bootstrap.h \
	runtime/bootstrap_agent.cc \
	runtime/bootstrap_agent.h \
	runtime/bootstrap_choice.cc \
	runtime/bootstrap_choice.h \
	runtime/bootstrap_list.cc \
	runtime/bootstrap_list.h \
	runtime/bootstrap_local.cc \
	runtime/bootstrap_local.h \
	runtime/bootstrap_singleton.cc \
	runtime/bootstrap_singleton.h \
	runtime/context.cc \
	runtime/context.h \
	runtime/data_port.cc \
	runtime/data_port.h \
	runtime/dispatch.cc \
	runtime/dispatch.h \
	runtime/group.cc \
	runtime/group.h \
	runtime/group_board.cc \
	runtime/group_board.h \
	runtime/group_operation.cc \
	runtime/group_operation.h \
	runtime/handles.h \
	runtime/info/finding.cc \
	runtime/info/finding.h \
	runtime/info/host_limits.cc \
	runtime/info/host_limits.h \
	runtime/info/judge_limits.cc \
	runtime/info/network_devices.cc \
	runtime/info/network_devices.h \
	runtime/info/report.cc \
	runtime/info/report.h \
	runtime/info/topology_module.cc \
	runtime/info/topology_module.h \
	runtime/info/ways.cc \
	runtime/info/ways.h \
	runtime/lane_task.h \
	runtime/pair_sequences.h \
	runtime/progress_watch.cc \
	runtime/progress_watch.h \
	runtime/real_context.cc \
	runtime/real_context.h \
	runtime/runtime_config.cc \
	runtime/runtime_config.h \
	runtime/surroundings.cc \
	runtime/surroundings.h

runtime_tests += \
	runtime/bootstrap_choice_test.cc \
	runtime/bootstrap_conformance.h \
	runtime/bootstrap_test.cc \
	runtime/context_sim_test.cc \
	runtime/handles_test.cc \
	runtime/hosts_sim_test.cc \
	runtime/hosts_tcp_test.cc \
	runtime/info/host_limits_test.cc \
	tests/sim_job.h
