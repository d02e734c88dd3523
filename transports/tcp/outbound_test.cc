// What a peer is to get, without a connection: numbers, order, and whose memory is kept how long.
#include "transports/tcp/outbound.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/sim/sim_net.h"
#include "transports/message_conformance.h"

namespace aiacc::tcp {
namespace {

using message_conformance::Completion;
using message_conformance::header_of;
using message_conformance::pattern;

class OutboundTest : public testing::Test {
 protected:
  struct Port final : Shared {
    Port(Loop& its_loop, io::Net& its_net) : Shared(its_loop, its_net, TcpPort::Settings{}) {}
    void notify_later(Notification told) noexcept override { told.completion->sent(told.error); }
  };

  void add(std::uint32_t tag, std::size_t length, Completion& completion, TrafficClass traffic = TrafficClass::kBulk) {
    const Buffer piece{bytes_.data(), length};
    outbound_.add(header_of(tag, length, traffic), std::span(&piece, 1), completion);
  }
  // The next message that goes out, by its tag; -1 if there is none.
  int next() {
    message_ = outbound_.next();
    if (message_ == nullptr) return -1;
    return static_cast<int>(decode_header(std::span(message_->bytes).first<kHeaderBytes>()).step);
  }

  static constexpr std::size_t kLong = TcpPort::kCopyBytes + 1;
  std::vector<std::byte> bytes_ = pattern(kLong, 1);
  sim::World world_{42};
  sim::SimNetwork network_{world_};
  sim::SimLoop loop_{world_, "rank 0"};
  sim::SimNet net_{network_, loop_, 0, {1000, 1}};
  Port port_{loop_, net_};
  Outbound outbound_{port_, 1};
  Outgoing* message_ = nullptr;
};

TEST_F(OutboundTest, ThePeerHasNoMoreThanWasBegunAndNeverLessThanItSaid) {
  Completion told;
  for (std::uint32_t tag = 1; tag <= 3; ++tag) add(tag, 10, told);
  EXPECT_FALSE(outbound_.acknowledged(1)) << "nothing was begun";
  next();
  next();
  EXPECT_FALSE(outbound_.acknowledged(3));
  EXPECT_FALSE(outbound_.resume(3));
  EXPECT_TRUE(outbound_.acknowledged(2));
  EXPECT_TRUE(outbound_.acknowledged(2)) << "nothing new";
  EXPECT_FALSE(outbound_.acknowledged(1));
  EXPECT_FALSE(outbound_.resume(1));
  EXPECT_TRUE(outbound_.resume(2));
}

TEST_F(OutboundTest, WhatIsAcknowledgedStaysUntilItsWriterHasCountedIt) {
  Completion told;
  add(1, kLong, told);
  ASSERT_EQ(next(), 1);
  EXPECT_TRUE(outbound_.acknowledged(1));
  EXPECT_EQ(told.told, 0);
  EXPECT_FALSE(outbound_.empty()) << "the writer still has it in its hands";
  outbound_.wrote(*message_);
  EXPECT_EQ(told.told, 1);
  EXPECT_TRUE(outbound_.empty());
}

TEST_F(OutboundTest, ACopiedMessageIsSentWhenItIsWrittenAndOthersWhenTheyAreAcknowledged) {
  Completion copied, lent;
  add(1, 10, copied);
  add(2, kLong, lent);
  next();
  outbound_.wrote(*message_);
  next();
  outbound_.wrote(*message_);
  EXPECT_EQ(copied.told, 1);
  EXPECT_EQ(lent.told, 0);
  EXPECT_TRUE(outbound_.acknowledged(2));
  EXPECT_EQ(copied.told, 1);
  EXPECT_EQ(lent.told, 1);
}

TEST_F(OutboundTest, ANewConnectionBeginsWithWhatThePeerLacksInTheirOrder) {
  Completion told;
  for (std::uint32_t tag = 1; tag <= 4; ++tag) add(tag, kLong, told);
  for (int tag = 1; tag <= 3; ++tag) {
    ASSERT_EQ(next(), tag);
    if (tag < 3) outbound_.wrote(*message_);
  }
  ASSERT_TRUE(outbound_.acknowledged(1));
  add(5, 10, told, TrafficClass::kControl);
  ASSERT_TRUE(outbound_.resume(2)) << "it had more than it had said";
  EXPECT_EQ(told.told, 2);
  EXPECT_TRUE(outbound_.waiting());
  EXPECT_EQ(next(), 3) << "numbers were given when messages were begun";
  EXPECT_EQ(next(), 5) << "what is urgent overtakes what was not begun";
  EXPECT_EQ(next(), 4);
  EXPECT_EQ(next(), -1);
}

TEST_F(OutboundTest, EveryCompletionIsToldOnceWhenThePeerIsLost) {
  Completion told;
  for (std::uint32_t tag = 1; tag <= 4; ++tag) add(tag, kLong, told);
  next();
  next();
  outbound_.fail(std::make_exception_ptr(Error(Code::kPeerFailed, "gone", 1)));
  EXPECT_EQ(told.told, 4);
  EXPECT_TRUE(outbound_.empty());
}

}  // namespace
}  // namespace aiacc::tcp
