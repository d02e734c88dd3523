// How a port reaches its peers: by which of their addresses, what stands in the way, and which of them are lost.
#include <gtest/gtest.h>

#include "transports/tcp/tcp_fixture_test.h"
#include "transports/tcp/tcp_port.h"

namespace aiacc::tcp_test {
namespace {

using message_conformance::Completion;
using message_conformance::header_of;
using message_conformance::pattern;
using message_conformance::Recorder;

TEST(TcpReaching, BothEndsMayDialAtTheSameTime) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SimTcp net(2, seed);
    Recorder receiver[2];
    Completion told;
    std::vector<std::byte> bytes = pattern(100, 3);
    for (int rank = 0; rank < 2; ++rank) net.port(rank).set_receiver(receiver[rank]);
    for (std::uint32_t tag = 0; tag < 20; ++tag) {
      for (int rank = 0; rank < 2; ++rank) post(net.port(rank), 1 - rank, header_of(tag, bytes.size()), bytes, told);
    }
    ASSERT_TRUE(net.run_until([&] { return receiver[0].placed == 20 && receiver[1].placed == 20; })) << seed;
    for (const Recorder& each : receiver) {
      for (std::uint32_t tag = 0; tag < 20; ++tag) EXPECT_EQ(each.asked[tag], tag) << seed;
      EXPECT_TRUE(each.lost.empty());
    }
    EXPECT_EQ(net.port(0).refused() + net.port(1).refused(), 0u)
        << seed << ": a rank was taken for an unauthenticated peer";
  }
}

TEST(TcpReaching, WhoCannotBeReachedIsNamedWithEachAddressAndItsReason) {
  SimTcp net(2);
  Recorder receiver;
  Completion told;
  net.port(0).set_receiver(receiver);
  net.lose(1);
  post(net.port(0), 1, header_of(1, 0), *std::make_unique<std::vector<std::byte>>(), told);
  ASSERT_TRUE(net.run_until([&] { return receiver.lost.size() == 1; }));
  const std::string& text = receiver.lost[0].second.message();
  EXPECT_NE(text.find("rank 0 on host 0 cannot reach rank 1 on host 1"), std::string::npos) << text;
  EXPECT_NE(text.find("cannot connect to " + net.addresses[1].text() + ": nobody listens there"), std::string::npos)
      << text;
  EXPECT_NE(text.find("in 2.0 s"), std::string::npos) << text;
}

TEST(TcpReaching, ASilentHostIsNamedAndNotLostHoweverLongItLasts) {
  SimTcp net(2);
  Recorder receiver[2];
  Completion told;
  for (int rank = 0; rank < 2; ++rank) net.port(rank).set_receiver(receiver[rank]);
  net.network.cut(0, 1);
  std::vector<std::byte> nothing;
  post(net.port(0), 1, header_of(1, 0), nothing, told);
  net.world.run_until(Instant(std::chrono::hours(1)));
  EXPECT_TRUE(receiver[0].lost.empty());
  const std::string text = net.port(0).obstacle(1);
  EXPECT_NE(text.find(net.addresses[1].text() + ": no answer within "), std::string::npos) << text;
  net.network.heal(0, 1);
  EXPECT_TRUE(net.run_until([&] { return receiver[1].placed == 1; })) << "and nothing is missing";
}

// One of its addresses leads elsewhere, to a host where nobody listens at this port.
TEST(TcpReaching, ARefusalOfAnotherHostIsNotTheEndOfThePeer) {
  SimTcp net(3);
  Recorder receiver[2];
  Completion told;
  TcpPort::Settings settings = settings_of(0, net.addresses, net.hosts[0]->entropy, std::chrono::seconds(2));
  settings.peers[1].addresses = {net.addresses[2], net.addresses[1]};
  SimTcp::HostOf fourth(net, 3);
  TcpPort port(fourth.loop, fourth.net, fourth.net.listen(io::Address::tcp("192.0.2.9", 0)), std::move(settings));
  net.lose(2);
  port.set_receiver(receiver[0]);
  net.port(1).set_receiver(receiver[1]);
  net.network.cut(3, 1);
  std::vector<std::byte> bytes = pattern(10, 1);
  post(port, 1, header_of(1, bytes.size()), bytes, told);
  net.world.run_until(Instant(std::chrono::seconds(100)));
  EXPECT_TRUE(receiver[0].lost.empty());
  net.lose(1);
  net.network.heal(3, 1);
  const Instant healed = net.world.now();
  ASSERT_TRUE(net.run_until([&] { return receiver[0].lost.size() == 1; })) << "both refuse";
  EXPECT_GE(net.world.now(), after(healed, std::chrono::seconds(2)));
  port.close();
}

TEST(TcpReaching, AnAddressThatDoesNotAnswerCostsNoMoreThanItsTurn) {
  sim::World world{1};
  sim::SimNetwork network{world};
  sim::SimLoop here{world, "here"}, there{world, "there"};
  sim::SimNet here_net{network, here, 0, {1000, 1}}, there_net{network, there, 1, {1000, 2}},
      cut_net{network, there, 2, {1000, 2}};
  sim::SimEntropy here_entropy{world, here.node()}, there_entropy{world, there.node()};
  network.cut(0, 2);
  std::unique_ptr<io::Listener> mine = here_net.listen(io::Address::tcp("192.0.2.1", 0));
  std::unique_ptr<io::Listener> theirs = there_net.listen(io::Address::tcp("192.0.2.2", 0));
  const std::unique_ptr<io::Listener> behind_a_cut = cut_net.listen(io::Address::tcp("192.0.2.3", 0));
  const std::vector<io::Address> addresses{mine->address(), theirs->address()};
  TcpPort::Settings settings = settings_of(0, addresses, here_entropy, std::chrono::seconds(30));
  settings.peers[1].addresses = {behind_a_cut->address(), theirs->address()};
  TcpPort port(here, here_net, std::move(mine), std::move(settings));
  TcpPort other(there, there_net, std::move(theirs),
                settings_of(1, addresses, there_entropy, std::chrono::seconds(30)));
  Recorder receiver[2];
  port.set_receiver(receiver[0]);
  other.set_receiver(receiver[1]);
  Completion told;
  std::vector<std::byte> bytes = pattern(10, 1);
  post(port, 1, header_of(1, bytes.size()), bytes, told);
  ASSERT_TRUE(
      world.run_while_not([&] { return receiver[1].placed == 1 || world.now() > Instant(std::chrono::seconds(9)); }));
  EXPECT_LT(world.now().time_since_epoch(), std::chrono::milliseconds(60));
}

TEST(TcpReaching, WhatStandsInTheWayIsKnownWhileThePeerIsNotLost) {
  SimTcp net(2);
  Recorder receiver[2];
  Completion told;
  for (int rank = 0; rank < 2; ++rank) net.port(rank).set_receiver(receiver[rank]);
  EXPECT_EQ(net.port(0).obstacle(1), "");
  net.network.cut(0, 1);
  post(net.port(0), 1, header_of(1, 0), *std::make_unique<std::vector<std::byte>>(), told);
  const Instant soon = after(net.world.now(), std::chrono::milliseconds(1500));
  ASSERT_TRUE(net.run_until([&] { return net.world.now() >= soon; }));
  EXPECT_TRUE(receiver[0].lost.empty());
  const std::string text = net.port(0).obstacle(1);
  EXPECT_EQ(text.find("rank 0 on host 0 cannot reach rank 1 on host 1 ("), 0u) << text;
  EXPECT_NE(text.find(net.addresses[1].text() + ": no answer within "), std::string::npos) << text;
  EXPECT_EQ(net.port(1).obstacle(0), "") << "it has nothing to say to it";
  EXPECT_EQ(net.port(0).obstacle(0), "");
}

TEST(TcpReaching, ABrokenPathIsKnownFromItsBeginningUntilItIsMended) {
  SimTcp net(2);
  Recorder receiver[2];
  Completion told[2];
  for (int rank = 0; rank < 2; ++rank) net.port(rank).set_receiver(receiver[rank]);
  std::vector<std::byte> nothing;
  post(net.port(0), 1, header_of(1, 0), nothing, told[0]);
  ASSERT_TRUE(net.run_until([&] { return receiver[1].placed == 1; }));
  EXPECT_FALSE(net.port(0).broken_path(1));
  net.network.cut(0, 1);
  const Instant broke = net.world.now();
  net.network.break_streams(0, 1);
  ASSERT_TRUE(net.run_until([&] { return net.world.now() >= after(broke, std::chrono::milliseconds(1500)); }));
  for (const int rank : {0, 1}) {
    const std::optional<BrokenPath> path = net.port(rank).broken_path(1 - rank);
    ASSERT_TRUE(path);
    EXPECT_LE(path->since, after(broke, std::chrono::milliseconds(2)));
    EXPECT_EQ(path->ends.find("rank 0 on host 0"), 0u) << path->ends;
    EXPECT_NE(path->ends.find(" and rank 1 on host 1"), std::string::npos) << path->ends;
    EXPECT_NE(path->ends.find(net.addresses[static_cast<std::size_t>(1 - rank)].text()), std::string::npos)
        << path->ends;
    EXPECT_NE(path->reason.find(": no answer within "), std::string::npos) << path->reason;
    EXPECT_GE(receiver[rank].broken, 1);
  }
  net.network.heal(0, 1);
  post(net.port(0), 1, header_of(2, 0), nothing, told[1]);
  ASSERT_TRUE(net.run_until([&] { return receiver[1].placed == 2; }));
  EXPECT_FALSE(net.port(0).broken_path(1));
}

// Its system takes the connection, as it does for a rank that computes.
TEST(TcpReaching, AProcessThatAnswersNothingIsNoBrokenPath) {
  SimTcp net(2);
  Recorder receiver[2];
  Completion told;
  for (int rank = 0; rank < 2; ++rank) net.port(rank).set_receiver(receiver[rank]);
  net.world.freeze(net.hosts[1]->loop.node());
  std::vector<std::byte> nothing;
  post(net.port(0), 1, header_of(1, 0), nothing, told);
  const Instant began = net.world.now();
  net.world.run_until(after(began, std::chrono::seconds(60)));
  const std::optional<BrokenPath> path = net.port(0).broken_path(1);
  EXPECT_TRUE(!path || path->since > after(began, std::chrono::seconds(30)));
  EXPECT_TRUE(receiver[0].lost.empty());
}

TEST(TcpReaching, ALossBeforeThereIsAReceiverIsToldWhenThereIs) {
  SimTcp net(2);
  Recorder receiver;
  net.port(0).lose(1, std::make_exception_ptr(Error(Code::kPeerFailed, "its agent says so", 1)));
  net.run_until([] { return false; });
  net.port(0).set_receiver(receiver);
  EXPECT_TRUE(receiver.lost.empty()) << "told from inside";
  ASSERT_TRUE(net.run_until([&] { return receiver.lost.size() == 1; }));
  EXPECT_EQ(receiver.lost[0].second.message(), "its agent says so");
}

TEST(TcpReaching, WhoWasGivenUpIsToldSoAndTriesNoMore) {
  SimTcp net(2);
  Recorder receiver[2];
  Completion told;
  for (int rank = 0; rank < 2; ++rank) net.port(rank).set_receiver(receiver[rank]);
  net.port(0).lose(1, std::make_exception_ptr(Error(Code::kPeerFailed, "rank 1 was silent for too long", 1)));
  ASSERT_TRUE(net.run_until([&] { return receiver[0].lost.size() == 1; }));
  std::vector<std::byte> bytes = pattern(100'000, 1);
  post(net.port(1), 0, header_of(1, bytes.size()), bytes, told);
  ASSERT_TRUE(net.run_until([&] { return told.told == 1 && receiver[1].lost.size() == 1; }));
  EXPECT_NE(receiver[1].lost[0].second.message().find("it has given this rank up for lost"), std::string::npos)
      << receiver[1].lost[0].second.message();
  EXPECT_LT(net.world.now().time_since_epoch(), std::chrono::milliseconds(100)) << "it went on until its limit";
}

TEST(TcpReaching, ARankThatIsStoppedIsNotLost) {
  SimTcp net(2);
  Recorder receiver[2];
  Completion told;
  for (int rank = 0; rank < 2; ++rank) net.port(rank).set_receiver(receiver[rank]);
  std::vector<std::byte> bytes = pattern(100'000, 1);
  net.world.freeze(net.hosts[1]->loop.node());
  post(net.port(0), 1, header_of(1, bytes.size()), bytes, told);
  net.world.run_until(Instant(std::chrono::seconds(300)));
  EXPECT_TRUE(receiver[0].lost.empty()) << receiver[0].lost[0].second.message();
  net.world.thaw(net.hosts[1]->loop.node());
  ASSERT_TRUE(net.run_until([&] { return receiver[1].placed == 1 && told.told == 1; }));
  EXPECT_LT(net.world.now().time_since_epoch(), std::chrono::seconds(301));
  EXPECT_EQ(net.port(1).refused(), 0u) << "a rank that had waited long was taken for an unauthenticated peer";
}

// For 3, 6, 12, 24 and then up to 60 s: its system keeps each connection until it looks.
TEST(TcpReaching, ARankThatIsStoppedIsDialledLessAndLessOften) {
  SimTcp net(2, 42, Encryption::kNone, Duration::zero());
  Recorder receiver;
  Completion told;
  net.port(0).set_receiver(receiver);
  std::vector<std::byte> bytes = pattern(100'000, 1);
  net.world.freeze(net.hosts[1]->loop.node());
  post(net.port(0), 1, header_of(1, bytes.size()), bytes, told);
  net.world.run_until(Instant(std::chrono::seconds(60)));
  net.lose(1);
  ASSERT_TRUE(net.run_until([&] { return receiver.lost.size() == 1; }));
  EXPECT_NE(receiver.lost[0].second.message().find("(6 attempts in 60.2 s)"), std::string::npos)
      << receiver.lost[0].second.message();
}

TEST(TcpReaching, WhoIsToldOfALossStopsTrying) {
  SimTcp net(2);
  Recorder receiver;
  Completion told;
  net.port(0).set_receiver(receiver);
  net.lose(1);
  std::vector<std::byte> bytes = pattern(100'000, 1);
  post(net.port(0), 1, header_of(1, bytes.size()), bytes, told);
  net.port(0).lose(1, std::make_exception_ptr(Error(Code::kPeerFailed, "rank 1 was killed by signal 9", 1)));
  EXPECT_TRUE(receiver.lost.empty()) << "told from inside lose()";
  ASSERT_TRUE(net.run_until([&] { return receiver.lost.size() == 1 && told.told == 1; }));
  EXPECT_LT(net.world.now().time_since_epoch(), std::chrono::milliseconds(1));
  EXPECT_EQ(receiver.lost[0].second.message(), "rank 1 was killed by signal 9");
  EXPECT_EQ(as_error(told.error).message(), "rank 1 was killed by signal 9");
}

}  // namespace
}  // namespace aiacc::tcp_test
