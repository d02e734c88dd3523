// Which class sends next: exact bounds, without connections and without time.
#include "transports/qos/class_shares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "base/sim/random.h"

namespace aiacc {
namespace {

constexpr std::size_t kControl = 0, kLatency = 1, kBulk = 2, kBackground = 3;
constexpr unsigned bit(std::size_t traffic) { return 1U << traffic; }
using Bytes = std::array<std::uint64_t, kTrafficClasses>;

// Sends parts of the lengths that `length` says, each by the class whose turn it is.
Bytes send(ClassShares& shares, unsigned waiting, int parts, const std::function<std::uint64_t(std::size_t)>& length,
           const std::function<void(const Bytes&)>& look = {}) {
  Bytes sent{};
  for (int i = 0; i < parts; ++i) {
    const std::size_t traffic = shares.first(waiting);
    const std::uint64_t bytes = length(traffic);
    shares.took(traffic, bytes, waiting);
    sent[traffic] += bytes;
    if (look) look(sent);
  }
  return sent;
}
std::uint64_t always(std::size_t) { return 1000; }

TEST(ClassShares, BulkAndBackgroundHaveNineToOne) {
  ClassShares shares;
  const Bytes sent = send(shares, bit(kBulk) | bit(kBackground), 1000, always);
  EXPECT_EQ(sent[kBulk], 900'000u);
  EXPECT_EQ(sent[kBackground], 100'000u);
}

// After each part, not only in the end.
TEST(ClassShares, AreKeptToWithinOnePartOfEach) {
  sim::Random random(1);
  for (int round = 0; round < 50; ++round) {
    const std::uint32_t bulk = 1 + static_cast<std::uint32_t>(random.below(20));
    const std::uint32_t background = 1 + static_cast<std::uint32_t>(random.below(20));
    ClassShares shares({1, 1, bulk, background});
    const std::uint64_t most[] = {0, 0, 1 + random.below(1 << 20), 1 + random.below(1 << 20)};
    const double bound = double(most[kBulk]) / bulk + double(most[kBackground]) / background + 1;
    send(
        shares, bit(kBulk) | bit(kBackground), 500, [&](std::size_t of) { return 1 + random.below(most[of]); },
        [&](const Bytes& sent) {
          const double gap = double(sent[kBulk]) / bulk - double(sent[kBackground]) / background;
          EXPECT_LE(std::abs(gap), bound);
        });
  }
}

TEST(ClassShares, WhatIsIdleIsLentAndNotPaidBack) {
  ClassShares shares;
  EXPECT_EQ(send(shares, bit(kBackground), 1000, always)[kBackground], 1'000'000u);
  EXPECT_EQ(send(shares, bit(kBulk), 1000, always)[kBulk], 1'000'000u);
  const Bytes sent = send(shares, bit(kBulk) | bit(kBackground), 10, always);
  EXPECT_EQ(sent[kBulk], 9000u);
  EXPECT_EQ(sent[kBackground], 1000u);
}

TEST(ClassShares, ControlGoesFirst) {
  ClassShares shares;
  EXPECT_EQ(send(shares, 0b1111, 100, always)[kControl], 100'000u);
  EXPECT_EQ(shares.first(bit(kBulk) | bit(kBackground)), kBulk);
}

// Strict first, and then its share: others are late by its lead and no longer.
TEST(ClassShares, LatencyGoesFirstButNotForEver) {
  ClassShares shares;
  constexpr std::uint64_t kPart = 64 << 10;
  const auto part = [](std::size_t) { return kPart; };
  const unsigned all = bit(kLatency) | bit(kBulk) | bit(kBackground);
  const int lead = static_cast<int>(ClassShares::kLead / kPart) + 1;
  EXPECT_EQ(send(shares, all, lead, part)[kLatency], static_cast<std::uint64_t>(lead) * kPart);
  const Bytes sent = send(shares, all, 10'000, part);
  EXPECT_EQ(sent[kLatency], 9'000 * kPart);
  EXPECT_EQ(sent[kBulk], 900 * kPart);
  EXPECT_EQ(sent[kBackground], 100 * kPart);
}

TEST(ClassShares, ShortMessagesBesideLongOnesAlwaysGoFirst) {
  ClassShares shares;
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(shares.first(bit(kLatency) | bit(kBulk)), kLatency);
    shares.took(kLatency, 8192, bit(kLatency) | bit(kBulk));
    shares.took(kBulk, 1 << 20, bit(kBulk));
  }
}

TEST(ClassShares, AClassFarAheadShouldWaitForTheOther) {
  ClassShares shares;
  const unsigned both = bit(kBulk) | bit(kBackground);
  shares.took(kBackground, ClassShares::kSlack, both);
  EXPECT_FALSE(shares.far_ahead(kBackground, kBulk));
  shares.took(kBackground, 1, both);
  EXPECT_TRUE(shares.far_ahead(kBackground, kBulk));
  EXPECT_FALSE(shares.far_ahead(kBulk, kBackground));
  shares.took(kBulk, 9, both);
  EXPECT_FALSE(shares.far_ahead(kBackground, kBulk));
}

}  // namespace
}  // namespace aiacc
