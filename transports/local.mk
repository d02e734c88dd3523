# transports: messages between hosts, memory within a host.
transports_sources += \
	transports/message.h \
	transports/port_factory.cc \
	transports/port_factory.h

transports_sources += \
	transports/call_note.h \
	transports/exchange.cc \
	transports/arriving_payloads.h \
	transports/exchange.h \
	transports/mailbox.cc \
	transports/last_calls.h \
	transports/mailbox.h \
	transports/match_group.cc \
	transports/match_group.h \
	transports/match_index.h \
	transports/message_record.cc \
	transports/message_record.h \
	transports/message_records.cc \
	transports/messenger.cc \
	transports/messenger.h \
	transports/operation_traffic.h \
	transports/past_calls.h \
	transports/peers.h \
	transports/stall_times.cc \
	transports/stall_times.h \
	transports/unexpected_observer.h \
	transports/wire_id.h

transports_sources += \
	transports/control/aborts.cc \
	transports/control/aborts.h \
	transports/control/control_channel.cc \
	transports/control/control_channel.h \
	transports/control/leaving.cc \
	transports/control/leaving.h \
	transports/control/mismatches.cc \
	transports/control/mismatches.h \
	transports/control/stragglers.cc \
	transports/control/stragglers.h

transports_sources += \
	transports/failover/failover_port.cc \
	transports/failover/failover_port.h \
	transports/failover/link.cc \
	transports/failover/hold_down.h \
	transports/failover/link.h \
	transports/failover/link_return.cc \
	transports/failover/link_says.cc \
	transports/failover/receipts.h

transports_sources += \
	transports/host/doorbell.cc \
	transports/host/doorbell.h \
	transports/host/host_domain.h \
	transports/host/memfd_domain.cc \
	transports/host/memfd_domain.h \
	transports/host/memory_room.cc \
	transports/host/memory_room.h \
	transports/host/segment.cc \
	transports/host/segment.h \
	transports/host/segment_domain.cc \
	transports/host/segment_domain.h \
	transports/host/segment_fence.cc \
	transports/host/slice_allocator.cc \
	transports/host/slice_allocator.h

transports_sources += \
	transports/qos/class_shares.cc \
	transports/qos/class_shares.h \
	transports/qos/class_turns.cc \
	transports/qos/class_turns.h \
	transports/qos/class_windows.cc \
	transports/qos/class_windows.h \
	transports/qos/delay_window.cc \
	transports/qos/delay_window.h \
	transports/qos/latency_use.h \
	transports/qos/message_flow.h

transports_sources += \
	transports/service/host_streams.cc \
	transports/service/host_streams.h \
	transports/service/service.cc \
	transports/service/service.h \
	transports/service/service_memory.cc \
	transports/service/service_memory.h \
	transports/service/services.cc \
	transports/service/services.h

transports_sources += \
	transports/tcp/byte_order.h \
	transports/tcp/connection.cc \
	transports/tcp/connection.h \
	transports/tcp/data_acceptor.cc \
	transports/tcp/data_acceptor.h \
	transports/tcp/data_header.cc \
	transports/tcp/data_header.h \
	transports/tcp/dial.cc \
	transports/tcp/dial.h \
	transports/tcp/frame.cc \
	transports/tcp/frame.h \
	transports/tcp/inbound.cc \
	transports/tcp/inbound.h \
	transports/tcp/link.cc \
	transports/tcp/link.h \
	transports/tcp/outbound.cc \
	transports/tcp/outbound.h \
	transports/tcp/outbound_ends.cc \
	transports/tcp/outgoing.h \
	transports/tcp/pace.cc \
	transports/tcp/pace.h \
	transports/tcp/shared.h \
	transports/tcp/stream_count.cc \
	transports/tcp/stream_count.h \
	transports/tcp/tcp_port.cc \
	transports/tcp/tcp_port.h \
	transports/tcp/tcp_port_factory.cc \
	transports/tcp/tcp_port_factory.h

transports_sources += \
	transports/active/active_port.cc \
	transports/active/active_port.h \
	transports/active/active_port_factory.cc \
	transports/active/active_port_factory.h \
	transports/active/frame.h \
	transports/active/library.h \
	transports/active/link.cc \
	transports/active/link.h \
	transports/active/link_receives.cc \
	transports/active/loss_watch.cc \
	transports/active/loss_watch.h \
	transports/active/module_api.h \
	transports/active/module_loader.cc \
	transports/active/module_loader.h \
	transports/active/outgoing.h \
	transports/active/shared.h \
	transports/ofi/ofi_library.cc \
	transports/ofi/ofi_library.h \
	transports/ucx/ucx_library.cc \
	transports/ucx/ucx_library.h

# What is linked with UCX or libfabric: a module that a rank loads when its job uses that transport.
if HAVE_UCX
pkglib_LTLIBRARIES += aiacc-ucx.la
aiacc_ucx_la_SOURCES = transports/ucx/module.cc transports/active/module_api.h
aiacc_ucx_la_CPPFLAGS = $(AM_CPPFLAGS) $(UCX_CFLAGS)
aiacc_ucx_la_LIBADD = $(UCX_LIBS)
aiacc_ucx_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -no-undefined \
	-Wl,--version-script=$(srcdir)/transports/ucx/module.map
EXTRA_aiacc_ucx_la_DEPENDENCIES = $(srcdir)/transports/ucx/module.map
endif
if HAVE_OFI
pkglib_LTLIBRARIES += aiacc-ofi.la
aiacc_ofi_la_SOURCES = \
	transports/active/module_api.h \
	transports/ofi/fabric.cc \
	transports/ofi/fabric.h \
	transports/ofi/module.cc \
	transports/ofi/reads.cc \
	transports/ofi/reads.h \
	transports/ofi/wire.h \
	transports/ofi/worker.cc \
	transports/ofi/worker.h
aiacc_ofi_la_CPPFLAGS = $(AM_CPPFLAGS) $(OFI_CFLAGS)
aiacc_ofi_la_LIBADD = $(OFI_LIBS)
aiacc_ofi_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -no-undefined \
	-Wl,--version-script=$(srcdir)/transports/ofi/module.map
EXTRA_aiacc_ofi_la_DEPENDENCIES = $(srcdir)/transports/ofi/module.map
endif
EXTRA_DIST += transports/ofi/module.map transports/ucx/module.map

# transports/sim is part of libaiacc_sim.
sim_sources += \
	transports/sim/sim_channel.cc \
	transports/sim/sim_channel.h \
	transports/sim/sim_cluster.cc \
	transports/sim/sim_cluster.h \
	transports/sim/sim_domain.cc \
	transports/sim/sim_domain.h \
	transports/sim/sim_fabric.cc \
	transports/sim/sim_fabric.h \
	transports/sim/sim_port.cc \
	transports/sim/sim_port.h

transports_tests += \
	transports/forwarding_port_test.h \
	transports/active/active_fixture_test.h \
	transports/active/active_tapped_test.h \
	transports/active/active_port_test.cc \
	transports/active/active_delay_test.cc \
	transports/active/active_gap_test.cc \
	transports/active/active_parts_test.cc \
	transports/active/active_shares_test.cc \
	transports/early_rts_test.cc \
	transports/failover/failover_back_test.cc \
	transports/failover/failover_fixture_test.h \
	transports/failover/failover_port_test.cc \
	transports/mailbox_bad_peer_test.cc \
	transports/mailbox_test.cc \
	transports/match_index_test.cc \
	transports/message_conformance.cc \
	transports/message_conformance.h \
	transports/past_calls_test.cc \
	transports/port_factory_test.cc \
	transports/service/host_streams_test.cc \
	transports/service/service_memory_test.cc \
	transports/sim/sim_domain_test.cc \
	transports/sim/sim_port_test.cc \
	transports/tcp/outbound_test.cc \
	transports/qos/class_shares_test.cc \
	transports/qos/class_turns_test.cc \
	transports/qos/class_windows_test.cc \
	transports/qos/delay_window_test.cc \
	transports/tcp/tcp_delay_test.cc \
	transports/tcp/tcp_lossless_test.cc \
	transports/tcp/tcp_shares_test.cc \
	transports/tcp/pace_test.cc \
	transports/tcp/stream_count_test.cc \
	transports/tcp/tcp_auto_test.cc \
	transports/tcp/tcp_bad_peer_test.cc \
	transports/tcp/tcp_breaks_test.cc \
	transports/tcp/tcp_fixture_test.h \
	transports/tcp/tcp_leaving_test.cc \
	transports/tcp/tcp_agreement_test.cc \
	transports/tcp/tcp_port_test.cc \
	transports/tcp/tcp_reaching_test.cc \
	transports/tcp/tcp_pull_test.cc \
	transports/tcp/tcp_classes_test.cc \
	transports/tcp/tcp_streams_test.cc \
	transports/tcp/tcp_unauthenticated_test.cc \
	transports/ofi/ofi_module_test.cc \
	transports/ucx/module_test.cc

transports_tests += \
	transports/host/fence_test.cc \
	transports/host/host_conformance.cc \
	transports/host/host_conformance.h \
	transports/host/memfd_domain_test.cc \
	transports/host/segment_test.cc
