#include "transports/sim/sim_port.h"

#include <gtest/gtest.h>

#include "transports/message_conformance.h"

namespace aiacc::sim {
namespace {

using message_conformance::Completion;
using message_conformance::header_of;
using message_conformance::kRanks;
using message_conformance::pattern;
using message_conformance::Recorder;

ViewPtr world_of(int ranks) {
  std::vector<Member> members;
  for (int rank = 0; rank < ranks; ++rank) {
    members.push_back(Member{static_cast<std::uint32_t>(rank), 0, static_cast<std::uint32_t>(rank)});
  }
  return std::make_shared<const View>(1, 0, 0, 0, std::move(members));
}

struct SimPorts {
  SimPorts() {
    for (int rank = 0; rank < kRanks; ++rank) {
      loops.push_back(std::make_unique<SimLoop>(world, "rank " + std::to_string(rank)));
      ports.push_back(fabric.open(rank, *loops.back()));
    }
  }
  MessagePort& port(int rank) { return *ports[static_cast<std::size_t>(rank)]; }
  bool run_until(const std::function<bool()>& done) {
    const Instant end = after(world.now(), std::chrono::seconds(10));
    return world.run_while_not([&] { return done() || world.now() > end; }) && done();
  }
  void lose(int rank) { world.kill(loops[static_cast<std::size_t>(rank)]->node()); }

  World world{42};
  SimFabric fabric{world, world_of(kRanks)};
  std::vector<std::unique_ptr<SimLoop>> loops;
  std::vector<std::unique_ptr<SimPort>> ports;
};

TEST(SimPort, CostsWhatTheModelSays) {
  SimPorts net;
  Recorder receiver;
  Completion completion;
  net.port(1).set_receiver(receiver);
  std::vector<std::byte> bytes = pattern(12'500'000, 1);
  const Buffer piece{bytes.data(), bytes.size()};
  net.port(0).post(1, header_of(1, bytes.size()), std::span(&piece, 1), completion);
  ASSERT_TRUE(net.run_until([&] { return receiver.placed == 1; }));
  const auto ns = net.world.now().time_since_epoch().count();
  EXPECT_GE(ns, 1'000'000 + 5'000 + 400);
  EXPECT_LE(ns, 1'000'000 + 5'000 + 400 + 200 + 2'000);
}

TEST(SimPort, TwoSendersToOneReceiverShareItsWayIn) {
  SimPorts net;
  Recorder receiver;
  Completion completion;
  net.port(2).set_receiver(receiver);
  std::vector<std::byte> bytes = pattern(12'500'000, 1);
  const Buffer piece{bytes.data(), bytes.size()};
  for (int rank = 0; rank < 2; ++rank) {
    net.port(rank).post(2, header_of(1, bytes.size()), std::span(&piece, 1), completion);
  }
  ASSERT_TRUE(net.run_until([&] { return receiver.placed == 2; }));
  EXPECT_GE(net.world.now().time_since_epoch(), std::chrono::milliseconds(2));
}

TEST(SimPort, ACutLinkDeliversWhenItHealsAndLosesThePeerAfterTheLease) {
  SimPorts net;
  Recorder receiver, sender;
  Completion completion;
  net.port(0).set_receiver(sender);
  net.port(1).set_receiver(receiver);
  net.fabric.cut(0, 1);
  net.port(0).post(1, header_of(1, 0), {}, completion);
  net.world.run_until(Instant(std::chrono::seconds(29)));
  EXPECT_EQ(receiver.placed, 0u);
  net.fabric.heal(0, 1);
  ASSERT_TRUE(net.run_until([&] { return receiver.placed == 1; }));
  net.world.run_until(Instant(std::chrono::seconds(40)));
  EXPECT_TRUE(sender.lost.empty());
  net.fabric.cut(1, 0);
  net.world.run_until(Instant(std::chrono::seconds(71)));
  ASSERT_EQ(sender.lost.size(), 1u);
  ASSERT_EQ(receiver.lost.size(), 1u);
  EXPECT_EQ(sender.lost[0].second.message(), "rank 1 (rank 1) was silent for 30 s");
}

TEST(SimPort, AFrozenReceiverGetsItsMessagesWhenItThaws) {
  SimPorts net;
  Recorder receiver;
  Completion completion;
  net.port(1).set_receiver(receiver);
  net.world.freeze(net.loops[1]->node());
  for (std::uint32_t tag = 0; tag < 5; ++tag) net.port(0).post(1, header_of(tag, 0), {}, completion);
  net.world.run_until(Instant(std::chrono::seconds(100)));
  EXPECT_EQ(receiver.placed, 0u);
  net.world.thaw(net.loops[1]->node());
  ASSERT_TRUE(net.run_until([&] { return receiver.placed == 5; }));
  EXPECT_EQ(receiver.asked, (std::vector<std::uint32_t>{0, 1, 2, 3, 4}));
}

TEST(SimPort, MovesMessagesWithoutBytes) {
  SimPorts net;
  Recorder receiver;
  Completion completion;
  net.port(1).set_receiver(receiver);
  const Buffer piece{nullptr, 1 << 20};
  net.port(0).post(1, header_of(1, piece.bytes), std::span(&piece, 1), completion);
  ASSERT_TRUE(net.run_until([&] { return receiver.placed == 1; }));
}

}  // namespace
}  // namespace aiacc::sim

namespace aiacc::message_conformance {
INSTANTIATE_TEST_SUITE_P(Sim, MessageConformance, ::testing::Values(&make<sim::SimPorts>));
}  // namespace aiacc::message_conformance
