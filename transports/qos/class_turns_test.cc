// Which message begins next: exact bounds, without connections, with instants of the test's own.
#include "transports/qos/class_turns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include "base/sim/random.h"

namespace aiacc {
namespace {

using std::chrono::milliseconds;

using Traffic = TrafficClass;
constexpr std::size_t at(Traffic traffic) { return static_cast<std::size_t>(traffic); }

// Messages that wait, and those under way, whose oldest ends when the test says so.
struct Sender {
  explicit Sender(const ClassTurns::Limits& limits) : turns(limits) {}

  void post(Traffic traffic, std::uint64_t bytes, int count = 1, bool latency_in_use = false) {
    for (int i = 0; i < count; ++i) {
      waits = turns.posts(traffic, latency_in_use);
      queues[at(traffic)].push_back(bytes);
    }
  }
  // Begins what may begin at `now`.
  void begin() {
    for (;;) {
      unsigned waiting = 0;
      ClassTurns::Bytes bytes{};
      for (std::size_t traffic = 0; traffic < kTrafficClasses; ++traffic) {
        if (queues[traffic].empty()) continue;
        waiting |= 1U << traffic;
        bytes[traffic] = queues[traffic].front();
      }
      const auto next = waiting == 0 ? std::nullopt : turns.next(waiting, bytes, now);
      if (!next) {
        wakes = turns.next_by_rate(waiting, now);
        return;
      }
      turns.began(*next, bytes[*next], waiting, now);
      turns.took(*next, bytes[*next]);
      queues[*next].pop_front();
      under_way.emplace_back(*next, bytes[*next]);
      begun[*next] += bytes[*next];
    }
  }
  void end_oldest() {
    const auto [traffic, bytes] = under_way.front();
    under_way.pop_front();
    turns.ended(traffic, bytes);
    begin();
  }

  ClassTurns turns;
  bool waits = false;
  Instant now{std::chrono::hours(1)};
  Instant wakes = kNever;
  std::array<std::deque<std::uint64_t>, kTrafficClasses> queues;
  std::deque<std::pair<std::size_t, std::uint64_t>> under_way;
  ClassTurns::Bytes begun{};
};

TEST(ClassTurns, NothingWaitsOfOneClassWithoutShareAndRate) {
  Sender sender({});
  sender.post(Traffic::kBulk, 64 << 20, 100);
  EXPECT_FALSE(sender.waits);
  sender.begin();
  EXPECT_EQ(sender.under_way.size(), 100u);
}

TEST(ClassTurns, BulkAndBackgroundHaveTheirSharesOfWhatEnds) {
  for (const auto& [bulk, background] : {std::pair(9U, 1U), {3U, 1U}, {1U, 1U}, {1U, 3U}}) {
    ClassTurns::Limits limits;
    limits.shares[at(Traffic::kBulk)] = bulk;
    limits.shares[at(Traffic::kBackground)] = background;
    Sender sender(limits);
    sender.post(Traffic::kBackground, 100'000, 2000);
    EXPECT_TRUE(sender.waits);
    sender.begin();  // before bulk has anything to send
    sender.post(Traffic::kBulk, 100'000, 2000);
    sender.begun = {};
    for (int i = 0; i < 1000; ++i) sender.end_oldest();
    const double whole = bulk + background;
    EXPECT_NEAR(static_cast<double>(sender.begun[at(Traffic::kBulk)]), 1e8 * bulk / whole, 200'000) << bulk;
    EXPECT_NEAR(static_cast<double>(sender.begun[at(Traffic::kBackground)]), 1e8 * background / whole, 200'000) << bulk;
  }
}

// Whatever comes and ends in which order: never more under way than kUnderWay, unless it is one message.
TEST(ClassTurns, NoMoreIsUnderWayThanKeepsALineBusy) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    sim::Random random(seed);
    Sender sender({});
    sender.post(Traffic::kBackground, 1);
    for (int step = 0; step < 300; ++step) {
      if (random.below(2) == 0)
        sender.post(random.below(2) == 0 ? Traffic::kBulk : Traffic::kBackground, 1 + random.below(3 << 20));
      sender.begin();
      std::uint64_t under_way = 0;
      for (const auto& [traffic, bytes] : sender.under_way) under_way += bytes;
      ASSERT_TRUE(under_way <= ClassTurns::kUnderWay || sender.under_way.size() == 1) << seed;
      const bool waits =
          std::any_of(sender.queues.begin(), sender.queues.end(), [](const auto& q) { return !q.empty(); });
      ASSERT_TRUE(!waits || !sender.under_way.empty()) << "it stands still, seed " << seed;
      if (!sender.under_way.empty() && random.below(2) == 0) sender.end_oldest();
    }
    while (!sender.under_way.empty()) sender.end_oldest();
    for (const auto& queue : sender.queues) EXPECT_TRUE(queue.empty());
  }
}

TEST(ClassTurns, ControlAndLatencyWaitForNothingThatIsUnderWay) {
  Sender sender({});
  sender.post(Traffic::kBackground, ClassTurns::kUnderWay);
  sender.begin();
  sender.post(Traffic::kBulk, 1);
  sender.post(Traffic::kLatency, 1 << 20);
  sender.post(Traffic::kControl, 100);
  sender.begin();
  EXPECT_EQ(sender.begun[at(Traffic::kLatency)], 1u << 20);
  EXPECT_EQ(sender.begun[at(Traffic::kControl)], 100u);
  EXPECT_EQ(sender.begun[at(Traffic::kBulk)], 0u);
  sender.end_oldest();
  EXPECT_EQ(sender.begun[at(Traffic::kBulk)], 1u);
}

// Beyond its share and kLead latency is as the others.
TEST(ClassTurns, LatencyThatNeverEndsLeavesBulkItsShare) {
  ClassTurns::Limits limits;
  limits.takes_turns = true;
  Sender sender(limits);
  sender.post(Traffic::kBulk, 10'000, 20'000);
  sender.post(Traffic::kLatency, 10'000, 200'000);
  sender.begin();
  while (!sender.queues[at(Traffic::kLatency)].empty() && !sender.under_way.empty()) sender.end_oldest();
  const auto latency = static_cast<double>(sender.begun[at(Traffic::kLatency)]);
  EXPECT_NEAR(static_cast<double>(sender.begun[at(Traffic::kBulk)]), latency / 10, latency / 100);
}

TEST(ClassTurns, BulkKeepsToALittleWhileLatencyIsInUse) {
  Sender sender({});
  sender.post(Traffic::kBulk, 100'000, 50, true);
  EXPECT_TRUE(sender.waits);
  sender.begin();
  EXPECT_EQ(sender.begun[at(Traffic::kBulk)], 1'000'000u);
  sender.post(Traffic::kBulk, 100'000, 1, false);
  EXPECT_FALSE(sender.waits);
  sender.begin();
  EXPECT_EQ(sender.begun[at(Traffic::kBulk)], 5'100'000u);
}

TEST(ClassTurns, ARateIsKeptOverAnyTimeLongerThanItsBurst) {
  ClassTurns::Limits limits;
  limits.bytes_per_second[at(Traffic::kBulk)] = 10'000'000;
  Sender sender(limits);
  const Instant start = sender.now;
  sender.post(Traffic::kBulk, 50'000, 400);
  EXPECT_TRUE(sender.waits);
  sender.post(Traffic::kBackground, 50'000, 3);
  while (!sender.queues[at(Traffic::kBulk)].empty()) {
    sender.begin();
    while (!sender.under_way.empty()) sender.end_oldest();
    const double may = 10'000'000 * (seconds(sender.now - start) + seconds(ClassTurns::kBurst)) + 50'001;
    ASSERT_LE(static_cast<double>(sender.begun[at(Traffic::kBulk)]), may);
    if (sender.wakes != kNever) {
      ASSERT_GT(sender.wakes, sender.now);
      sender.now = sender.wakes;
    }
  }
  EXPECT_EQ(sender.begun[at(Traffic::kBackground)], 150'000u);  // which has no rate
  // The last one begins when the rate has let 399 and what a burst spares go.
  EXPECT_EQ(sender.now - start, milliseconds(1995) - ClassTurns::kBurst);
}

TEST(ClassTurns, AClassThatWaitsForItsRateHoldsUpNoOther) {
  ClassTurns::Limits limits;
  limits.bytes_per_second[at(Traffic::kBulk)] = 1000;
  Sender sender(limits);
  sender.post(Traffic::kBulk, 5000, 2);
  sender.begin();
  sender.post(Traffic::kBackground, 300'000, 10);
  sender.begin();
  for (int i = 0; i < 10; ++i) sender.end_oldest();
  EXPECT_EQ(sender.begun[at(Traffic::kBulk)], 5000u);
  EXPECT_EQ(sender.begun[at(Traffic::kBackground)], 3'000'000u);
  EXPECT_EQ(sender.wakes, after(sender.now, std::chrono::seconds(5) - ClassTurns::kBurst));
}

}  // namespace
}  // namespace aiacc
