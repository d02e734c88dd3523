// The way back to the first network.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "transports/failover/failover_fixture_test.h"

namespace aiacc {
namespace {

using failover_test::leave;
using failover_test::Renewable;
using failover_test::Sent;
using failover_test::SimFailover;
using failover_test::TwoRanks;
using message_conformance::kRanks;
using message_conformance::MessageConformance;
using namespace std::chrono_literals;

// Its first network breaks before anything has come, and the messages go back to it meanwhile. Not in the middle of one, because the
// suite's receiver counts a message twice that is offered again.
class GoingBack : public SimFailover {
 public:
  GoingBack() : SimFailover(42, kRanks, 1ms, 3) {}
  bool run_until(const std::function<bool()>& done) {
    if (!std::exchange(has_broken_, true)) {
      for (int rank = 0; rank < kRanks; ++rank) {
        for (int peer = rank + 1; peer < kRanks; ++peer)
          hosts[static_cast<std::size_t>(rank)]->renewable->say_broken(peer);
      }
    }
    return SimFailover::run_until(done);
  }

 private:
  bool has_broken_ = false;
};

INSTANTIATE_TEST_SUITE_P(FailoverAndBack, MessageConformance,
                         testing::Values(&message_conformance::make<GoingBack>,
                                         &message_conformance::make<tcp_test::Immediate<GoingBack>>));

// The first network breaks again and again, also in the middle of a way back.
TEST(FailoverBack, NothingIsLostAndNothingComesTwiceOnTheWayBack) {
  int returned = 0, given_up = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    TwoRanks ranks(seed, 3ms, 40);
    sim::Random random(seed * 7919);
    bool open = false;
    for (int rank = 0; rank < 2; ++rank) {
      ranks.inbox[rank].holds = [&](const MessageHeader& header) { return !open && header.step % 7 == seed % 7; };
    }
    const int messages = 50 + static_cast<int>(random.below(100));
    for (int message = 0; message < messages; ++message) {
      const std::size_t bytes = random.below(4) == 0 ? random.below(300'000) : random.below(3000);
      const int from = static_cast<int>(random.below(2));
      Sent& one = ranks.post(from, bytes, static_cast<TrafficClass>(random.below(kTrafficClasses)));
      const std::uint64_t what = random.below(40);
      if (what < 3) ranks.break_first();
      if (what == 3) ranks.cut_first(static_cast<int>(random.below(2)));
      if (what == 4) ranks.hosts[0]->renewable->say_broken(1);
      if (what == 5) ranks.hosts[1]->renewable->say_broken(0);
      if (what > 30) ranks.networks[0].heal(0, 1);
      if (random.below(10) == 0 && one.completion.told == 0) {
        one.withdrawn = true;
        ranks.port(from).withdraw(one.completion);
      }
      ranks.run(Duration(random.below(3) == 0 ? random.below(6'000'000) : 0));
      if (random.below(3) == 0) ranks.revoke_one(1 - from);
      if (random.below(20) == 0) ranks.port(from).release(1 - from);
    }
    ranks.networks[0].heal(0, 1);
    ranks.run(Duration(random.below(5'000'000)));
    open = true;
    for (int turn = 0; turn < 100 && !(ranks.all_told() && ranks.all_came()); ++turn) {
      for (int rank = 0; rank < 2; ++rank) ranks.port(rank).release(1 - rank);
      ranks.run(100ms);
    }
    ranks.run(20s);  // a trial that was cut, the longest hold-down, and one that is not
    int posted[2];
    for (int rank = 0; rank < 2; ++rank) {
      posted[rank] = ranks.hosts[static_cast<std::size_t>(rank)]->renewable->posted;
      ranks.post(rank, 10);
    }
    ranks.run(1s);
    for (int rank = 0; rank < 2; ++rank) {
      const auto& host = *ranks.hosts[static_cast<std::size_t>(rank)];
      for (const auto& [which, entry] : ranks.inbox[rank].entries) {
        EXPECT_TRUE(!entry.revoked || entry.placed == 1) << "its place has come back";
      }
      ranks.expect_delivered(rank);
      EXPECT_TRUE(ranks.inbox[rank].lost.empty())
          << as_error(std::make_exception_ptr(ranks.inbox[rank].lost[0].second)).message();
      EXPECT_EQ(host.renewable->posted, posted[rank] + 1) << "it does not use the first network in the end";
      const auto works = std::count_if(host.remarks.begin(), host.remarks.end(), [](const std::string& said) {
        return said.find(" works again; ") != said.npos;
      });
      returned += static_cast<int>(works);
      given_up += static_cast<int>(host.renewable->epoch(1 - rank)) - static_cast<int>(works);
      EXPECT_TRUE(host.remarks.empty() || host.remarks.back().find(" works again; ") != std::string::npos);
      EXPECT_EQ(static_cast<std::size_t>(2 * works), host.remarks.size()) << "each break and each return is told once";
    }
    if (testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
  EXPECT_GT(returned, 1500);
  EXPECT_GT(given_up, 300);
}

// From when rank 0 has heard of the break, to the nanosecond.
TEST(FailoverBack, TheHoldDownDoublesWithEachBreakAndIsForgottenAfterALongGoodTime) {
  TwoRanks ranks(42, 1s, 20);
  Renewable& first = *ranks.hosts[0]->renewable;
  const auto break_after = [&](Duration good) {
    const std::size_t returns = first.renewed.size();
    ranks.post(0, 10);
    ranks.run(good);
    const Instant broke = ranks.world.now();
    first.say_broken(1);
    ranks.post(0, 10);
    EXPECT_TRUE(ranks.world.run_while_not([&] { return first.renewed.size() > returns; }));
    return first.renewed.back() - broke;
  };
  for (const Duration expected : {1s, 2s, 4s, 8s, 16s, 32s, 64s, 64s}) EXPECT_EQ(break_after(1s), expected);
  EXPECT_EQ(break_after(63s), 64s);
  EXPECT_EQ(break_after(65s), 1s);
  EXPECT_EQ(break_after(1s), 2s);
  EXPECT_EQ(ranks.hosts[0]->remarks.size(), 21u) << "a break and a return each, but the last return";
}

// A trial ends after 10 s without success, and the hold-down goes on doubling; messages go over the second network all the time.
TEST(FailoverBack, ATrialThatFailsIsRepeatedAfterTwiceTheTime) {
  TwoRanks ranks(42, 1s, 20);
  Renewable& first = *ranks.hosts[0]->renewable;
  ranks.post(0, 10);
  ranks.run(1s);
  ranks.cut_first(0);
  const Instant broke = ranks.world.now();
  for (int second = 0; second < 60; ++second) {
    ranks.post(second % 2, 100'000);
    ranks.run(1s);
    EXPECT_TRUE(ranks.all_told() && ranks.all_came()) << second;
  }
  std::vector<Duration> tried;
  for (const Instant each : first.renewed) tried.push_back(each - broke);
  EXPECT_EQ(tried, (std::vector<Duration>{1s, 13s, 27s, 45s}));
  EXPECT_EQ(ranks.hosts[0]->remarks.size(), 1u) << "nobody is told of trials that fail";
  ranks.networks[0].heal(0, 1);
  ranks.run(30s);
  ASSERT_EQ(ranks.hosts[0]->remarks.size(), 2u);
  EXPECT_EQ(ranks.hosts[0]->remarks[1],
            "the path over a between rank 0 on host 0 and rank 1 on host 1 works again; their messages go over a from "
            "now on");
  EXPECT_EQ(ranks.hosts[1]->remarks.back(), ranks.hosts[0]->remarks.back());
}

bool went_back(const TwoRanks& ranks) {
  return std::all_of(ranks.hosts.begin(), ranks.hosts.end(), [](const auto& host) {
    return !host->remarks.empty() && host->remarks.back().find(" works again; ") != std::string::npos;
  });
}

// The second network still has messages of a class, and no more of another one, when the first one works.
TEST(FailoverBack, NothingOvertakesWhatTheSecondNetworkStillHas) {
  TwoRanks ranks(42, 1ms, 3);
  ranks.post(0, 10);
  ranks.run(1s);
  constexpr std::uint64_t kSlow = 20'000'000;
  ranks.networks[1].cap_next({kSlow, kSlow, kSlow, kSlow, kSlow, kSlow, kSlow, kSlow});
  ranks.hosts[0]->renewable->say_broken(1);
  for (int message = 0; message < 100; ++message) {
    for (const int from : {0, 1}) ranks.post(from, 100'000);
  }
  for (int message = 0; message < 300; ++message) {
    for (const int from : {0, 1})
      ranks.post(from, 100, message % 2 == 0 ? TrafficClass::kLatency : TrafficClass::kBulk);
    ranks.run(5ms);
  }
  ranks.run(5s);
  for (const int from : {0, 1}) ranks.expect_delivered(from);
  EXPECT_TRUE(went_back(ranks));
}

TEST(FailoverBack, APathThatLosesTheMessagesOfOneClassIsNotUsed) {
  for (const int mute : {0, 1}) {
    TwoRanks ranks(42, 1s, 10);
    ranks.post(0, 10);
    ranks.run(1s);
    ranks.hosts[0]->renewable->say_broken(1);
    ranks.hosts[static_cast<std::size_t>(mute)]->renewable->mute = TrafficClass::kBulk;
    ranks.run(60s);
    EXPECT_EQ(ranks.hosts[0]->renewable->renewed.size(), 4u);
    EXPECT_FALSE(went_back(ranks));
    ranks.hosts[static_cast<std::size_t>(mute)]->renewable->mute.reset();
    ranks.run(30s);
    EXPECT_TRUE(went_back(ranks));
  }
}

// More than the bits of a number on the way can tell.
TEST(FailoverBack, NumbersBeginAnewThoughNoneHadCome) {
  TwoRanks ranks(42, 10ms, 3);
  ranks.post(0, 10);
  ranks.run(1s);
  ranks.networks[0].cut(0, 1);
  for (int message = 0; message < 5000; ++message) ranks.post(0, 10);
  ranks.hosts[0]->renewable->say_broken(1);
  ranks.networks[0].heal(0, 1);
  ranks.run(1s);
  ASSERT_TRUE(went_back(ranks));
  ranks.post(0, 100'000);
  ranks.run(1s);
  ranks.expect_delivered(0);
}

// Its sender withdrew it while the path was broken.
TEST(FailoverBack, APlaceOfAMessageThatComesNoMoreIsGivenBackOnce) {
  TwoRanks ranks(42, 10ms, 5);
  ranks.post(1, 10);
  ranks.run(1s);
  Sent& one = ranks.post(1, 8'000'000);
  const auto& entry = ranks.inbox[0].entries[{one.header.traffic, one.header.step}];
  ASSERT_TRUE(ranks.run_until([&] { return entry.asked; }));
  ranks.hosts[0]->renewable->say_broken(1);
  one.withdrawn = true;
  ranks.port(1).withdraw(one.completion);
  ranks.run(1s);
  ASSERT_TRUE(went_back(ranks));
  ASSERT_EQ(entry.placed, 0);
  ranks.port(0).revoke(1, one.header);
  ranks.run(1s);
  EXPECT_EQ(entry.placed, 1);
  ranks.hosts[0]->renewable->say_broken(1);
  ranks.run(1s);
  EXPECT_EQ(entry.placed, 1);
}

TEST(FailoverBack, WhoLeavesEndsATrial) {
  TwoRanks ranks(42, 1s, 5);
  ranks.post(0, 10);
  ranks.run(1s);
  ranks.hosts[0]->renewable->say_broken(1);
  ASSERT_TRUE(ranks.run_until([&] { return ranks.hosts[0]->renewable->renewed.size() == 1; }));
  bool left[2] = {};
  Task<void> leaving[2] = {leave(&ranks.port(0), &left[0]), leave(&ranks.port(1), &left[1])};
  for (Task<void>& each : leaving) each.start();
  EXPECT_TRUE(ranks.run_until([&] { return left[0] && left[1]; }));
  EXPECT_FALSE(went_back(ranks));
  EXPECT_EQ(ranks.hosts[0]->renewable->renewed.size(), 1u);
}

TEST(FailoverBack, WithoutAHoldDownNothingGoesBack) {
  TwoRanks ranks(42, 0s, 20);
  ranks.post(0, 10);
  ranks.run(1s);
  ranks.break_first();
  ranks.run(1000s);
  for (const auto& host : ranks.hosts) {
    EXPECT_TRUE(host->renewable->renewed.empty());
    EXPECT_EQ(host->remarks.size(), 1u);
  }
}

TEST(FailoverBack, AFirstNetworkThatCannotBeginAnewIsNotAskedAgain) {
  TwoRanks ranks(42, 1s, 1);
  ranks.post(0, 10);
  ranks.run(1s);
  ranks.break_first();
  ranks.run(1000s);
  EXPECT_EQ(ranks.hosts[0]->renewable->renewed.size(), 1u);
  ranks.post(0, 10);
  ranks.run(1s);
  ranks.expect_delivered(0);
}

}  // namespace
}  // namespace aiacc
