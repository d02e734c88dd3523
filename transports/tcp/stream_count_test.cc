#include "transports/tcp/stream_count.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

namespace aiacc::tcp {
namespace {

using Speed = std::function<double(int)>;  // of so many connections

// Runs so many measurements, and returns what was tried.
std::vector<int> measure(StreamCount& count, const Speed& speed, int measurements) {
  std::vector<int> tried;
  for (int i = 0; i < measurements; ++i) {
    tried.push_back(count.wanted());
    const int now = count.wanted();
    for (int period = 0; period <= StreamCount::kPeriods; ++period) {
      EXPECT_EQ(count.wanted(), now) << "in the middle of a measurement";
      count.period(speed(now));
    }
  }
  return tried;
}

// A line of 1 on which each connection has at most `cap`.
Speed capped(double cap) {
  return [cap](int connections) { return std::min(1.0, cap * connections); };
}

TEST(StreamCount, AFixedNumberStays) {
  StreamCount count(4, 4);
  EXPECT_FALSE(count.adapts());
  measure(count, capped(0.1), 100);
  EXPECT_EQ(count.wanted(), 4);
}

TEST(StreamCount, OneStaysWhereMoreAreNotFaster) {
  StreamCount count(1, 64);
  const std::vector<int> tried = measure(count, capped(1), 1000);
  EXPECT_EQ(count.wanted(), 1);
  EXPECT_EQ(tried[0], 1);
  EXPECT_EQ(tried[1], 2);
  EXPECT_LE(std::count(tried.begin(), tried.end(), 2), 13) << "1, after 16, 32, 64 and then each 128 measurements";
  EXPECT_EQ(*std::max_element(tried.begin(), tried.end()), 2);
}

TEST(StreamCount, FourAreFoundWhereEachHasThirtyPercent) {
  StreamCount count(1, 64);
  const std::vector<int> tried = measure(count, capped(0.3), 7);
  EXPECT_EQ(tried, (std::vector<int>{1, 2, 4, 8, 3, 4, 4}));
  EXPECT_EQ(count.wanted(), 4);
}

TEST(StreamCount, WhateverTheCapTheLineIsFoundWithFewMore) {
  for (int share = 1; share <= 64; ++share) {
    StreamCount count(1, 64);
    const Speed speed = capped(1.0 / share);
    measure(count, speed, 200);
    std::vector<int> kept = measure(count, speed, 50);
    std::sort(kept.begin(), kept.end());
    const int usual = kept[kept.size() / 2];
    EXPECT_GE(speed(usual), 0.95) << share;
    EXPECT_LE(usual, share + share / 16 + 1) << share;
  }
}

TEST(StreamCount, ItStaysWithinItsBounds) {
  StreamCount count(2, 6);
  for (const int tried : measure(count, capped(0.01), 200)) {
    EXPECT_GE(tried, 2);
    EXPECT_LE(tried, 6);
  }
  measure(count, capped(0.01), 20);
  EXPECT_EQ(count.wanted(), 6);
  const std::vector<int> tried = measure(count, capped(1), 200);
  EXPECT_EQ(*std::min_element(tried.end() - 20, tried.end()), 2);
}

TEST(StreamCount, ThePeerMayWantFewer) {
  StreamCount count(1, 64);
  measure(count, capped(0.05), 6);
  EXPECT_GT(count.wanted(), 3);
  count.limit(3);
  EXPECT_LE(count.wanted(), 3);
  for (const int tried : measure(count, capped(0.05), 100)) EXPECT_LE(tried, 3);
  StreamCount fixed(4, 4);
  fixed.limit(2);
  EXPECT_EQ(fixed.wanted(), 2);
  EXPECT_FALSE(fixed.adapts());
}

TEST(StreamCount, AnotherStateOfTheNetworkIsFoundSoon) {
  StreamCount count(1, 64);
  measure(count, capped(1), 600);
  EXPECT_EQ(count.wanted(), 1);
  measure(count, capped(0.3), 12);
  EXPECT_EQ(count.wanted(), 4);
}

// Speeds that vary by a few percent from period to period.
TEST(StreamCount, NoiseCostsLittle) {
  std::uint32_t seed = 1;
  const Speed speed = [&seed](int connections) {
    seed = seed * 1664525 + 1013904223;
    return std::min(1.0, 0.3 * connections) * (0.97 + 0.06 * static_cast<double>(seed >> 16) / 65536);
  };
  StreamCount count(1, 64);
  measure(count, speed, 20);
  double sum = 0;
  const std::vector<int> tried = measure(count, speed, 1000);
  for (const int each : tried) sum += std::min(1.0, 0.3 * each);
  EXPECT_GE(sum / 1000, 0.95);
}

}  // namespace
}  // namespace aiacc::tcp
