#include "runtime/timeline/traffic_rows.h"

#include <gtest/gtest.h>

namespace aiacc {
namespace {

using std::chrono::milliseconds;

TEST(TrafficRows, SayWhatWasCarriedBetweenTwoLooksAndOnceThatNothingIs) {
  std::vector<ConnectionTraffic> counts{{1, 0, 1'000'000, 7}};
  TrafficRows rows([&counts] { return counts; });
  const Instant began = Instant(milliseconds(5));
  rows.begin(began);
  rows.look(began + milliseconds(10));
  EXPECT_TRUE(rows.take().empty()) << "nothing since the begin";

  counts[0].sent += 500;
  counts.push_back({2, 1, 0, 300});  // a new connection
  rows.look(began + milliseconds(20));
  for (int idle = 3; idle < 6; ++idle) rows.look(began + idle * milliseconds(10));
  const std::vector<TrafficRows::Rate> rates = rows.take();
  ASSERT_EQ(rates.size(), 4u);
  EXPECT_EQ(rates[0].rank, 1);
  EXPECT_EQ(rates[0].from, began + milliseconds(10));
  EXPECT_DOUBLE_EQ(rates[0].sent, 50'000);
  EXPECT_DOUBLE_EQ(rates[0].received, 0);
  EXPECT_EQ(rates[1].rank, 2);
  EXPECT_EQ(rates[1].number, 1u);
  EXPECT_DOUBLE_EQ(rates[1].received, 30'000);
  EXPECT_EQ(rates[2].from, began + milliseconds(20));
  EXPECT_DOUBLE_EQ(rates[2].sent + rates[3].received, 0);

  rows.look(began + milliseconds(50));  // no time has passed
  EXPECT_TRUE(rows.take().empty());
  counts[0].sent += 1;
  rows.begin(began + milliseconds(60));
  rows.look(began + milliseconds(70));
  EXPECT_TRUE(rows.take().empty()) << "of the session before";
}

}  // namespace
}  // namespace aiacc
