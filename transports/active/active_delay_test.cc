// Limits of delay over the libraries, as events: nothing here depends on how long something takes. Exact figures:
// transports/qos/class_windows_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "transports/active/active_fixture_test.h"
#include "transports/active/active_tapped_test.h"
#include "transports/active/frame.h"
#include "transports/qos/class_windows.h"

namespace aiacc {
namespace {

using message_conformance::Action;
using message_conformance::Completion;
using message_conformance::header_of;
using message_conformance::pattern;
using message_conformance::Recorder;
using Traffic = TrafficClass;

ActivePortFactory::Marks marks_with(const char* bulk) {
  return {io::TrafficMarks{}, io::TrafficMarks{}, io::TrafficMarks::parse("AIACC_TC_BULK", bulk), io::TrafficMarks{}};
}

class ActiveDelay : public ::testing::TestWithParam<const active_test::Way*> {
 protected:
  void SetUp() override {
    const std::string& obstacle = active_test::obstacle(*GetParam());
    if (!obstacle.empty()) GTEST_SKIP() << obstacle;
    open("delay=1ms");
  }
  void TearDown() override {
    if (ports == nullptr) return;
    for (int rank = 0; rank < message_conformance::kRanks; ++rank) ports->port(rank).close();
  }
  void open(const char* bulk) {
    ports = std::make_unique<active_test::Ports>(*GetParam(), 7, nullptr, marks_with(bulk));
    for (int rank = 0; rank < message_conformance::kRanks; ++rank) ports->port(rank).set_receiver(receiver[rank]);
  }
  void post(std::uint32_t tag, std::vector<std::byte>& bytes, Completion& completion,
            Traffic traffic = Traffic::kBulk) {
    tcp_test::post(ports->port(0), 1, header_of(tag, bytes.size(), traffic), bytes, completion);
  }
  // Rank 0 alone goes on for a while, as long as it has something to do; rank 1 is as if it computed.
  void run_alone() {
    for (int look = 0; look < 2000; ++look) ports->loops[0]->look();
  }
  // Both have connected.
  void meet() {
    std::vector<std::byte> few = pattern(10, 1);
    Completion told;
    post(0, few, told);
    ASSERT_TRUE(ports->run_until([&] { return receiver[1].placed == 1 && told.told == 1; }));
    receiver[1].messages.clear();
    receiver[1].placed = 0;
  }
  bool placed(std::size_t count) {
    return ports->run_until([&] { return receiver[1].placed >= count; });
  }

  Recorder receiver[message_conformance::kRanks];
  std::unique_ptr<active_test::Ports> ports;
};

// Without acknowledgements nothing more begins than one message.
TEST_P(ActiveDelay, BulkWaitsForTheAcknowledgementOfWhatIsUnderWay) {
  meet();
  std::vector<std::byte> bytes = pattern(30'000, 1), few = pattern(100, 2);
  Completion first, others, urgent;
  post(1, bytes, first);
  for (std::uint32_t tag = 2; tag <= 9; ++tag) post(tag, bytes, others);
  post(100, few, urgent, Traffic::kLatency);
  run_alone();
  EXPECT_EQ(others.told, 0);
  ASSERT_TRUE(placed(10));
  ASSERT_TRUE(ports->run_until([&] { return first.told == 1 && others.told == 8 && urgent.told == 1; }));
  for (const Recorder::Message& each : receiver[1].messages) {
    EXPECT_TRUE(each.bytes == (each.header.traffic == Traffic::kBulk ? bytes : few));
  }
}

// Of a peer's point of view they are whole, and in order with others.
TEST_P(ActiveDelay, LongMessagesInPartsArriveWhole) {
  constexpr std::uint32_t kCount = 24;
  std::vector<std::byte> bytes = pattern(400'001, 3);
  Completion told;
  for (std::uint32_t tag = 0; tag < kCount; ++tag) {
    const std::size_t length = tag % 4 == 3 ? 50 : bytes.size() - 1000 * tag;
    const Buffer whole{bytes.data(), length};
    const std::size_t third = length / 3;
    const Buffer pieces[] = {whole.slice(0, third), whole.slice(third, 1), whole.slice(third + 1, length - third - 1)};
    ports->port(0).post(1, header_of(tag, length), pieces, told);
  }
  ASSERT_TRUE(placed(kCount));
  ASSERT_TRUE(ports->run_until([&] { return told.told == kCount; }));
  EXPECT_EQ(told.error, nullptr);
  EXPECT_TRUE(std::is_sorted(receiver[1].asked.begin(), receiver[1].asked.end()));
  for (const Recorder::Message& each : receiver[1].messages) {
    EXPECT_TRUE(std::equal(each.bytes.begin(), each.bytes.end(), bytes.begin())) << each.header.step;
  }
}

// The receiver, which has some of its parts, gets nothing of it, and the next one whole.
TEST_P(ActiveDelay, AMessageIsWithdrawnBetweenItsParts) {
  meet();
  std::vector<std::byte> bytes = pattern(500'000, 4), other = pattern(300'000, 5);
  const std::vector<std::byte> original = other;
  Completion withdrawn, told;
  post(1, bytes, withdrawn);
  post(2, other, told);
  run_alone();
  EXPECT_EQ(withdrawn.told, 0);
  ports->port(0).withdraw(withdrawn);
  EXPECT_EQ(withdrawn.told, 0) << "told from inside";
  for (int look = 0; look < 2000 && withdrawn.told == 0; ++look) ports->loops[0]->look();
  ASSERT_EQ(withdrawn.told, 1) << "it waits for the peer";
  EXPECT_EQ(as_error(withdrawn.error).code(), Code::kAborted);
  std::fill(bytes.begin(), bytes.end(), std::byte{0xee});
  ASSERT_TRUE(placed(1));
  ASSERT_TRUE(ports->run_until([&] { return told.told == 1; }));
  EXPECT_EQ(receiver[1].asked, (std::vector<std::uint32_t>{0, 2}));
  EXPECT_TRUE(receiver[1].messages.front().bytes == original);
}

// What the receiver holds keeps nothing else waiting.
TEST_P(ActiveDelay, HeldMessagesFillNoWindow) {
  receiver[1].decide = [](int, const MessageHeader& header) { return header.step < 8 ? Action::kHold : Action::kInto; };
  std::vector<std::byte> bytes = pattern(60'000, 6), longer = pattern(200'000, 7);
  Completion told;
  for (std::uint32_t tag = 0; tag < 8; ++tag) post(tag, tag % 2 == 0 ? bytes : longer, told);
  post(8, longer, told);
  ASSERT_TRUE(placed(1));
  EXPECT_EQ(receiver[1].messages.front().header.step, 8u);
  receiver[1].decide = nullptr;
  ports->port(1).release(0);
  ASSERT_TRUE(placed(9));
  ASSERT_TRUE(ports->run_until([&] { return told.told == 9; }));
  for (const Recorder::Message& each : receiver[1].messages) {
    EXPECT_TRUE(each.bytes == (each.header.step % 2 == 0 && each.header.step < 8 ? bytes : longer)) << each.header.step;
  }
}

TEST_P(ActiveDelay, WhoLeavesHasSentWhatWaits) {
  std::vector<std::byte> bytes = pattern(300'000, 8);
  Completion told;
  for (std::uint32_t tag = 0; tag < 6; ++tag) post(tag, bytes, told);
  Stop stop;
  std::vector<Task<void>> leaving;
  for (int rank = 0; rank < message_conformance::kRanks; ++rank) {
    leaving.push_back(ports->port(rank).leave(std::chrono::seconds(50), stop));
    leaving.back().start();
  }
  ASSERT_TRUE(ports->run_until(
      [&] { return std::all_of(leaving.begin(), leaving.end(), [](const Task<void>& each) { return each.done(); }); }));
  EXPECT_EQ(told.told, 6);
  EXPECT_TRUE(placed(6));
}

INSTANTIATE_TEST_SUITE_P(Active, ActiveDelay, ::testing::ValuesIn(active_test::kWays),
                         [](const auto& one) { return one.param->name; });

class ActiveDelayOverUcx : public ActiveDelay {};

// Without a limit of its own, over TCP.
TEST_P(ActiveDelayOverUcx, BulkHasALimitWhileLatencyIsInUse) {
  for (const auto& [bulk, in_use, limited] :
       {std::tuple("", false, false), {"", true, true}, {"delay=none", true, false}}) {
    TearDown();
    for (Recorder& each : receiver) each = Recorder();
    open(bulk);
    meet();
    if (in_use) ports->port(0).note_latency();
    std::vector<std::byte> bytes = pattern(30'000, 1);
    Completion first, second;
    post(1, bytes, first);
    post(2, bytes, second);
    for (int look = 0; look < 2000; ++look) {
      if (in_use) ports->port(0).note_latency();  // the machine may be slow
      ports->loops[0]->look();
    }
    EXPECT_EQ(second.told, limited ? 0 : 1) << bulk;
    ASSERT_TRUE(placed(2));
    ASSERT_TRUE(ports->run_until([&] { return second.told == 1; }));
  }
}

TEST_P(ActiveDelayOverUcx, AcknowledgementsDoNotWaitBehindBulk) {
  active_test::TappedPorts two(*GetParam(), 2, marks_with("delay=1ms"));
  int by_control = 0, by_bulk = 0;
  two.tap = [&](active_test::TappedPorts::Sent& sent) {
    if (sent.message.frame.kind == active::FrameKind::kCame) {
      EXPECT_EQ(sent.message.frame.traffic, Traffic::kBulk) << "of what is acknowledged";
      (sent.worker == two.first_worker[1] ? by_control : by_bulk) += 1;
    }
    return std::nullopt;
  };
  std::vector<std::byte> bytes = pattern(300'000, 1);
  Completion told;
  tcp_test::post(*two.ports[0], 1, header_of(1, bytes.size()), bytes, told);
  ASSERT_TRUE(two.run_until([&] { return two.receiver[1].placed == 1 && told.told == 1; }));
  EXPECT_GE(by_control, 300'000 / static_cast<int>(ClassWindows::kMostPartBytes));
  EXPECT_EQ(by_bulk, 0);
}

// Two classes of one window: what waits for its rate fills no window, and keeps nobody from it.
TEST_P(ActiveDelayOverUcx, WhatWaitsForItsRateKeepsNoOtherClassWaiting) {
  TearDown();
  const ActivePortFactory::Marks marks = {io::TrafficMarks{}, io::TrafficMarks{},
                                          io::TrafficMarks::parse("AIACC_TC_BULK", "delay=1ms"),
                                          io::TrafficMarks::parse("AIACC_TC_BG", "delay=1ms,rate=8kbit")};
  ports = std::make_unique<active_test::Ports>(*GetParam(), 7, nullptr, marks);
  for (int rank = 0; rank < message_conformance::kRanks; ++rank) ports->port(rank).set_receiver(receiver[rank]);
  std::vector<std::byte> bytes = pattern(30'000, 1), few = pattern(1000, 2);
  Completion first, waits, bulk;
  post(1, bytes, first, Traffic::kBackground);  // takes 30 s of the rate
  ASSERT_TRUE(placed(1));
  Completion after;
  post(9, few, after);  // waits for the acknowledgement of the first
  ASSERT_TRUE(ports->run_until([&] { return first.told == 1 && after.told == 1; }));
  post(2, bytes, waits, Traffic::kBackground);
  for (std::uint32_t tag = 3; tag < 8; ++tag) post(tag, few, bulk);
  run_alone();
  EXPECT_EQ(bulk.told, 5) << "the window has room for them";
  EXPECT_EQ(waits.told, 0);
  ports->port(0).withdraw(waits);
  ASSERT_TRUE(ports->run_until([&] { return waits.told == 1 && bulk.told == 5; }));
}

INSTANTIATE_TEST_SUITE_P(Active, ActiveDelayOverUcx, ::testing::Values(&active_test::kUcxOverTcp),
                         [](const auto& one) { return one.param->name; });

}  // namespace
}  // namespace aiacc

namespace aiacc::message_conformance {
namespace {

// Rank 0's window never grows beyond a message or a part.
template <const active_test::Way& kWay>
std::unique_ptr<PortsUnderTest> in_narrow_windows() {
  struct Over : active_test::Ports {
    Over() : Ports(kWay, 7, nullptr, marks_with("delay=10us")) {}
  };
  return active_test::obstacle(kWay).empty() ? make<Over>() : nullptr;
}

}  // namespace
INSTANTIATE_TEST_SUITE_P(UcxInNarrowWindows, MessageConformance,
                         ::testing::Values(&in_narrow_windows<active_test::kUcxOverTcp>));
INSTANTIATE_TEST_SUITE_P(OfiInNarrowWindows, MessageConformance,
                         ::testing::Values(&in_narrow_windows<active_test::kOfiOverTcp>));
}  // namespace aiacc::message_conformance
