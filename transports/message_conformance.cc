#include "transports/message_conformance.h"

#include <algorithm>
#include <cstring>
#include <map>

namespace aiacc::message_conformance {

TEST_P(MessageConformance, DeliversHeaderAndPiecesAsOneMessage) {
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
  ports->port(0).post(1, header, pieces, completion);
  ASSERT_TRUE(ports->run_until([this] { return receiver[1].placed == 1 && completion.told == 1; }));
  const Recorder::Message& got = receiver[1].messages.front();
  EXPECT_EQ(got.from, 0);
  EXPECT_EQ(got.bytes, bytes);
  EXPECT_EQ(std::memcmp(&got.header, &header, sizeof header), 0);
  EXPECT_EQ(completion.error, nullptr);
}

TEST_P(MessageConformance, DeliversAHeaderWithoutPayload) {
  ports->port(2).post(0, header_of(1, 0), {}, completion);
  ASSERT_TRUE(ports->run_until([this] { return receiver[0].placed == 1 && completion.told == 1; }));
}

TEST_P(MessageConformance, KeepsTheOrderOfOneSenderReceiverAndClass) {
  constexpr std::uint32_t kCount = 200;
  std::vector<std::byte> bytes = pattern(5000, 2);
  for (std::uint32_t tag = 0; tag < kCount; ++tag) {
    const auto traffic = static_cast<TrafficClass>(tag % kTrafficClasses);
    const std::size_t length = (tag * 37) % 5000;
    const Buffer piece{bytes.data(), length};
    ports->port(0).post(1, header_of(tag, length, traffic), std::span(&piece, 1), completion);
  }
  ASSERT_TRUE(ports->run_until([this] { return receiver[1].placed == kCount; }));
  std::map<TrafficClass, std::uint32_t> last;
  for (const Recorder::Message& message : receiver[1].messages) {
    const auto before = last.find(message.header.traffic);
    if (before != last.end()) {
      EXPECT_LT(before->second, message.header.step);
    }
    last[message.header.traffic] = message.header.step;
    EXPECT_TRUE(std::equal(message.bytes.begin(), message.bytes.end(), bytes.begin()));
  }
  ASSERT_TRUE(ports->run_until([this] { return completion.told == static_cast<int>(kCount); }));
}

TEST_P(MessageConformance, ACompletedSendHasItsBytesCopiedAndAnUntoldOneReadsThemLater) {
  std::vector<std::byte> bytes = pattern(100'000, 3);
  const std::vector<std::byte> original = bytes;
  post(0, 1, header_of(1, bytes.size()), bytes, completion);
  EXPECT_EQ(completion.told, 0) << "told from inside post()";
  ASSERT_TRUE(ports->run_until([this] { return completion.told == 1; }));
  std::fill(bytes.begin(), bytes.end(), std::byte{0xee});
  ASSERT_TRUE(ports->run_until([this] { return receiver[1].placed == 1; }));
  EXPECT_EQ(receiver[1].messages.front().bytes, original);
}

TEST_P(MessageConformance, CarriesLargeMessagesBothWaysAtOnce) {
  std::vector<std::byte> there = pattern((4 << 20) + 3, 4), back = pattern((3 << 20) + 1, 5);
  Completion other;
  post(0, 1, header_of(1, there.size()), there, completion);
  post(1, 0, header_of(2, back.size()), back, other);
  ASSERT_TRUE(ports->run_until([this] { return receiver[0].placed + receiver[1].placed == 2; }));
  EXPECT_TRUE(receiver[1].messages.front().bytes == there);
  EXPECT_TRUE(receiver[0].messages.front().bytes == back);
  ASSERT_TRUE(ports->run_until([&] { return completion.told == 1 && other.told == 1; }));
}

TEST_P(MessageConformance, ADroppedMessageIsSentAndNotPlaced) {
  receiver[1].decide = [](int, const MessageHeader& header) {
    return header.step == 1 ? Action::kDrop : Action::kInto;
  };
  std::vector<std::byte> bytes = pattern(1000, 6);
  post(0, 1, header_of(1, bytes.size()), bytes, completion);
  post(0, 1, header_of(2, bytes.size()), bytes, completion);
  ASSERT_TRUE(ports->run_until([this] { return receiver[1].placed == 1 && completion.told == 2; }));
  EXPECT_EQ(receiver[1].messages.front().header.step, 2u);
  EXPECT_EQ(completion.error, nullptr);
}

TEST_P(MessageConformance, HeldMessagesAreAskedForAgainOldestFirstAndHoldNobodyBack) {
  bool open = false;
  receiver[1].decide = [&](int, const MessageHeader& header) {
    return header.step < 3 && !open ? Action::kHold : Action::kInto;
  };
  std::vector<std::vector<std::byte>> sent;
  for (unsigned tag = 0; tag < 4; ++tag) sent.push_back(pattern(2000 + tag, tag));
  for (unsigned tag = 0; tag < 4; ++tag) post(0, 1, header_of(tag, sent[tag].size()), sent[tag], completion);
  ASSERT_TRUE(ports->run_until([this] { return receiver[1].placed == 1; }));
  EXPECT_EQ(receiver[1].messages.front().header.step, 3u);
  open = true;
  ports->port(1).release(0);
  EXPECT_EQ(receiver[1].placed, 1u) << "asked again from inside release()";
  ASSERT_TRUE(ports->run_until([this] { return receiver[1].placed == 4; }));
  for (unsigned tag = 0; tag < 3; ++tag) {
    EXPECT_EQ(receiver[1].messages[tag + 1].header.step, tag);
    EXPECT_TRUE(receiver[1].messages[tag + 1].bytes == sent[tag]);
  }
}

TEST_P(MessageConformance, AMessageHeldTwiceIsKept) {
  int asked = 0;
  receiver[1].decide = [&](int, const MessageHeader&) { return ++asked < 3 ? Action::kHold : Action::kInto; };
  std::vector<std::byte> bytes = pattern(100, 7);
  post(0, 1, header_of(1, bytes.size()), bytes, completion);
  ASSERT_TRUE(ports->run_until([&] { return asked == 1; }));
  ports->port(1).release(0);
  ASSERT_TRUE(ports->run_until([&] { return asked == 2; }));
  ports->port(1).release(0);
  ASSERT_TRUE(ports->run_until([this] { return receiver[1].placed == 1; }));
  EXPECT_TRUE(receiver[1].messages.front().bytes == bytes);
}

TEST_P(MessageConformance, ALostPeerIsToldOnceAndFailsWhatIsSentToIt) {
  std::vector<std::byte> bytes = pattern(100, 8);
  for (int rank = 0; rank < 2; ++rank) post(rank, 2, header_of(1, bytes.size()), bytes, completion);
  ASSERT_TRUE(ports->run_until([this] { return receiver[2].placed == 2 && completion.told == 2; }));
  ports->lose(2);
  ASSERT_TRUE(ports->run_until([this] { return !receiver[0].lost.empty() && !receiver[1].lost.empty(); }));
  Completion late;
  post(0, 2, header_of(2, bytes.size()), bytes, late);
  EXPECT_EQ(late.told, 0) << "told from inside post()";
  ASSERT_TRUE(ports->run_until([&] { return late.told == 1; }));
  EXPECT_EQ(as_error(late.error).code(), Code::kPeerFailed);
  ASSERT_EQ(receiver[0].lost.size(), 1u);
  EXPECT_EQ(receiver[0].lost[0].first, 2);
  EXPECT_EQ(receiver[0].lost[0].second.code(), Code::kPeerFailed);
  EXPECT_EQ(receiver[0].lost[0].second.peer(), 2);
  // Messages to other ranks are not affected.
  post(0, 1, header_of(3, bytes.size()), bytes, late);
  ASSERT_TRUE(ports->run_until([this] { return receiver[1].placed == 1; }));
}

TEST_P(MessageConformance, WhoFirstSpeaksToADeadPeerHearsThatItIsGone) {
  ports->lose(2);
  std::vector<std::byte> bytes = pattern(100, 9);
  post(0, 2, header_of(1, bytes.size()), bytes, completion);
  ASSERT_TRUE(ports->run_until([this] { return !receiver[0].lost.empty() && completion.told == 1; }));
  EXPECT_EQ(receiver[0].lost[0].first, 2);
}

// One completion may serve many messages, to several ranks.
TEST_P(MessageConformance, AWithdrawalEndsTheMessagesOfItsCompletionAndNoOthers) {
  constexpr int kMessages = 100;
  std::vector<std::byte> bytes = pattern(1 << 20, 12);
  Completion withdrawn;
  Completion kept;
  for (std::uint32_t tag = 0; tag < kMessages; ++tag) {
    for (const int to : {1, 2}) post(0, to, header_of(tag, bytes.size()), bytes, tag % 2 == 0 ? withdrawn : kept);
  }
  ports->port(0).withdraw(withdrawn);
  EXPECT_EQ(withdrawn.told, 0) << "told from inside withdraw()";
  ASSERT_TRUE(ports->run_until([&] { return withdrawn.told == kMessages && kept.told == kMessages; }));
  EXPECT_EQ(kept.error, nullptr);
  EXPECT_NE(withdrawn.error, nullptr);
  ports->port(0).withdraw(kept);  // all its messages have completed: no effect
  post(0, 1, header_of(kMessages, bytes.size()), bytes, completion);
  ASSERT_TRUE(ports->run_until([&] { return completion.told == 1; }));
  EXPECT_EQ(kept.told, kMessages);
  for (const int rank : {1, 2}) {
    const auto odd = std::count_if(receiver[rank].messages.begin(), receiver[rank].messages.end(),
                                   [](const Recorder::Message& each) { return each.header.step % 2 == 1; });
    EXPECT_EQ(odd, kMessages / 2) << "at rank " << rank;
  }
}

TEST_P(MessageConformance, AWithdrawnMessageArrivesWholeOrNever) {
  std::vector<std::byte> bytes = pattern(2 << 20, 10);
  const std::vector<std::byte> original = bytes;
  std::deque<Completion> completions(8);
  for (std::uint32_t tag = 0; tag < 8; ++tag) post(0, 1, header_of(tag, bytes.size()), bytes, completions[tag]);
  for (Completion& each : completions) ports->port(0).withdraw(each);
  for (Completion& each : completions) EXPECT_EQ(each.told, 0) << "told from inside withdraw()";
  ASSERT_TRUE(ports->run_until([&] {
    return std::all_of(completions.begin(), completions.end(), [](const Completion& each) { return each.told == 1; });
  }));
  std::fill(bytes.begin(), bytes.end(), std::byte{0});
  std::vector<std::byte> after = pattern(10, 11);
  post(0, 1, header_of(99, after.size()), after, completion);
  ASSERT_TRUE(ports->run_until([this] {
    return !receiver[1].messages.empty() && receiver[1].messages.back().header.step == 99 &&
           receiver[1].messages.back().placed;
  }));
  for (const Recorder::Message& message : receiver[1].messages) {
    if (message.header.step != 99) {
      EXPECT_TRUE(message.bytes == original);
    }
  }
}

TEST_P(MessageConformance, ARevokedPlaceIsNotTouchedOnceItWasTold) {
  std::vector<std::byte> bytes = pattern(1 << 20, 12);
  Recorder& placing = receiver[1];
  std::vector<MessageHeader> to_revoke;
  placing.decide = [&](int, const MessageHeader& header) {
    to_revoke.push_back(header);
    return Action::kInto;
  };
  std::vector<std::vector<std::byte>> seen;
  for (std::uint32_t tag = 0; tag < 40; ++tag) {
    post(0, 1, header_of(tag, bytes.size()), bytes, completion);
    ASSERT_TRUE(ports->run_until([&] { return to_revoke.size() == tag + 1; }));
    ports->port(1).revoke(0, to_revoke.back());
    ASSERT_TRUE(ports->run_until([&] { return placing.placed == tag + 1; }));
    std::fill(placing.messages.back().bytes.begin(), placing.messages.back().bytes.end(), std::byte{0x55});
  }
  Completion last;
  post(0, 1, header_of(99, bytes.size()), bytes, last);
  ASSERT_TRUE(ports->run_until([&] { return placing.placed == 41 && last.told == 1; }));
  EXPECT_TRUE(placing.messages.back().bytes == bytes) << "a revocation hurt the next message";
  for (std::size_t i = 0; i < 40; ++i) {
    const auto& place = placing.messages[i].bytes;
    EXPECT_EQ(std::count(place.begin(), place.end(), std::byte{0x55}), static_cast<long>(place.size())) << i;
  }
}

TEST_P(MessageConformance, AClosedPortTellsNothing) {
  std::vector<std::byte> bytes = pattern(1 << 20, 13);
  post(0, 1, header_of(1, bytes.size()), bytes, completion);
  post(1, 0, header_of(2, bytes.size()), bytes, completion);
  ports->port(1).close();
  const std::size_t before = receiver[1].placed;
  Completion other;
  post(0, 2, header_of(3, bytes.size()), bytes, other);
  ASSERT_TRUE(ports->run_until([this] { return receiver[2].placed == 1; }));
  EXPECT_EQ(receiver[1].placed, before);
  EXPECT_LE(completion.told, 1);
}

}  // namespace aiacc::message_conformance
