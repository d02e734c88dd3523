#include "base/sim/sim_net.h"

#include "base/io/clock_conformance.h"
#include "base/io/net_conformance.h"
#include "base/io/nobody_listens.h"
#include "base/sim/sim_fixture.h"

namespace aiacc::io {
INSTANTIATE_TYPED_TEST_SUITE_P(Sim, ClockConformance, sim::SimFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(Sim, NetConformance, sim::SimFixture);
}  // namespace aiacc::io

namespace aiacc::sim {
namespace {

using io::net_conformance::Bytes;
using io::net_conformance::pattern;

// Two processes on two hosts with a stream between them.
struct TwoHosts {
  explicit TwoHosts(StreamModel model = {}) : network(world, model) {
    listener = there_net.listen(io::Address::tcp("192.0.2.7", 0));
    Task<std::unique_ptr<io::Stream>> connecting = here_net.connect(listener->address(), stop);
    connecting.start();
    world.run_while_not([&] { return connecting.done(); });
    client = connecting.take();
    Task<std::unique_ptr<io::Stream>> accepting = listener->accept(stop);
    accepting.start();
    world.run_while_not([&] { return accepting.done(); });
    server = accepting.take();
  }

  World world{5};
  SimNetwork network;
  SimLoop here{world, "here"}, there{world, "there"};
  SimNet here_net{network, here, 0, {1000, 1}}, there_net{network, there, 1, {1000, 2}};
  Stop stop;
  std::unique_ptr<io::Listener> listener;
  std::unique_ptr<io::Stream> client, server;
};

TEST(SimNet, AStreamTakesItsLatencyAndItsBandwidth) {
  TwoHosts hosts;
  const Instant began = hosts.world.now();
  Bytes into(125'000);
  Task<void> write = io::net_conformance::write_bytes(*hosts.client, pattern(125'000, 1), hosts.stop);
  Task<bool> read = io::net_conformance::read_full(*hosts.server, into, hosts.stop);
  write.start();
  read.start();
  hosts.world.run_while_not([&] { return read.done(); });
  EXPECT_EQ(hosts.world.now() - began, std::chrono::microseconds(100 + 30));
}

TEST(SimNet, ACapIsOfOneStream) {
  TwoHosts hosts;
  hosts.network.cap(0, 1, 0, 125'000'000);
  const Instant began = hosts.world.now();
  Bytes into(125'000);
  Task<void> write = io::net_conformance::write_bytes(*hosts.client, pattern(125'000, 1), hosts.stop);
  Task<bool> read = io::net_conformance::read_full(*hosts.server, into, hosts.stop);
  write.start();
  read.start();
  hosts.world.run_while_not([&] { return read.done(); });
  EXPECT_EQ(hosts.world.now() - began, std::chrono::microseconds(1000 + 30));
}

// The bytes pass the limit of their stream, and then the line at which the host sends.
TEST(SimNet, AllStreamsOfAHostShareItsLine) {
  StreamModel model;
  model.host_bytes_per_second = 1'000'000'000;
  TwoHosts hosts(model);
  hosts.network.cap_next({500'000'000});
  Task<std::unique_ptr<io::Stream>> connecting = hosts.here_net.connect(hosts.listener->address(), hosts.stop);
  connecting.start();
  hosts.world.run_while_not([&] { return connecting.done(); });
  const std::unique_ptr<io::Stream> second = connecting.take();
  Task<std::unique_ptr<io::Stream>> accepting = hosts.listener->accept(hosts.stop);
  accepting.start();
  hosts.world.run_while_not([&] { return accepting.done(); });
  const std::unique_ptr<io::Stream> its_end = accepting.take();
  const Instant began = hosts.world.now();
  Bytes into[2] = {Bytes(10'000), Bytes(10'000)};
  Task<void> write[2] = {io::net_conformance::write_bytes(*hosts.client, pattern(10'000, 1), hosts.stop),
                         io::net_conformance::write_bytes(*second, pattern(10'000, 1), hosts.stop)};
  Task<bool> read[2] = {io::net_conformance::read_full(*hosts.server, into[0], hosts.stop),
                        io::net_conformance::read_full(*its_end, into[1], hosts.stop)};
  for (auto& each : write) each.start();
  for (auto& each : read) each.start();
  hosts.world.run_while_not([&] { return read[0].done(); });
  EXPECT_EQ(hosts.world.now() - began, std::chrono::microseconds(8 + 10 + 30));
  hosts.world.run_while_not([&] { return read[1].done(); });
  EXPECT_EQ(hosts.world.now() - began, std::chrono::microseconds(20 + 10 + 30));
}

TEST(SimNet, ACutLinkDelaysAndHarmsNothing) {
  TwoHosts hosts;
  Bytes into(1000);
  hosts.network.cut(0, 1);
  Task<void> write = io::net_conformance::write_bytes(*hosts.client, pattern(1000, 1), hosts.stop);
  Task<bool> read = io::net_conformance::read_full(*hosts.server, into, hosts.stop);
  write.start();
  read.start();
  hosts.world.run_until(Instant(std::chrono::seconds(20)));
  EXPECT_FALSE(read.done());
  hosts.network.heal(1, 0);
  ASSERT_TRUE(hosts.world.run_while_not([&] { return read.done(); }));
  EXPECT_EQ(into, pattern(1000, 1));
  hosts.network.cut(0, 1);
  Task<void> connecting = io::net_conformance::discard_connect(hosts.here_net, hosts.listener->address());
  connecting.start();
  ASSERT_TRUE(hosts.world.run_while_not([&] { return connecting.done(); }));
  EXPECT_THROW(connecting.take(), Error);
}

TEST(SimNet, ARefusalComesOverTheLinkToo) {
  TwoHosts hosts;
  const io::Address address = hosts.listener->address();
  hosts.listener.reset();
  const auto connect = [&] {
    Task<std::unique_ptr<io::Stream>> connecting = hosts.here_net.connect(address, hosts.stop);
    connecting.start();
    hosts.world.run_while_not([&] { return connecting.done(); });
    connecting.take();
  };
  EXPECT_THROW(connect(), io::NobodyListens);
  hosts.network.cut(0, 1);
  try {
    connect();
    ADD_FAILURE() << "there is nobody";
  } catch (const io::NobodyListens& error) {
    ADD_FAILURE() << error.message();
  } catch (const Error&) {
  }
  hosts.network.heal(0, 1);
  EXPECT_THROW(connect(), io::NobodyListens);
}

TEST(SimNet, AStreamThatBreaksGivesWhatCameBefore) {
  TwoHosts hosts;
  hosts.network.break_next(600);
  Task<std::unique_ptr<io::Stream>> connecting = hosts.here_net.connect(hosts.listener->address(), hosts.stop);
  connecting.start();
  hosts.world.run_while_not([&] { return connecting.done(); });
  const std::unique_ptr<io::Stream> client = connecting.take();
  Task<std::unique_ptr<io::Stream>> accepting = hosts.listener->accept(hosts.stop);
  accepting.start();
  hosts.world.run_while_not([&] { return accepting.done(); });
  const std::unique_ptr<io::Stream> server = accepting.take();

  Bytes into(2000), other(1);
  Task<bool> listening = io::net_conformance::read_full(*client, other, hosts.stop);
  listening.start();
  Task<void> write = io::net_conformance::write_bytes(*client, pattern(1000, 1), hosts.stop);
  write.start();
  EXPECT_TRUE(write.done()) << "the window takes it";
  Task<std::size_t> read = io::net_conformance::read_once(*server, into, hosts.stop);
  read.start();
  ASSERT_TRUE(hosts.world.run_while_not([&] { return read.done() && listening.done(); }));
  EXPECT_EQ(read.take(), 600u);
  EXPECT_TRUE(std::equal(into.begin(), into.begin() + 600, pattern(1000, 1).begin()));
  EXPECT_THROW(listening.take(), Error);
  Task<std::size_t> again = io::net_conformance::read_once(*server, into, hosts.stop);
  again.start();
  ASSERT_TRUE(again.done());
  EXPECT_THROW(again.take(), Error);
  Task<void> late = io::net_conformance::write_bytes(*server, pattern(10, 1), hosts.stop);
  late.start();
  ASSERT_TRUE(late.done());
  EXPECT_THROW(late.take(), Error);
}

TEST(SimNet, ADeathClosesStreamsAndListeners) {
  TwoHosts hosts;
  Bytes into(10);
  Task<std::size_t> read = io::net_conformance::read_once(*hosts.client, into, hosts.stop);
  read.start();
  hosts.world.kill(hosts.there.node());
  ASSERT_TRUE(hosts.world.run_while_not([&] { return read.done(); }));
  EXPECT_EQ(read.take(), 0u);
  Task<void> connecting = io::net_conformance::discard_connect(hosts.here_net, hosts.listener->address());
  connecting.start();
  ASSERT_TRUE(hosts.world.run_while_not([&] { return connecting.done(); }));
  EXPECT_THROW(connecting.take(), Error);
}

}  // namespace
}  // namespace aiacc::sim
