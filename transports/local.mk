# transports: messages between hosts, memory within a host.
transports_sources += \
	transports/message.h \
	transports/port_factory.cc \
	transports/port_factory.h

transports_sources += \
	transports/call_note.h \
	transports/exchange.cc \
	transports/exchange.h \
	transports/mailbox.cc \
	transports/mailbox.h \
	transports/match_group.cc \
	transports/match_group.h \
	transports/match_index.h \
	transports/messenger.cc \
	transports/messenger.h \
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
	transports/service/host_streams.cc \
	transports/service/host_streams.h \
	transports/service/service.cc \
	transports/service/service.h \
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
	transports/tcp/outgoing.h \
	transports/tcp/shared.h \
	transports/tcp/tcp_port.cc \
	transports/tcp/tcp_port.h \
	transports/tcp/tcp_port_factory.cc \
	transports/tcp/tcp_port_factory.h

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
	transports/early_rts_test.cc \
	transports/mailbox_bad_peer_test.cc \
	transports/mailbox_test.cc \
	transports/match_index_test.cc \
	transports/message_conformance.cc \
	transports/message_conformance.h \
	transports/past_calls_test.cc \
	transports/port_factory_test.cc \
	transports/sim/sim_domain_test.cc \
	transports/sim/sim_port_test.cc \
	transports/tcp/outbound_test.cc \
	transports/tcp/tcp_bad_peer_test.cc \
	transports/tcp/tcp_breaks_test.cc \
	transports/tcp/tcp_fixture_test.h \
	transports/tcp/tcp_leaving_test.cc \
	transports/tcp/tcp_port_test.cc \
	transports/tcp/tcp_streams_test.cc \
	transports/tcp/tcp_unauthenticated_test.cc

transports_tests += \
	transports/host/fence_test.cc \
	transports/host/host_conformance.cc \
	transports/host/host_conformance.h \
	transports/host/memfd_domain_test.cc \
	transports/host/segment_test.cc
