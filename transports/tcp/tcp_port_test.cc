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
