// Which connection takes a chunk, and which is sent again: exact times, without connections.
#include "transports/tcp/pace.h"

#include <gtest/gtest.h>

#include <vector>

namespace aiacc::tcp {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kChunk = 100'000;

class PaceTest : public testing::Test {
 protected:
  // One that carried a few chunks at this rate, until now.
  Pace at(std::uint64_t bytes_per_second) {
    Pace pace;
    Instant when{milliseconds(1)};
    for (int i = 0; i < 10; ++i) {
      const std::uint64_t position = pace.took(kChunk, when);
      const Instant taken = when;
      when = after(when, Duration(kChunk * 1'000'000'000 / bytes_per_second));
      pace.arrived(position, kChunk, taken, when);
    }
    now_ = std::max(now_, when);
    return pace;
  }
  bool takes_one(Pace& mine, const std::vector<const Pace*>& all, std::uint64_t waiting) const {
    return takes(mine, all, kChunk, waiting, now_);
  }
  void later(Duration span) { now_ = after(now_, span); }

  Instant now_{};
};

TEST_F(PaceTest, TheRateIsWhatIsAcknowledged) {
  const Pace pace = at(10'000'000);
  EXPECT_DOUBLE_EQ(pace.rate(now_), 10e6);
  EXPECT_EQ(pace.delay(), milliseconds(10));
  EXPECT_EQ(pace.eta(2 * kChunk, now_), milliseconds(20));
}

// Messages that come one by one would otherwise all go over the only one that was ever measured.
TEST_F(PaceTest, AnIdleConnectionThatWasNotMeasuredIsPreferredToABusyOne) {
  Pace known = at(10'000'000);
  Pace unknown;
  EXPECT_TRUE(takes_one(known, {&known, &unknown}, kChunk));
  known.took(kChunk, now_);
  EXPECT_FALSE(takes_one(known, {&known, &unknown}, kChunk));
  EXPECT_TRUE(takes_one(unknown, {&known, &unknown}, kChunk));
  unknown.took(kChunk, now_);
  EXPECT_TRUE(takes_one(known, {&known, &unknown}, kChunk));
}

TEST_F(PaceTest, AnAcknowledgementIsOneOfAllBefore) {
  Pace pace = at(10'000'000);
  pace.took(kChunk, now_);
  const std::uint64_t second = pace.took(kChunk, now_);
  const Instant taken = now_;
  EXPECT_EQ(pace.backlog(now_), 2 * kChunk);
  EXPECT_EQ(pace.eta_of(second, now_), milliseconds(20));
  later(milliseconds(20));
  pace.arrived(second, kChunk, taken, now_);
  EXPECT_EQ(pace.backlog(now_), 0u);
  EXPECT_DOUBLE_EQ(pace.rate(now_), 10e6);
}

// They wait behind what the peer sends: one after 20 ms, and seven within the next millisecond.
TEST_F(PaceTest, AcknowledgementsThatComeInBunchesMakeItNoFaster) {
  Pace pace;
  for (int bunch = 0; bunch < 10; ++bunch) {
    const Instant taken = now_;
    std::vector<std::uint64_t> positions(8);
    for (std::uint64_t& position : positions) position = pace.took(kChunk, taken);
    later(milliseconds(20));
    pace.arrived(positions[0], kChunk, taken, now_);
    for (std::size_t i = 1; i < positions.size(); ++i) {
      later(std::chrono::microseconds(150));
      pace.arrived(positions[i], kChunk, taken, now_);
    }
  }
  const double truly = 8 * kChunk / 0.02105;
  EXPECT_GT(pace.rate(now_), truly / 2);
  EXPECT_LT(pace.rate(now_), truly * 2);
}

TEST_F(PaceTest, WhatStandsStillIsExpectedToGoOnSo) {
  Pace pace = at(10'000'000);
  const std::uint64_t position = pace.took(kChunk, now_);
  later(milliseconds(70));
  EXPECT_EQ(pace.eta_of(position, now_), milliseconds(70));
  Pace unknown;
  const std::uint64_t first = unknown.took(kChunk, now_);
  EXPECT_EQ(unknown.eta_of(first, now_), Duration{});
  later(milliseconds(3));
  EXPECT_EQ(unknown.eta_of(first, now_), milliseconds(3));
}

TEST_F(PaceTest, OneThatCarriedNothingForAWhileIsUnknown) {
  Pace pace = at(10'000'000);
  later(Pace::kForgotten + milliseconds(1));
  EXPECT_FALSE(pace.known(now_));
  pace.took(kChunk, now_);
  EXPECT_FALSE(pace.known(now_)) << "it is measured again";
}

TEST_F(PaceTest, WhatWasGivenAwayDrains) {
  Pace pace = at(10'000'000);
  pace.took(kChunk, now_);
  pace.gave(kChunk);
  EXPECT_EQ(pace.backlog(now_), kChunk) << "its bytes are still on their way";
  later(milliseconds(4));
  EXPECT_EQ(pace.backlog(now_), kChunk * 6 / 10);
  later(milliseconds(7));
  EXPECT_EQ(pace.backlog(now_), 0u);
}

TEST_F(PaceTest, AnUnknownOneTakesALittle) {
  Pace fast = at(100'000'000), fresh;
  const std::vector<const Pace*> all = {&fast, &fresh};
  std::uint64_t taken = 0;
  for (; takes_one(fresh, all, 100 * kChunk); taken += kChunk) fresh.took(kChunk, now_);
  EXPECT_EQ(taken, 6 * kChunk);
}

// With 1:8 and nine chunks, the slow one carries one; the next would arrive later than all others over the fast one.
TEST_F(PaceTest, ASlowOneTakesNoMoreThanIsDoneInTheTimeOfAll) {
  Pace slow = at(10'000'000), fast = at(80'000'000);
  const std::vector<const Pace*> all = {&slow, &fast};
  EXPECT_TRUE(takes_one(slow, all, 9 * kChunk));
  EXPECT_FALSE(takes_one(slow, all, 7 * kChunk));
  slow.took(kChunk, now_);
  EXPECT_FALSE(takes_one(slow, all, 8 * kChunk));
  EXPECT_TRUE(takes_one(slow, all, 17 * kChunk));
  for (std::uint64_t left = 8; left > 0; --left) {
    EXPECT_TRUE(takes_one(fast, all, left * kChunk)) << left;
    fast.took(kChunk, now_);
  }
}

TEST_F(PaceTest, TheBestOneAlwaysTakes) {
  Pace slow = at(10'000'000), fast = at(80'000'000);
  const std::vector<const Pace*> all = {&slow, &fast};
  for (int i = 0; i < 100; ++i) {
    Pace& better = slow.eta(kChunk, now_) < fast.eta(kChunk, now_) ? slow : fast;
    ASSERT_TRUE(takes_one(better, all, kChunk)) << i;
    better.took(kChunk, now_);
  }
}

TEST_F(PaceTest, OthersTakeOverWhenTheBestStandsStill) {
  Pace slow = at(10'000'000), fast = at(80'000'000);
  const std::vector<const Pace*> all = {&slow, &fast};
  fast.took(kChunk, now_);
  EXPECT_FALSE(takes_one(slow, all, kChunk));
  later(milliseconds(9));
  EXPECT_TRUE(takes_one(slow, all, kChunk));
}

TEST_F(PaceTest, AChunkIsSentAgainWhenItIsMuchSoonerHere) {
  Pace slow = at(2'000'000), fast = at(80'000'000), fresh;
  const std::uint64_t there = slow.took(kChunk, now_);
  EXPECT_TRUE(takes_again(fast, slow, there, kChunk, now_)) << "50 ms, and 1.25 here";
  EXPECT_FALSE(takes_again(fresh, slow, there, kChunk, now_)) << "nobody knows how long it takes here";
  const std::uint64_t here = fast.took(kChunk, now_);
  EXPECT_FALSE(takes_again(slow, fast, here, kChunk, now_));
  EXPECT_TRUE(takes_again(fast, slow, there, kChunk, now_)) << "it carries one";
  fast.took(kChunk, now_);
  EXPECT_FALSE(takes_again(fast, slow, there, kChunk, now_)) << "it carries two";
}

TEST_F(PaceTest, AFewMillisecondsAreNoReasonToSendAgain) {
  Pace one = at(80'000'000), other = at(80'000'000);
  const std::uint64_t there = one.took(kChunk, now_);
  later(milliseconds(7));
  EXPECT_FALSE(takes_again(other, one, there, kChunk, now_));
  later(milliseconds(1));
  EXPECT_TRUE(takes_again(other, one, there, kChunk, now_));
}

}  // namespace
}  // namespace aiacc::tcp
