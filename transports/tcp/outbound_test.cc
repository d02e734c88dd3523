// What a peer is to get, without connections: numbers, order, which connection carries what, and whose memory is kept how
// long.
#include "transports/tcp/outbound.h"

#include <gtest/gtest.h>

#include <algorithm>
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

  void add(Outbound& outbound, std::uint32_t tag, std::size_t length, Completion& completion,
           TrafficClass traffic = TrafficClass::kBulk) {
    const Buffer piece{bytes_.data(), length};
    outbound.add(header_of(tag, length, traffic), std::span(&piece, 1), completion);
  }
  void add(std::uint32_t tag, std::size_t length, Completion& completion, TrafficClass traffic = TrafficClass::kBulk) {
    add(outbound_, tag, length, completion, traffic);
  }
  static int tag_of(const Part& part) {
    const auto header = std::span<const std::byte>(part.message->bytes).subspan<kFrameBytes, kHeaderBytes>();
    return static_cast<int>(decode_header(header).step);
  }
  // The next part that goes out, by its message's tag; -1 if there is none.
  int next(Outbound& outbound, Carrier& carrier) {
    part_ = outbound.next(carrier);
    return part_ == nullptr ? -1 : tag_of(*part_);
  }
  int next() { return next(outbound_, carrier_); }
  bool arrived(std::uint64_t number, TrafficClass traffic = TrafficClass::kBulk) {
    return outbound_.arrived(traffic, number, number);
  }
  // The connection is replaced by another one.
  void reconnect() {
    outbound_.ended(carrier_);
    outbound_.lead(carrier_);
  }
  static Frame frame_of(const Part& part) {
    return {.kind = FrameKind::kChunkArrived,
            .traffic = part.message->traffic,
            .number = part.message->number,
            .offset = part.offset,
            .length = part.length};
  }

  OutboundTest() {
    outbound_.lead(carrier_);
    several_.share_among(2);
    several_.lead(carriers_[0]);
  }

  static constexpr std::size_t kLong = TcpPort::kKeptBytes + 1;
  static constexpr std::size_t kChunks = 3;  // of a message of kDivided bytes
  static constexpr std::size_t kDivided = kChunks * Outbound::kWholeBytes - 1;
  std::vector<std::byte> bytes_ = pattern(kDivided, 1);
  sim::World world_{42};
  sim::SimNetwork network_{world_};
  sim::SimLoop loop_{world_, "rank 0"};
  sim::SimNet net_{network_, loop_, 0, {1000, 1}};
  Port port_{loop_, net_};
  Carrier carrier_;
  Outbound outbound_{port_, 1};
  Carrier carriers_[2];
  Outbound several_{port_, 1};
  Part* part_ = nullptr;
};

TEST_F(OutboundTest, ThePeerHasNoMoreThanWasBegun) {
  Completion told;
  for (std::uint32_t tag = 1; tag <= 3; ++tag) add(tag, 10, told);
  EXPECT_FALSE(arrived(1)) << "nothing was begun";
  next();
  next();
  EXPECT_FALSE(arrived(3));
  EXPECT_FALSE(arrived(1, TrafficClass::kLatency)) << "each class has numbers of its own";
  EXPECT_FALSE(outbound_.arrived(TrafficClass::kBulk, 2, 1)) << "a whole message has its header";
  EXPECT_TRUE(arrived(2));
  EXPECT_TRUE(arrived(1)) << "said before, over a slower connection";
}

TEST_F(OutboundTest, WhatIsAcknowledgedStaysUntilItsWriterHasCountedIt) {
  Completion told;
  add(1, kLong, told);
  ASSERT_EQ(next(), 1);
  EXPECT_TRUE(arrived(1));
  EXPECT_EQ(told.told, 0);
  EXPECT_FALSE(outbound_.empty()) << "the writer still has it in its hands";
  outbound_.wrote(*part_);
  EXPECT_EQ(told.told, 1);
  EXPECT_TRUE(outbound_.empty());
}

TEST_F(OutboundTest, WhatIsAcknowledgedAndInAWritersHandsIsDoneWhenTheConnectionEnds) {
  Completion told;
  add(1, kLong, told);
  ASSERT_EQ(next(), 1);
  EXPECT_TRUE(arrived(1));
  reconnect();
  EXPECT_EQ(told.told, 1);
  EXPECT_EQ(next(), -1);
}

TEST_F(OutboundTest, ACopiedMessageIsSentWhenItIsWrittenAndOthersWhenTheyAreAcknowledged) {
  Completion copied, lent;
  add(1, 10, copied);
  add(2, kLong, lent);
  next();
  outbound_.wrote(*part_);
  next();
  outbound_.wrote(*part_);
  EXPECT_EQ(copied.told, 1);
  EXPECT_EQ(lent.told, 0);
  EXPECT_TRUE(arrived(2));
  EXPECT_EQ(copied.told, 1);
  EXPECT_EQ(lent.told, 1);
}

TEST_F(OutboundTest, AMessageThatIsKeptIsCopiedWhenItIsWritten) {
  Completion kept;
  add(1, TcpPort::kKeptBytes, kept);
  ASSERT_EQ(next(), 1);
  const auto payload_of = [](const Part& part) { return part.message->pieces[0]; };
  EXPECT_EQ(payload_of(*part_).data(), bytes_.data()) << "it leaves from where it lies";
  outbound_.wrote(*part_);
  EXPECT_EQ(kept.told, 1);
  std::fill(bytes_.begin(), bytes_.end(), std::byte{0xee});
  reconnect();
  ASSERT_EQ(next(), 1);
  const std::vector<std::byte> want = pattern(TcpPort::kKeptBytes, 1);
  EXPECT_TRUE(std::equal(want.begin(), want.end(), payload_of(*part_).begin(), payload_of(*part_).end()));
  EXPECT_TRUE(arrived(1));
  outbound_.wrote(*part_);
  EXPECT_EQ(kept.told, 1);
  EXPECT_TRUE(outbound_.empty());
}

TEST_F(OutboundTest, CopiesTakeNoMoreMemoryThanTheirLengthUnlessTheyAreAlmostTheLongest) {
  for (const auto& [length, room] : {std::pair{TcpPort::kCopyBytes + 1, TcpPort::kCopyBytes + 1},
                                     std::pair{TcpPort::kKeptBytes / 2, TcpPort::kKeptBytes / 2},
                                     std::pair{TcpPort::kKeptBytes / 2 + 1, TcpPort::kKeptBytes}}) {
    EXPECT_EQ(port_.memory_for_copy(length).capacity(), room) << length;
  }
}

// Its sender may go on before the peer has told, so nothing is copied.
TEST_F(OutboundTest, AMessageThatHasArrivedWhenItIsCountedAsWrittenIsNotCopied) {
  Completion kept;
  add(1, TcpPort::kKeptBytes, kept);
  ASSERT_EQ(next(), 1);
  EXPECT_TRUE(arrived(1));
  const Outgoing& message = *part_->message;
  outbound_.wrote(*part_);
  EXPECT_EQ(kept.told, 1);
  EXPECT_FALSE(message.copied);
}

TEST_F(OutboundTest, ANewConnectionCarriesWhatThePeerLacksInTheOrderOfEachClass) {
  Completion told;
  for (std::uint32_t tag = 1; tag <= 4; ++tag) add(tag, kLong, told);
  for (int tag = 1; tag <= 3; ++tag) {
    ASSERT_EQ(next(), tag);
    if (tag < 3) outbound_.wrote(*part_);
  }
  ASSERT_TRUE(arrived(1));
  add(5, 10, told, TrafficClass::kControl);
  reconnect();
  ASSERT_TRUE(arrived(2)) << "it had more than it had said";
  EXPECT_EQ(told.told, 2);
  EXPECT_TRUE(outbound_.waiting());
  EXPECT_EQ(next(), 5) << "what is urgent overtakes what is sent again too";
  EXPECT_EQ(next(), 3);
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

// --- several connections --------------------------------------------------------------------------------------------------

TEST_F(OutboundTest, OthersTakeChunksWhenThePeerHasTheHeader) {
  Completion told;
  add(several_, 1, kDivided, told);
  EXPECT_EQ(next(several_, carriers_[1]), -1) << "headers go with the lead";
  ASSERT_EQ(next(several_, carriers_[0]), 1);
  EXPECT_EQ(part_->length, 0u);
  EXPECT_EQ(next(several_, carriers_[1]), -1) << "the peer may not know the message yet";
  ASSERT_EQ(next(several_, carriers_[0]), 1) << "the lead need not wait for that";
  EXPECT_EQ(part_->offset, 0u);
  EXPECT_FALSE(several_.shares());
  ASSERT_TRUE(several_.arrived(TrafficClass::kBulk, 0, 1));
  EXPECT_TRUE(several_.shares());
  ASSERT_EQ(next(several_, carriers_[1]), 1);
  EXPECT_EQ(part_->offset, Outbound::kWholeBytes);
  ASSERT_EQ(next(several_, carriers_[0]), 1);
  EXPECT_EQ(part_->offset, 2 * Outbound::kWholeBytes);
  EXPECT_EQ(part_->length, kDivided - 2 * Outbound::kWholeBytes);
  EXPECT_EQ(next(several_, carriers_[0]), -1);
}

TEST_F(OutboundTest, AMessageIsDoneWhenAllItsChunksAreAcknowledgedInAnyOrder) {
  Completion told;
  add(several_, 1, kDivided, told);
  std::vector<Part*> parts;
  next(several_, carriers_[0]);
  several_.wrote(*part_);
  ASSERT_TRUE(several_.arrived(TrafficClass::kBulk, 0, 1));
  for (std::size_t i = 0; i < kChunks; ++i) {
    ASSERT_EQ(next(several_, carriers_[i % 2]), 1);
    several_.wrote(*part_);
    parts.push_back(part_);
  }
  EXPECT_TRUE(several_.part_arrived(carriers_[0], frame_of(*parts[2])));
  EXPECT_TRUE(several_.part_arrived(carriers_[0], frame_of(*parts[2]))) << "said twice";
  EXPECT_TRUE(several_.part_arrived(carriers_[1], frame_of(*parts[1])));
  EXPECT_EQ(told.told, 0);
  EXPECT_TRUE(several_.part_arrived(carriers_[0], frame_of(*parts[0])));
  EXPECT_EQ(told.told, 1);
  EXPECT_TRUE(several_.empty());
}

TEST_F(OutboundTest, AConnectionThatEndsCostsWhatItCarriedAndNoMore) {
  Completion told;
  add(several_, 1, kDivided, told);
  next(several_, carriers_[0]);
  ASSERT_TRUE(several_.arrived(TrafficClass::kBulk, 0, 1));
  next(several_, carriers_[1]);
  ASSERT_EQ(part_->offset, 0u);
  next(several_, carriers_[0]);
  several_.ended(carriers_[1]);
  ASSERT_EQ(next(several_, carriers_[0]), 1);
  EXPECT_EQ(part_->offset, 0u) << "the oldest first";
  ASSERT_EQ(next(several_, carriers_[0]), 1);
  EXPECT_EQ(part_->offset, 2 * Outbound::kWholeBytes);
  EXPECT_EQ(next(several_, carriers_[0]), -1);
}

TEST_F(OutboundTest, ANewLeadCarriesTheHeadersThatThePeerLacksBeforeTheirChunks) {
  Completion told;
  add(several_, 1, kDivided, told);
  add(several_, 2, 10, told);
  ASSERT_EQ(next(several_, carriers_[0]), 1);
  ASSERT_EQ(next(several_, carriers_[0]), 2) << "a header waits for no payload";
  ASSERT_EQ(next(several_, carriers_[0]), 1);
  several_.ended(carriers_[0]);
  EXPECT_EQ(next(several_, carriers_[1]), -1);
  several_.lead(carriers_[1]);
  ASSERT_EQ(next(several_, carriers_[1]), 1);
  EXPECT_EQ(part_->length, 0u);
  ASSERT_EQ(next(several_, carriers_[1]), 2);
  ASSERT_EQ(next(several_, carriers_[1]), 1);
  EXPECT_EQ(part_->offset, 0u);
}

TEST_F(OutboundTest, AClassMovesToAnotherConnectionWhenAllIsAcknowledged) {
  Carrier other;
  Completion told;
  add(1, 8, told);
  add(2, 8, told, TrafficClass::kLatency);
  ASSERT_EQ(next(), 2);
  outbound_.wrote(*part_);
  ASSERT_EQ(next(), 1);
  outbound_.wrote(*part_);
  EXPECT_TRUE(outbound_.lead(TrafficClass::kBulk, other));
  add(3, 8, told);
  EXPECT_EQ(next(), -1) << "its number would arrive before that of message 1";
  EXPECT_EQ(next(outbound_, other), -1);
  EXPECT_FALSE(outbound_.move_leads());
  ASSERT_TRUE(arrived(1));
  EXPECT_TRUE(outbound_.move_leads());
  EXPECT_EQ(next(), -1);
  EXPECT_EQ(next(outbound_, other), 3);
  add(4, 8, told, TrafficClass::kLatency);
  EXPECT_EQ(next(), 4) << "other classes stay";
}

TEST_F(OutboundTest, AClassMovesAtOnceWhenItsConnectionEnds) {
  Carrier other;
  Completion told;
  add(1, 8, told);
  ASSERT_EQ(next(), 1);
  outbound_.wrote(*part_);
  EXPECT_TRUE(outbound_.lead(TrafficClass::kBulk, other));
  outbound_.ended(carrier_);
  EXPECT_EQ(next(outbound_, other), 1);
}

// Chunks that any connection of the class may take.
TEST_F(OutboundTest, AConnectionTakesNoChunksOfOtherClasses) {
  Completion told;
  add(several_, 1, kDivided, told);
  ASSERT_EQ(next(several_, carriers_[0]), 1);
  several_.wrote(*part_);
  ASSERT_TRUE(several_.arrived(TrafficClass::kBulk, 0, 1));
  carriers_[1].classes = 1U << static_cast<unsigned>(TrafficClass::kLatency);
  EXPECT_EQ(next(several_, carriers_[1]), -1);
  carriers_[1].classes = kAllClasses;
  EXPECT_NE(several_.next(carriers_[1]), nullptr);
}

}  // namespace
}  // namespace aiacc::tcp
