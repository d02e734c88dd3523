#include "transports/tcp/tcp_port.h"

#include <gtest/gtest.h>

#include "transports/tcp/frame.h"
#include "transports/tcp/tcp_fixture_test.h"

namespace aiacc::message_conformance {
INSTANTIATE_TEST_SUITE_P(TcpSim, MessageConformance, ::testing::Values(&make<tcp_test::SimTcp>));
INSTANTIATE_TEST_SUITE_P(TcpReal, MessageConformance, ::testing::Values(&make<tcp_test::RealTcp>));
INSTANTIATE_TEST_SUITE_P(TcpSealedSim, MessageConformance, ::testing::Values(&make<tcp_test::SealedSimTcp>));
INSTANTIATE_TEST_SUITE_P(TcpSealedReal, MessageConformance, ::testing::Values(&make<tcp_test::SealedRealTcp>));
INSTANTIATE_TEST_SUITE_P(TcpProvedSim, MessageConformance, ::testing::Values(&make<tcp_test::ProvedSimTcp>));
INSTANTIATE_TEST_SUITE_P(TcpProvedReal, MessageConformance, ::testing::Values(&make<tcp_test::ProvedRealTcp>));
INSTANTIATE_TEST_SUITE_P(TcpReal6, MessageConformance, ::testing::Values(&make<tcp_test::RealTcp6>));
INSTANTIATE_TEST_SUITE_P(TcpImmediateSim, MessageConformance,
                         ::testing::Values(&make<tcp_test::Immediate<tcp_test::SimTcp>>));
INSTANTIATE_TEST_SUITE_P(TcpImmediateReal, MessageConformance,
                         ::testing::Values(&make<tcp_test::Immediate<tcp_test::RealTcp>>));
}  // namespace aiacc::message_conformance

namespace aiacc::tcp_test {
namespace {

using message_conformance::Action;
using message_conformance::Completion;
using message_conformance::header_of;
using message_conformance::pattern;
using message_conformance::Recorder;

TEST(TcpPort, UrgentMessagesOvertakeBulkThatWaits) {
  SimTcp net;
  Recorder sender, receiver;
  Completion told;
  net.port(0).set_receiver(sender);
  net.port(1).set_receiver(receiver);
  std::vector<std::byte> bulk = pattern(1 << 20, 1), small = pattern(10, 2);
  for (std::uint32_t tag = 0; tag < 8; ++tag) post(net.port(0), 1, header_of(tag, bulk.size()), bulk, told);
  ASSERT_TRUE(net.run_until([&] { return receiver.placed == 2; }));
  post(net.port(0), 1, header_of(100, small.size(), TrafficClass::kControl), small, told);
  ASSERT_TRUE(net.run_until([&] { return receiver.placed == 9; }));
  std::size_t place = 0;
  while (receiver.asked[place] != 100) ++place;
  EXPECT_LE(place, 4u) << "it waited for more than what was under way";
}

TEST(TcpPort, WhatDoesNotFitWhenItLeavesAtOnceFollows) {
  SimTcp net(2);
  Recorder sender, receiver;
  Completion told;
  net.port(0).set_receiver(sender);
  net.port(1).set_receiver(receiver);
  std::vector<std::byte> small = pattern(10, 1), large = pattern(4 << 20, 2);
  post(net.port(0), 1, header_of(1, small.size()), small, told);
  ASSERT_TRUE(net.run_until([&] { return receiver.placed == 1; }));
  const Buffer piece{large.data(), large.size()};
  net.port(0).post_now(1, header_of(2, piece.bytes), std::span(&piece, 1), told);
  ASSERT_TRUE(net.run_until([&] { return receiver.placed == 2 && told.told == 2; }));
  EXPECT_TRUE(receiver.messages.back().bytes == large);
}

TEST(TcpPort, CountsWhatEachConnectionCarriesAlikeAtBothEnds) {
  SimTcp net(3);
  Recorder recorders[3];
  Completion told;
  for (int rank = 0; rank < 3; ++rank) net.port(rank).set_receiver(recorders[rank]);
  const auto counted = [&](int rank) {
    std::vector<ConnectionTraffic> found;
    net.port(rank).count_traffic(found);
    return found;
  };
  EXPECT_TRUE(counted(0).empty()) << "there is no connection";
  std::vector<std::byte> small = pattern(10, 1), large = pattern(4 << 20, 2);
  post(net.port(0), 1, header_of(1, small.size()), small, told);
  post(net.port(0), 1, header_of(2, large.size()), large, told);
  ASSERT_TRUE(net.run_until([&] { return recorders[1].placed == 2 && told.told == 2; }));
  const auto sender = counted(0), receiver = counted(1);
  ASSERT_EQ(sender.size(), 1u);
  ASSERT_EQ(receiver.size(), 1u);
  EXPECT_EQ(sender[0].rank, 1);
  EXPECT_EQ(receiver[0].rank, 0);
  EXPECT_EQ(sender[0].number, receiver[0].number);
  EXPECT_EQ(sender[0].sent, receiver[0].received);
  EXPECT_EQ(sender[0].received, receiver[0].sent);
  EXPECT_GE(sender[0].sent, large.size() + small.size());
  EXPECT_LT(sender[0].sent, large.size() + (16u << 10)) << "frames are short beside what they carry";
  EXPECT_TRUE(counted(2).empty());
}

// The other end keeps a copy of each until then. Of less it waits for more.
TEST(TcpPort, ManyBytesAreAcknowledgedWithWhatIsSentAnyway) {
  const auto sent_by_the_receiver = [](std::size_t length) {
    SimTcp net(2);
    Recorder recorders[2];
    Completion told;
    for (int rank = 0; rank < 2; ++rank) net.port(rank).set_receiver(recorders[rank]);
    std::vector<std::byte> bytes = pattern(length, 1), answer = pattern(10, 2);
    post(net.port(0), 1, header_of(1, length), bytes, told);
    EXPECT_TRUE(net.run_until([&] { return recorders[1].placed == 1; }));
    const auto sent = [&net] {
      std::vector<ConnectionTraffic> found;
      net.port(1).count_traffic(found);
      return found.at(0).sent;
    };
    const std::uint64_t before = sent();
    post(net.port(1), 0, header_of(2, answer.size()), answer, told);
    EXPECT_TRUE(net.run_until([&] { return recorders[0].placed == 1; }));
    return sent() - before;
  };
  const std::uint64_t answer = sent_by_the_receiver(TcpPort::kCopyBytes);
  EXPECT_EQ(sent_by_the_receiver(TcpPort::kCopyBytes + 1), answer + tcp::kFrameBytes);
  EXPECT_EQ(sent_by_the_receiver(TcpPort::kKeptBytes), answer + tcp::kFrameBytes);
}

TEST(TcpPort, BothEndsMayDialAtTheSameTime) {
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

TEST(TcpPort, WhoCannotBeReachedIsNamedWithEachAddressAndItsReason) {
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

TEST(TcpPort, ASilentHostIsNamedAndNotLostHoweverLongItLasts) {
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
TEST(TcpPort, ARefusalOfAnotherHostIsNotTheEndOfThePeer) {
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

TEST(TcpPort, AnAddressThatDoesNotAnswerCostsNoMoreThanItsTurn) {
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

TEST(TcpPort, WhatStandsInTheWayIsKnownWhileThePeerIsNotLost) {
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

TEST(TcpPort, ABrokenPathIsKnownFromItsBeginningUntilItIsMended) {
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
TEST(TcpPort, AProcessThatAnswersNothingIsNoBrokenPath) {
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

TEST(TcpPort, AnUnauthenticatedPeerAtAnAddressIsPassedBy) {
  SimTcp net(3);
  Recorder receiver[2];
  Completion told;
  // Where rank 2 listens somebody of another job answers first.
  TcpPort::Settings settings = settings_of(0, net.addresses, net.hosts[0]->entropy, std::chrono::seconds(2));
  settings.peers[1].addresses = {net.addresses[2], net.addresses[1]};
  SimTcp::HostOf fourth(net, 3);
  settings.rank = 0;
  TcpPort port(fourth.loop, fourth.net, fourth.net.listen(io::Address::tcp("192.0.2.9", 0)), std::move(settings));
  Recorder third;
  net.port(2).set_receiver(third);
  port.set_receiver(receiver[0]);
  net.port(1).set_receiver(receiver[1]);
  std::vector<std::byte> bytes = pattern(10, 1);
  post(port, 1, header_of(1, bytes.size()), bytes, told);
  ASSERT_TRUE(net.run_until([&] { return receiver[1].placed == 1; }));
  EXPECT_TRUE(third.messages.empty());
  port.close();
}

// It takes the proof of this rank and has none of its own: the other addresses come first from then on.
TEST(TcpPort, WhoTakesAProofAndGivesNoneKeepsNobodyFromThePeer) {
  SimTcp net(3);
  Recorder receiver[2];
  Completion told;
  SimTcp::HostOf fifth(net, 4);
  TcpPort::Settings theirs = settings_of(1, net.addresses, fifth.entropy, std::chrono::seconds(2));
  theirs.secret = secret_of(2);
  std::unique_ptr<io::Listener> trap = fifth.net.listen(io::Address::tcp("192.0.2.8", 0));
  TcpPort::Settings settings = settings_of(0, net.addresses, net.hosts[0]->entropy, std::chrono::seconds(2));
  settings.peers[1].addresses = {trap->address(), net.addresses[1]};
  TcpPort other(fifth.loop, fifth.net, std::move(trap), std::move(theirs));
  Recorder deceived;
  other.set_receiver(deceived);
  SimTcp::HostOf fourth(net, 3);
  TcpPort port(fourth.loop, fourth.net, fourth.net.listen(io::Address::tcp("192.0.2.9", 0)), std::move(settings));
  port.set_receiver(receiver[0]);
  net.port(1).set_receiver(receiver[1]);
  std::vector<std::byte> bytes = pattern(10, 1);
  post(port, 1, header_of(1, bytes.size()), bytes, told);
  ASSERT_TRUE(net.run_until([&] { return receiver[1].placed == 1; }));
  EXPECT_LT(net.world.now().time_since_epoch(), std::chrono::milliseconds(200));
  EXPECT_EQ(deceived.placed, 0u);
  port.close();
  other.close();
}

TEST(TcpPort, WhoEncryptsAndWhoDoesNotSayTheSame) {
  for (int encrypting : {0, 1}) {
    for (int speaking : {0, 1}) {
      SimTcp net(2);
      net.port(encrypting).encrypt();
      Recorder receiver[2];
      Completion told;
      for (int rank = 0; rank < 2; ++rank) net.port(rank).set_receiver(receiver[rank]);
      post(net.port(speaking), 1 - speaking, header_of(1, 0), *std::make_unique<std::vector<std::byte>>(), told);
      ASSERT_TRUE(net.run_until([&] {
        // What an end knows it tells before anything else happens: the other one may exit for it.
        const std::optional<BrokenPath> path = net.port(speaking).broken_path(1 - speaking);
        EXPECT_TRUE(!path || path->reason.find("AIACC_ENCRYPT") == std::string::npos) << path->reason;
        return receiver[0].lost.size() == 1 && receiver[1].lost.size() == 1;
      }));
      const std::string sentence = "rank " + std::to_string(encrypting) + " on host " + std::to_string(encrypting) +
                                   " encrypts its messages and rank " + std::to_string(1 - encrypting) + " on host " +
                                   std::to_string(1 - encrypting) +
                                   " does not: give AIACC_ENCRYPT the same value on all ranks";
      for (int rank = 0; rank < 2; ++rank) {
        EXPECT_EQ(receiver[rank].lost[0].first, 1 - rank);
        EXPECT_EQ(receiver[rank].lost[0].second.message(), sentence);
      }
      EXPECT_EQ(net.port(0).refused() + net.port(1).refused(), 0u) << "no unauthenticated peer";
    }
  }
}

TEST(TcpPort, WhoAuthenticatesAndWhoDoesNotOrEncryptsSayTheSame) {
  for (const bool encrypts : {false, true}) {
    SimTcp net(2);
    net.port(0).authenticate();
    if (encrypts) net.port(1).encrypt();
    Recorder receiver[2];
    Completion told;
    for (int rank = 0; rank < 2; ++rank) net.port(rank).set_receiver(receiver[rank]);
    post(net.port(0), 1, header_of(1, 0), *std::make_unique<std::vector<std::byte>>(), told);
    ASSERT_TRUE(net.run_until([&] { return receiver[0].lost.size() == 1 && receiver[1].lost.size() == 1; }));
    const std::string sentence =
        encrypts ? "rank 1 on host 1 encrypts its messages and rank 0 on host 0 only authenticates them: give "
                   "AIACC_ENCRYPT the same value on all ranks"
                 : "rank 0 on host 0 authenticates its messages and rank 1 on host 1 does not: give AIACC_ENCRYPT the "
                   "same value on all ranks";
    for (const Recorder& each : receiver) EXPECT_EQ(each.lost[0].second.message(), sentence);
  }
}

TEST(TcpPort, WhatIsPostedBeforeThereIsAReceiverIsSentWhenThereIs) {
  SimTcp net(2);
  Recorder receiver[2];
  Completion told;
  std::vector<std::byte> bytes = pattern(100, 1);
  post(net.port(0), 1, header_of(1, bytes.size()), bytes, told);
  net.run_until([] { return false; });
  for (int rank = 0; rank < 2; ++rank) net.port(rank).set_receiver(receiver[rank]);
  ASSERT_TRUE(net.run_until([&] { return receiver[1].placed == 1 && told.told == 1; }));
}

TEST(TcpPort, ALossBeforeThereIsAReceiverIsToldWhenThereIs) {
  SimTcp net(2);
  Recorder receiver;
  net.port(0).lose(1, std::make_exception_ptr(Error(Code::kPeerFailed, "its agent says so", 1)));
  net.run_until([] { return false; });
  net.port(0).set_receiver(receiver);
  EXPECT_TRUE(receiver.lost.empty()) << "told from inside";
  ASSERT_TRUE(net.run_until([&] { return receiver.lost.size() == 1; }));
  EXPECT_EQ(receiver.lost[0].second.message(), "its agent says so");
}

TEST(TcpPort, AWithdrawnMessageThatIsBeingWrittenGoesOnFromACopy) {
  SimTcp net(2);
  Recorder receiver[2];
  for (int rank = 0; rank < 2; ++rank) net.port(rank).set_receiver(receiver[rank]);
  const std::vector<std::byte> original = pattern(3 << 20, 1);
  std::vector<std::byte> bytes = original;
  Completion told;
  const Buffer whole{bytes.data(), bytes.size()};
  const Buffer pieces[] = {whole.slice(0, 1 << 20), whole.slice(1 << 20, 100),
                           whole.slice((1 << 20) + 100, (2 << 20) - 100)};
  net.port(0).post(1, header_of(1, bytes.size()), pieces, told);
  ASSERT_TRUE(net.run_until([&] { return receiver[1].asked.size() == 1; }));
  net.port(0).withdraw(told);
  EXPECT_EQ(told.told, 0) << "told from inside withdraw()";
  ASSERT_TRUE(net.run_until([&] { return told.told == 1; }));
  EXPECT_EQ(as_error(told.error).code(), Code::kAborted);
  EXPECT_EQ(receiver[1].placed, 0u) << "it was all under way already";
  std::fill(bytes.begin(), bytes.end(), std::byte{0});
  ASSERT_TRUE(net.run_until([&] { return receiver[1].placed == 1; }));
  EXPECT_TRUE(receiver[1].messages.front().bytes == original);
}

// Closes the port from inside its completion, as an operation that ends a context may.
class ClosingCompletion final : public SendCompletion {
 public:
  explicit ClosingCompletion(MessagePort& port) : port_(port) {}
  void sent(std::exception_ptr) noexcept override {
    ++told;
    port_.close();
  }
  int told = 0;

 private:
  MessagePort& port_;
};

TEST(TcpPort, ACompletionMayCloseThePort) {
  for (const std::size_t length : {10, 100'000}) {
    SimTcp net(2);
    Recorder receiver[2];
    for (int rank = 0; rank < 2; ++rank) net.port(rank).set_receiver(receiver[rank]);
    std::vector<std::byte> bytes = pattern(length, 1);
    const Buffer piece{bytes.data(), bytes.size()};
    ClosingCompletion closing(net.port(0));
    for (std::uint32_t tag = 0; tag < 5; ++tag) {
      net.port(0).post(1, header_of(tag, length), std::span(&piece, 1), closing);
    }
    ASSERT_TRUE(net.run_until([&] { return closing.told > 0; }));
    net.run_until([] { return false; });
    EXPECT_EQ(closing.told, 1);
  }
}

TEST(TcpPort, WhoWasGivenUpIsToldSoAndTriesNoMore) {
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

TEST(TcpPort, ARankThatIsStoppedIsNotLost) {
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
TEST(TcpPort, ARankThatIsStoppedIsDialledLessAndLessOften) {
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

TEST(TcpPort, WhoIsToldOfALossStopsTrying) {
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

TEST(TcpPort, HeldBytesStopTheReadingAndReleaseGoesOn) {
  SimTcp net(2);
  Recorder sender, receiver;
  Completion told;
  net.port(0).set_receiver(sender);
  net.port(1).set_receiver(receiver);
  bool open = false;
  receiver.decide = [&](int, const MessageHeader&) { return open ? Action::kInto : Action::kHold; };
  std::vector<std::byte> bytes = pattern(200'000, 4);
  for (std::uint32_t tag = 0; tag < 40; ++tag) post(net.port(0), 1, header_of(tag, bytes.size()), bytes, told);
  EXPECT_FALSE(net.run_until([&] { return receiver.asked.size() > 7; })) << "more was held than may be";
  open = true;
  net.port(1).release(0);
  ASSERT_TRUE(net.run_until([&] { return receiver.placed == 40; }));
  for (const Recorder::Message& message : receiver.messages) EXPECT_TRUE(message.bytes == bytes);
}

TEST(TcpPort, AReleaseWhileAMessageArrivesIsNotForgotten) {
  SimTcp net(2);
  Recorder sender, receiver;
  Completion told;
  net.port(0).set_receiver(sender);
  net.port(1).set_receiver(receiver);
  bool open = false;
  receiver.decide = [&](int, const MessageHeader&) { return open ? Action::kInto : Action::kHold; };
  std::vector<std::byte> bytes = pattern(300'000, 4);
  post(net.port(0), 1, header_of(1, bytes.size()), bytes, told);
  ASSERT_TRUE(net.run_until([&] { return receiver.asked.size() == 1; }));
  open = true;
  net.port(1).release(0);
  ASSERT_TRUE(net.run_until([&] { return receiver.placed == 1; }));
  EXPECT_TRUE(receiver.messages.front().bytes == bytes);
}

}  // namespace
}  // namespace aiacc::tcp_test
