// Shares and rates of traffic classes over the libraries. Exact bounds: transports/qos/class_turns_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "transports/active/active_fixture_test.h"
#include "transports/qos/class_turns.h"

namespace aiacc {
namespace {

using message_conformance::Completion;
using message_conformance::header_of;
using message_conformance::pattern;
using message_conformance::Recorder;
using Traffic = TrafficClass;

constexpr std::size_t kLong = 256 << 10;

class ActiveShares : public ::testing::TestWithParam<const active_test::Way*> {
 protected:
  void SetUp() override {
    const std::string& obstacle = active_test::obstacle(*GetParam());
    if (!obstacle.empty()) GTEST_SKIP() << obstacle;
  }
  void TearDown() override {
    if (ports == nullptr) return;
    for (int rank = 0; rank < message_conformance::kRanks; ++rank) ports->port(rank).close();
  }
  // What rank 0 sends has these marks.
  void open(const char* bulk, const char* background) {
    const ActivePortFactory::Marks marks = {io::TrafficMarks{}, io::TrafficMarks{},
                                            io::TrafficMarks::parse("AIACC_TC_BULK", bulk),
                                            io::TrafficMarks::parse("AIACC_TC_BG", background)};
    ports = std::make_unique<active_test::Ports>(*GetParam(), 7, nullptr, marks);
    for (int rank = 0; rank < message_conformance::kRanks; ++rank) ports->port(rank).set_receiver(receiver[rank]);
  }
  void send(Traffic traffic, int count, std::size_t length, Completion& completion) {
    const Buffer piece{payload.data(), length};
    for (int i = 0; i < count; ++i) {
      ports->port(0).post(1, header_of(++tag_, length, traffic), std::span(&piece, 1), completion);
    }
  }
  std::size_t placed(Traffic traffic) const {
    const auto is_its = [&](const auto& each) { return each.placed && each.header.traffic == traffic; };
    return static_cast<std::size_t>(std::count_if(receiver[1].messages.begin(), receiver[1].messages.end(), is_its));
  }
  bool until_placed(Traffic traffic, std::size_t count) {
    return ports->run_until([&] { return placed(traffic) >= count; });
  }

  std::vector<std::byte> payload = pattern(kLong, 1);
  Recorder receiver[message_conformance::kRanks];
  Completion told;
  std::unique_ptr<active_test::Ports> ports;

 private:
  std::uint32_t tag_ = 0;
};

// What began before the other class came, and what is under way when it is looked at: the bytes of kUnderWay each.
TEST_P(ActiveShares, BulkAndBackgroundShare) {
  constexpr int kMost = 2 * static_cast<int>(ClassTurns::kUnderWay / kLong);
  for (const auto& [bulk, background, share] :
       {std::tuple("", "", 9), {"share=3", "share=1", 3}, {"share=1", "share=1", 1}}) {
    open(bulk, background);
    receiver[1] = {};
    Completion done;
    send(Traffic::kBackground, 1, kLong, done);  // from then on classes take turns
    send(Traffic::kBulk, 100, kLong, done);
    send(Traffic::kBackground, 149, kLong, done);
    ASSERT_TRUE(until_placed(Traffic::kBulk, 90));
    EXPECT_NEAR(static_cast<double>(placed(Traffic::kBackground)), 90.0 / share, kMost) << bulk;
    ASSERT_TRUE(ports->run_until([&] { return done.told == 250; }));
    EXPECT_EQ(done.error, nullptr);
    TearDown();
  }
}

// The time is a lower bound, which no machine can be too slow for.
TEST_P(ActiveShares, ARateIsKeptAndHoldsUpNoOtherClass) {
  open("rate=8mbit", "");
  const Instant began = ports->clock.now();
  Completion others;
  send(Traffic::kBulk, 6, 100'000, told);
  send(Traffic::kBackground, 20, 100'000, others);
  send(Traffic::kLatency, 1, 100, others);
  ASSERT_TRUE(ports->run_until([&] { return others.told == 21; }));
  ASSERT_TRUE(until_placed(Traffic::kBackground, 20) && until_placed(Traffic::kLatency, 1));
  ASSERT_TRUE(until_placed(Traffic::kBulk, 6));
  EXPECT_GE(ports->clock.now() - began, std::chrono::milliseconds(499));
  ASSERT_TRUE(ports->run_until([&] { return told.told == 6; }));
  EXPECT_EQ(told.error, nullptr);
}

// While a slow one has hours to wait.
TEST_P(ActiveShares, EachClassHasARateOfItsOwn) {
  open("rate=80mbit", "rate=8kbit");
  Completion slow;
  send(Traffic::kBackground, 2, 100'000, slow);
  send(Traffic::kBulk, 6, 100'000, told);
  ASSERT_TRUE(until_placed(Traffic::kBulk, 6));
  EXPECT_EQ(placed(Traffic::kBackground), 1u);
  ports->port(0).withdraw(slow);
  ASSERT_TRUE(ports->run_until([&] { return slow.told == 2; }));
}

// 100,000 bytes at 1,000 a second: the second one would begin after 100 s.
TEST_P(ActiveShares, WhatWaitsIsWithdrawnAndLost) {
  open("rate=8kbit", "");
  Completion first, second, third;
  send(Traffic::kBulk, 1, 100'000, first);
  send(Traffic::kBulk, 1, 100'000, second);
  send(Traffic::kBulk, 1, 100, third);  // which is copied
  ASSERT_TRUE(ports->run_until([&] { return first.told == 1; }));
  ports->port(0).withdraw(second);
  EXPECT_EQ(second.told, 0) << "told from inside";
  ASSERT_TRUE(ports->run_until([&] { return second.told == 1; }));
  EXPECT_EQ(as_error(second.error).code(), Code::kAborted);
  EXPECT_EQ(third.told, 0);
  ports->port(0).lose(1, std::make_exception_ptr(Error(Code::kPeerFailed, "its agent says so", 1)));
  ASSERT_TRUE(ports->run_until([&] { return third.told == 1 && receiver[0].lost.size() == 1; }));
  EXPECT_EQ(as_error(third.error).message(), "its agent says so");
}

TEST_P(ActiveShares, WhoLeavesHasSentWhatWaits) {
  open("rate=8mbit", "");
  send(Traffic::kBulk, 4, 50'000, told);
  Stop stop;
  std::vector<Task<void>> leaving;
  for (int rank = 0; rank < message_conformance::kRanks; ++rank) {
    leaving.push_back(ports->port(rank).leave(std::chrono::seconds(50), stop));
    leaving.back().start();
  }
  ASSERT_TRUE(ports->run_until(
      [&] { return std::all_of(leaving.begin(), leaving.end(), [](const Task<void>& each) { return each.done(); }); }));
  EXPECT_EQ(told.told, 4);
  EXPECT_TRUE(
      ports->run_until([&] { return receiver[1].placed == 4; }));  // of who leaves too, the last may be on its way
  EXPECT_TRUE(receiver[1].lost.empty());
}

INSTANTIATE_TEST_SUITE_P(Active, ActiveShares, ::testing::ValuesIn(active_test::kWays),
                         [](const auto& one) { return one.param->name; });

}  // namespace
}  // namespace aiacc

namespace aiacc::message_conformance {
// All that rank 0 sends takes turns, and one class has a rate.
std::unique_ptr<PortsUnderTest> ucx_in_turns() {
  struct Over : active_test::Ports {
    Over()
        : Ports(active_test::kUcxOverTcp, 7, nullptr,
                {io::TrafficMarks{}, io::TrafficMarks{}, io::TrafficMarks::parse("AIACC_TC_BULK", "share=5,rate=8gbit"),
                 io::TrafficMarks::parse("AIACC_TC_BG", "share=2")}) {}
  };
  return active_test::obstacle(active_test::kUcxOverTcp).empty() ? make<Over>() : nullptr;
}
INSTANTIATE_TEST_SUITE_P(UcxInTurns, MessageConformance, ::testing::Values(&ucx_in_turns));
}  // namespace aiacc::message_conformance
