// Windows of messages: which classes have one, and what they do to a line whose peer acknowledges each message when it has come. The bounds
// are exact figures of the model; none depends on a clock.
#include "transports/qos/class_windows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include "transports/qos/latency_use.h"

namespace aiacc {
namespace {

using namespace std::chrono_literals;
using Traffic = TrafficClass;

constexpr unsigned kBulkBit = 1U << static_cast<unsigned>(Traffic::kBulk);
constexpr unsigned kBackgroundBit = 1U << static_cast<unsigned>(Traffic::kBackground);

ClassWindows::Delays delays(std::optional<Duration> bulk, std::optional<Duration> background) {
  return {std::nullopt, std::nullopt, bulk, background};
}

// A line of 100 Mbit/s with a path of 200 us there and back, or another, behind a FIFO queue without an end. Something
// of bulk always waits.
struct SlowLine {
  static constexpr double kBytesPerSecond = 12.5e6;

  explicit SlowLine(Duration limit, std::uint64_t its_bytes) : windows(delays(limit, {}), false), bytes(its_bytes) {}

  void run(Duration time) {
    const Instant end = after(now, time);
    while (now < end) {
      ClassTurns::Bytes oldest{};
      oldest[static_cast<std::size_t>(Traffic::kBulk)] = bytes;
      while (windows.held_back(kBulkBit, oldest, false, now) == 0) {
        const Instant free = std::max(now, line_free);
        longest_wait = std::max(longest_wait, free - now);
        line_free =
            after(free, Duration(static_cast<std::int64_t>(static_cast<double>(bytes) / kBytesPerSecond * 1e9)));
        under_way.emplace_back(number, after(line_free, path));
        windows.began(Traffic::kBulk, number++, bytes, now);
      }
      now = under_way.front().second;
      windows.acknowledged(Traffic::kBulk, under_way.front().first, now);
      under_way.pop_front();
      delivered += static_cast<double>(bytes);
    }
  }

  ClassWindows windows;
  std::uint64_t bytes;
  Duration path = 200us;
  Instant now{};
  Instant line_free{};
  std::deque<std::pair<std::uint64_t, Instant>> under_way;
  std::uint64_t number = 0;
  Duration longest_wait{};  // in the queue
  double delivered = 0;
};

TEST(ClassWindows, KeepTheQueueToTheLimitAndAPartAndTheLineBusy) {
  for (const Duration limit : {Duration(1ms), Duration(2ms), Duration(10ms)}) {
    SlowLine line(limit, ClassWindows::kPartBytes);
    line.run(1s);
    line.longest_wait = {};
    line.delivered = 0;
    line.run(1s);
    const Duration part(static_cast<std::int64_t>(ClassWindows::kPartBytes / SlowLine::kBytesPerSecond * 1e9));
    EXPECT_LE(line.longest_wait, limit + part);
    EXPECT_GE(line.delivered, 0.85 * SlowLine::kBytesPerSecond);
  }
}

// 16 KiB of which the round trip is known, and then messages that are shorter than a packet: one is never stuck, many are limited.
TEST(ClassWindows, LimitShortMessagesToo) {
  SlowLine line(1ms, ClassWindows::kPartBytes);
  line.run(1s);
  line.bytes = 1000;
  line.run(1s);
  line.longest_wait = {};
  line.run(1s);
  EXPECT_LE(line.longest_wait, 3ms);
}

// Longer than the limit, and nothing else was sent on it.
TEST(ClassWindows, ShortMessagesFillALongPath) {
  SlowLine line(1ms, 1000);
  line.path = 20ms;
  line.run(10s);
  line.longest_wait = {};
  line.delivered = 0;
  line.run(1s);
  EXPECT_LE(line.longest_wait, 3ms);
  EXPECT_GE(line.delivered, 0.85 * SlowLine::kBytesPerSecond);
}

// The window's own queue does not come to count as a part of the path.
TEST(ClassWindows, KeepTheQueueToTheLimitForManySpans) {
  SlowLine line(1ms, ClassWindows::kPartBytes);
  line.run(1s);
  line.longest_wait = {};
  line.delivered = 0;
  line.run(20min);
  const Duration part(static_cast<std::int64_t>(ClassWindows::kPartBytes / SlowLine::kBytesPerSecond * 1e9));
  EXPECT_LE(line.longest_wait, 1ms + part);
  EXPECT_GE(line.delivered, 0.85 * 1200 * SlowLine::kBytesPerSecond);
}

TEST(ClassWindows, AMessageOfAnyLengthMayBeginWhereNothingIsUnderWay) {
  SlowLine line(10us, 1 << 20);
  line.run(1s);
  EXPECT_GE(line.number, 10u);
  EXPECT_EQ(line.under_way.size(), 0u) << "one after the other";
}

TEST(ClassWindows, AreThoseOfTheUserAndOfBulkBesideLatency) {
  const auto limited = [](const ClassWindows& windows, bool latency_in_use) {
    unsigned classes = 0;
    for (unsigned traffic = 0; traffic < kTrafficClasses; ++traffic) {
      if (windows.limits(static_cast<Traffic>(traffic), latency_in_use)) classes |= 1U << traffic;
    }
    return classes;
  };
  EXPECT_EQ(limited(ClassWindows(delays({}, {}), true), true), kBulkBit | kBackgroundBit);
  EXPECT_EQ(limited(ClassWindows(delays({}, {}), true), false), 0u);
  EXPECT_EQ(limited(ClassWindows(delays({}, {}), false), true), 0u);
  EXPECT_EQ(limited(ClassWindows(delays(Duration(0), {}), true), true), kBackgroundBit);
  EXPECT_EQ(limited(ClassWindows(delays(2ms, {}), true), false), kBulkBit);
  EXPECT_EQ(limited(ClassWindows({std::nullopt, 1ms, std::nullopt, std::nullopt}, false), false), 1U << 1);
}

// Two classes of one window: what bulk has under way counts for background, which does not overtake a part that has no room.
TEST(ClassWindows, ClassesWithOneLimitShareAWindow) {
  for (const bool same : {true, false}) {
    ClassWindows windows(delays(2ms, same ? 2ms : 3ms), false);
    ClassTurns::Bytes oldest{0, 0, 10'000, 100};
    EXPECT_EQ(windows.held_back(kBulkBit | kBackgroundBit, oldest, false, Instant{}), 0u);
    windows.began(Traffic::kBulk, 0, 10'000, Instant{});
    EXPECT_EQ(windows.held_back(kBulkBit | kBackgroundBit, oldest, false, Instant{}),
              same ? kBulkBit | kBackgroundBit : kBulkBit);
    windows.acknowledged(Traffic::kBackground, 0, Instant{});
    EXPECT_NE(windows.held_back(kBulkBit, oldest, false, Instant{}), 0u) << "another message was acknowledged";
    windows.acknowledged(Traffic::kBulk, 0, Instant{});
    EXPECT_EQ(windows.held_back(kBulkBit | kBackgroundBit, oldest, false, Instant{}), 0u);
  }
}

TEST(ClassWindows, DivideUntilTheWindowIsWide) {
  ClassWindows windows(delays({}, {}), true);
  EXPECT_FALSE(windows.divides(Traffic::kBulk, false));
  EXPECT_TRUE(windows.divides(Traffic::kBulk, true));
  EXPECT_FALSE(windows.divides(Traffic::kLatency, true));
  EXPECT_EQ(windows.part_bytes(Traffic::kBulk), ClassWindows::kPartBytes);
  ClassTurns::Bytes oldest{0, 0, 64 << 10, 0};
  Instant now{};
  for (std::uint64_t number = 0; number < 4000;) {  // all of it comes at once, 100 us later
    std::uint64_t began = number;
    while (windows.held_back(kBulkBit, oldest, true, now) == 0) windows.began(Traffic::kBulk, began++, 64 << 10, now);
    now = after(now, 100us);
    while (number < began) windows.acknowledged(Traffic::kBulk, number++, now);
  }
  EXPECT_FALSE(windows.divides(Traffic::kBulk, true));
  EXPECT_EQ(windows.part_bytes(Traffic::kBulk), ClassWindows::kMostPartBytes);
  EXPECT_EQ(windows.held_back(kBulkBit, oldest, false, now), 0u);  // latency has not been in use for some time
  EXPECT_TRUE(windows.divides(Traffic::kBulk, true)) << "the window begins anew";
}

TEST(MessageFlow, TheLeastRoundTripIsOfMinutes) {
  MessageFlow flow;
  Instant now{};
  std::uint64_t number = 0;
  const auto take = [&](std::uint64_t bytes, Duration time) {
    flow.sent(Traffic::kBulk, number, bytes, now);
    now = after(now, time);
    EXPECT_TRUE(flow.acknowledged(Traffic::kBulk, number++, now));
  };
  take(MessageFlow::kLeastTimed - 1, 1us);
  EXPECT_EQ(flow.state().least_rtt, 1us) << "until a longer one tells";
  take(16 << 10, 3ms);
  take(16 << 10, 2ms);
  take(16 << 10, 5ms);
  take(MessageFlow::kLeastTimed - 1, 1us);
  EXPECT_EQ(flow.state().least_rtt, 2ms);
  now = after(now, MessageFlow::kSpan);
  take(16 << 10, 4ms);
  EXPECT_EQ(flow.state().least_rtt, 2ms);
  now = after(now, MessageFlow::kSpan);
  take(16 << 10, 4ms);
  EXPECT_EQ(flow.state().least_rtt, 4ms);
  EXPECT_EQ(flow.state().held, 0u);
  EXPECT_FALSE(flow.acknowledged(Traffic::kBulk, 0, now)) << "again";
}

}  // namespace
}  // namespace aiacc
