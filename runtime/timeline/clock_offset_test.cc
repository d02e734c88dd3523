#include "runtime/timeline/clock_offset.h"

#include <gtest/gtest.h>

namespace aiacc {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;

Instant at(Duration since) { return Instant(since); }

TEST(ClockOffset, TheShortestRoundTripCounts) {
  ClockOffset offset;
  EXPECT_EQ(offset.ahead(), Duration::zero());
  const auto ask = [&](Duration asked, Duration ahead, Duration there, Duration back) {
    offset.add(at(asked), at(asked + there + ahead), at(asked + there + back));
  };
  ask(seconds(10), seconds(5), microseconds(900), microseconds(100));
  EXPECT_EQ(offset.ahead(), seconds(5) + microseconds(400)) << "half of what the ways differ by";
  EXPECT_EQ(offset.error(), microseconds(500));
  ask(seconds(11), seconds(5), microseconds(50), microseconds(50));
  ask(seconds(12), seconds(5), microseconds(100), microseconds(3000));
  EXPECT_EQ(offset.ahead(), seconds(5));
  EXPECT_EQ(offset.error(), microseconds(50));
}

TEST(ClockOffset, FollowsAClockThatDriftsAndIsBehind) {
  ClockOffset offset;
  for (int i = 0; i < 200; ++i) {
    const Duration behind = seconds(3) + i * microseconds(10);
    const Instant asked = at(seconds(100 + i));
    offset.add(asked, asked + microseconds(20) - behind, asked + microseconds(40));
  }
  EXPECT_LE(offset.ahead(), -(seconds(3) + 167 * microseconds(10)));
  EXPECT_GE(offset.ahead(), -(seconds(3) + 200 * microseconds(10)));
}

}  // namespace
}  // namespace aiacc
