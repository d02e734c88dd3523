// What every MessagePort must do. A transport's test includes this, describes how to make a small world of its ports, and
// instantiates the suite:
//
//   struct MyPorts { MessagePort& port(int rank); bool run_until(std::function<bool()> done); void lose(int rank); };
//   INSTANTIATE_TYPED_TEST_SUITE_P(My, MessageConformance, MyPorts);
//
// kRanks ports, each on its own loop. run_until() drives all loops until done() and gives up after 10 s, of virtual time
// where there is such a thing. lose(rank) ends that rank's process without a farewell.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "transports/message.h"

namespace aiacc::message_conformance {

inline constexpr int kRanks = 3;
using Action = MessageReceiver::Placement::Action;

// Writes down what it is told, and places into memory of its own unless `decide` says otherwise.
class Recorder final : public MessageReceiver {
 public:
  struct Message {
    int from;
    MessageHeader header;
    std::vector<std::byte> bytes;
    bool placed = false;
  };

  Placement on_header(int from, const MessageHeader& header) noexcept override {
    asked.push_back(header.tag);
    const Action action = decide ? decide(from, header) : Action::kInto;
    if (action != Action::kInto) return {action, {}};
    Message& message = messages.emplace_back(Message{from, header, std::vector<std::byte>(header.length), false});
    return {action, Buffer{message.bytes.data(), message.bytes.size()}};
  }
  void on_placed(int from, const MessageHeader& header) noexcept override {
    for (Message& message : messages) {
      if (message.from == from && message.header.tag == header.tag && message.header.traffic == header.traffic) {
        message.placed = true;
      }
    }
    ++placed;
  }
  void on_peer_lost(int rank, std::exception_ptr error) noexcept override { lost.emplace_back(rank, as_error(error)); }

  std::function<Action(int, const MessageHeader&)> decide;
  std::vector<std::uint32_t> asked;
  std::deque<Message> messages;  // stable addresses: places point into them
  std::size_t placed = 0;
  std::vector<std::pair<int, Error>> lost;
};

class Completion final : public SendCompletion {
 public:
  void sent(std::exception_ptr failure) noexcept override {
    ++told;
    error = std::move(failure);
  }
  int told = 0;
  std::exception_ptr error;
};

inline MessageHeader header_of(std::uint32_t tag, std::size_t length, TrafficClass traffic = TrafficClass::kBulk) {
  MessageHeader header;
  header.tag = tag;
  header.length = header.total = length;
  header.traffic = traffic;
  return header;
}

inline std::vector<std::byte> pattern(std::size_t length, unsigned salt) {
  std::vector<std::byte> bytes(length);
  for (std::size_t i = 0; i < length; ++i) bytes[i] = static_cast<std::byte>((i * 131 + salt * 29 + (i >> 8)) & 0xff);
  return bytes;
}

template <class Ports>
class MessageConformance : public ::testing::Test {
 public:
  MessageConformance() {
    for (int rank = 0; rank < kRanks; ++rank) ports.port(rank).set_receiver(receiver[rank]);
  }
  ~MessageConformance() override {
    for (int rank = 0; rank < kRanks; ++rank) ports.port(rank).close();
  }

  void post(int from, int to, const MessageHeader& header, std::vector<std::byte>& bytes, Completion& told) {
    const Buffer piece{bytes.data(), bytes.size()};
    ports.port(from).post(to, header, std::span(&piece, 1), told);
  }

  Recorder receiver[kRanks];
  Completion completion;
  Ports ports;
};
TYPED_TEST_SUITE_P(MessageConformance);

TYPED_TEST_P(MessageConformance, DeliversHeaderAndPiecesAsOneMessage) {
  MessageHeader header = header_of(7, 30);
  header.kind = MessageKind::kService;
  header.member = 4;
  header.incarnation = 5;
  header.group = 0x0123456789abcdefULL;
  header.epoch = 6;
  header.sequence = 8;
  header.fingerprint = 9;
  header.schedule = 10;
  header.offset = 11;
  header.total = 100;
  header.credit_limit = 12;
  header.sent_ns = -13;
  std::vector<std::byte> bytes = pattern(30, 1);
  const Buffer whole{bytes.data(), bytes.size()};
  const Buffer pieces[] = {whole.slice(0, 1), whole.slice(1, 0), whole.slice(1, 29)};
  this->ports.port(0).post(1, header, pieces, this->completion);
  ASSERT_TRUE(this->ports.run_until([this] { return this->receiver[1].placed == 1 && this->completion.told == 1; }));
  const Recorder::Message& got = this->receiver[1].messages.front();
  EXPECT_EQ(got.from, 0);
  EXPECT_EQ(got.bytes, bytes);
  EXPECT_EQ(std::memcmp(&got.header, &header, sizeof header), 0);
  EXPECT_EQ(this->completion.error, nullptr);
}

TYPED_TEST_P(MessageConformance, DeliversAHeaderWithoutPayload) {
  this->ports.port(2).post(0, header_of(1, 0), {}, this->completion);
  ASSERT_TRUE(this->ports.run_until([this] { return this->receiver[0].placed == 1 && this->completion.told == 1; }));
}

TYPED_TEST_P(MessageConformance, KeepsTheOrderOfOneSenderReceiverAndClass) {
  constexpr std::uint32_t kCount = 200;
  std::vector<std::byte> bytes = pattern(5000, 2);
  for (std::uint32_t tag = 0; tag < kCount; ++tag) {
    const TrafficClass traffic = tag % 2 == 0 ? TrafficClass::kBulk : TrafficClass::kLatency;
    const std::size_t length = (tag * 37) % 5000;
    const Buffer piece{bytes.data(), length};
    this->ports.port(0).post(1, header_of(tag, length, traffic), std::span(&piece, 1), this->completion);
  }
  ASSERT_TRUE(this->ports.run_until([this] { return this->receiver[1].placed == kCount; }));
  std::map<TrafficClass, std::uint32_t> last;
  for (const Recorder::Message& message : this->receiver[1].messages) {
    const auto before = last.find(message.header.traffic);
    if (before != last.end()) {
      EXPECT_LT(before->second, message.header.tag);
    }
    last[message.header.traffic] = message.header.tag;
    EXPECT_TRUE(std::equal(message.bytes.begin(), message.bytes.end(), bytes.begin()));
  }
  ASSERT_TRUE(this->ports.run_until([this] { return this->completion.told == static_cast<int>(kCount); }));
}

TYPED_TEST_P(MessageConformance, ACompletedSendHasItsBytesCopiedAndAnUntoldOneReadsThemLater) {
  std::vector<std::byte> bytes = pattern(100'000, 3);
  const std::vector<std::byte> original = bytes;
  this->post(0, 1, header_of(1, bytes.size()), bytes, this->completion);
  EXPECT_EQ(this->completion.told, 0) << "told from inside post()";
  ASSERT_TRUE(this->ports.run_until([this] { return this->completion.told == 1; }));
  std::fill(bytes.begin(), bytes.end(), std::byte{0xee});
  ASSERT_TRUE(this->ports.run_until([this] { return this->receiver[1].placed == 1; }));
  EXPECT_EQ(this->receiver[1].messages.front().bytes, original);
}

TYPED_TEST_P(MessageConformance, CarriesLargeMessagesBothWaysAtOnce) {
  std::vector<std::byte> there = pattern((4 << 20) + 3, 4), back = pattern((3 << 20) + 1, 5);
  Completion other;
  this->post(0, 1, header_of(1, there.size()), there, this->completion);
  this->post(1, 0, header_of(2, back.size()), back, other);
  ASSERT_TRUE(this->ports.run_until([this] { return this->receiver[0].placed + this->receiver[1].placed == 2; }));
  EXPECT_TRUE(this->receiver[1].messages.front().bytes == there);
  EXPECT_TRUE(this->receiver[0].messages.front().bytes == back);
  ASSERT_TRUE(this->ports.run_until([&] { return this->completion.told == 1 && other.told == 1; }));
}

TYPED_TEST_P(MessageConformance, ADroppedMessageIsSentAndNotPlaced) {
  this->receiver[1].decide = [](int, const MessageHeader& header) {
    return header.tag == 1 ? Action::kDrop : Action::kInto;
  };
  std::vector<std::byte> bytes = pattern(1000, 6);
  this->post(0, 1, header_of(1, bytes.size()), bytes, this->completion);
  this->post(0, 1, header_of(2, bytes.size()), bytes, this->completion);
  ASSERT_TRUE(this->ports.run_until([this] { return this->receiver[1].placed == 1 && this->completion.told == 2; }));
  EXPECT_EQ(this->receiver[1].messages.front().header.tag, 2u);
  EXPECT_EQ(this->completion.error, nullptr);
}

TYPED_TEST_P(MessageConformance, HeldMessagesAreAskedForAgainOldestFirstAndHoldNobodyBack) {
  bool open = false;
  this->receiver[1].decide = [&](int, const MessageHeader& header) {
    return header.tag < 3 && !open ? Action::kHold : Action::kInto;
  };
  std::vector<std::vector<std::byte>> sent;
  for (unsigned tag = 0; tag < 4; ++tag) sent.push_back(pattern(2000 + tag, tag));
  for (unsigned tag = 0; tag < 4; ++tag)
    this->post(0, 1, header_of(tag, sent[tag].size()), sent[tag], this->completion);
  ASSERT_TRUE(this->ports.run_until([this] { return this->receiver[1].placed == 1; }));
  EXPECT_EQ(this->receiver[1].messages.front().header.tag, 3u);
  open = true;
  this->ports.port(1).release(0);
  EXPECT_EQ(this->receiver[1].placed, 1u) << "asked again from inside release()";
  ASSERT_TRUE(this->ports.run_until([this] { return this->receiver[1].placed == 4; }));
  for (unsigned tag = 0; tag < 3; ++tag) {
    EXPECT_EQ(this->receiver[1].messages[tag + 1].header.tag, tag);
    EXPECT_TRUE(this->receiver[1].messages[tag + 1].bytes == sent[tag]);
  }
}

TYPED_TEST_P(MessageConformance, AMessageHeldTwiceIsKept) {
  int asked = 0;
  this->receiver[1].decide = [&](int, const MessageHeader&) { return ++asked < 3 ? Action::kHold : Action::kInto; };
  std::vector<std::byte> bytes = pattern(100, 7);
  this->post(0, 1, header_of(1, bytes.size()), bytes, this->completion);
  ASSERT_TRUE(this->ports.run_until([&] { return asked == 1; }));
  this->ports.port(1).release(0);
  ASSERT_TRUE(this->ports.run_until([&] { return asked == 2; }));
  this->ports.port(1).release(0);
  ASSERT_TRUE(this->ports.run_until([this] { return this->receiver[1].placed == 1; }));
  EXPECT_TRUE(this->receiver[1].messages.front().bytes == bytes);
}

TYPED_TEST_P(MessageConformance, ALostPeerIsToldOnceAndFailsWhatIsSentToIt) {
  std::vector<std::byte> bytes = pattern(100, 8);
  for (int rank = 0; rank < 2; ++rank) this->post(rank, 2, header_of(1, bytes.size()), bytes, this->completion);
  ASSERT_TRUE(this->ports.run_until([this] { return this->receiver[2].placed == 2 && this->completion.told == 2; }));
  this->ports.lose(2);
  ASSERT_TRUE(
      this->ports.run_until([this] { return !this->receiver[0].lost.empty() && !this->receiver[1].lost.empty(); }));
  Completion late;
  this->post(0, 2, header_of(2, bytes.size()), bytes, late);
  EXPECT_EQ(late.told, 0) << "told from inside post()";
  ASSERT_TRUE(this->ports.run_until([&] { return late.told == 1; }));
  EXPECT_EQ(as_error(late.error).code(), Code::kPeerFailed);
  ASSERT_EQ(this->receiver[0].lost.size(), 1u);
  EXPECT_EQ(this->receiver[0].lost[0].first, 2);
  EXPECT_EQ(this->receiver[0].lost[0].second.code(), Code::kPeerFailed);
  EXPECT_EQ(this->receiver[0].lost[0].second.peer(), 2);
  // The others go on.
  this->post(0, 1, header_of(3, bytes.size()), bytes, late);
  ASSERT_TRUE(this->ports.run_until([this] { return this->receiver[1].placed == 1; }));
}

TYPED_TEST_P(MessageConformance, WhoFirstSpeaksToADeadPeerHearsThatItIsGone) {
  this->ports.lose(2);
  std::vector<std::byte> bytes = pattern(100, 9);
  this->post(0, 2, header_of(1, bytes.size()), bytes, this->completion);
  ASSERT_TRUE(this->ports.run_until([this] { return !this->receiver[0].lost.empty() && this->completion.told == 1; }));
  EXPECT_EQ(this->receiver[0].lost[0].first, 2);
}

TYPED_TEST_P(MessageConformance, AWithdrawnMessageArrivesWholeOrNever) {
  std::vector<std::byte> bytes = pattern(2 << 20, 10);
  const std::vector<std::byte> original = bytes;
  std::deque<Completion> completions(8);
  for (std::uint32_t tag = 0; tag < 8; ++tag) this->post(0, 1, header_of(tag, bytes.size()), bytes, completions[tag]);
  for (Completion& each : completions) this->ports.port(0).withdraw(each);
  for (Completion& each : completions) EXPECT_EQ(each.told, 0) << "told from inside withdraw()";
  ASSERT_TRUE(this->ports.run_until([&] {
    return std::all_of(completions.begin(), completions.end(), [](const Completion& each) { return each.told == 1; });
  }));
  std::fill(bytes.begin(), bytes.end(), std::byte{0});
  std::vector<std::byte> after = pattern(10, 11);
  this->post(0, 1, header_of(99, after.size()), after, this->completion);
  ASSERT_TRUE(this->ports.run_until([this] {
    return !this->receiver[1].messages.empty() && this->receiver[1].messages.back().header.tag == 99 &&
           this->receiver[1].messages.back().placed;
  }));
  for (const Recorder::Message& message : this->receiver[1].messages) {
    if (message.header.tag != 99) {
      EXPECT_TRUE(message.bytes == original);
    }
  }
}

TYPED_TEST_P(MessageConformance, ARevokedPlaceIsNotTouchedOnceItWasTold) {
  std::vector<std::byte> bytes = pattern(1 << 20, 12);
  Recorder& placing = this->receiver[1];
  std::vector<MessageHeader> to_revoke;
  placing.decide = [&](int, const MessageHeader& header) {
    to_revoke.push_back(header);
    return Action::kInto;
  };
  std::vector<std::vector<std::byte>> seen;
  for (std::uint32_t tag = 0; tag < 40; ++tag) {
    this->post(0, 1, header_of(tag, bytes.size()), bytes, this->completion);
    ASSERT_TRUE(this->ports.run_until([&] { return to_revoke.size() == tag + 1; }));
    this->ports.port(1).revoke(0, to_revoke.back());
    ASSERT_TRUE(this->ports.run_until([&] { return placing.placed == tag + 1; }));
    std::fill(placing.messages.back().bytes.begin(), placing.messages.back().bytes.end(), std::byte{0x55});
  }
  Completion last;
  this->post(0, 1, header_of(99, bytes.size()), bytes, last);
  ASSERT_TRUE(this->ports.run_until([&] { return placing.placed == 41 && last.told == 1; }));
  EXPECT_TRUE(placing.messages.back().bytes == bytes) << "a revocation hurt the next message";
  for (std::size_t i = 0; i < 40; ++i) {
    const auto& place = placing.messages[i].bytes;
    EXPECT_EQ(std::count(place.begin(), place.end(), std::byte{0x55}), static_cast<long>(place.size())) << i;
  }
}

TYPED_TEST_P(MessageConformance, AClosedPortTellsNothing) {
  std::vector<std::byte> bytes = pattern(1 << 20, 13);
  this->post(0, 1, header_of(1, bytes.size()), bytes, this->completion);
  this->post(1, 0, header_of(2, bytes.size()), bytes, this->completion);
  this->ports.port(1).close();
  const std::size_t before = this->receiver[1].placed;
  Completion other;
  this->post(0, 2, header_of(3, bytes.size()), bytes, other);
  ASSERT_TRUE(this->ports.run_until([this] { return this->receiver[2].placed == 1; }));
  EXPECT_EQ(this->receiver[1].placed, before);
  EXPECT_LE(this->completion.told, 1);
}

REGISTER_TYPED_TEST_SUITE_P(MessageConformance, DeliversHeaderAndPiecesAsOneMessage, DeliversAHeaderWithoutPayload,
                            KeepsTheOrderOfOneSenderReceiverAndClass,
                            ACompletedSendHasItsBytesCopiedAndAnUntoldOneReadsThemLater,
                            CarriesLargeMessagesBothWaysAtOnce, ADroppedMessageIsSentAndNotPlaced,
                            HeldMessagesAreAskedForAgainOldestFirstAndHoldNobodyBack, AMessageHeldTwiceIsKept,
                            ALostPeerIsToldOnceAndFailsWhatIsSentToIt, WhoFirstSpeaksToADeadPeerHearsThatItIsGone,
                            AWithdrawnMessageArrivesWholeOrNever, ARevokedPlaceIsNotTouchedOnceItWasTold,
                            AClosedPortTellsNothing);

}  // namespace aiacc::message_conformance
