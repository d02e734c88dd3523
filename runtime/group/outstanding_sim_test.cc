// In virtual time: thousands of outstanding operations between hosts, of which one rank begins its own late, or never. Nobody
// asks about each of them, and all end: well, or with the one sentence that names the dead.
#include <algorithm>

#include "runtime/group/calls_test.h"
#include "tests/sim_job.h"

namespace aiacc::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::vector<std::uint32_t> one_a_host(int ranks) {
  std::vector<std::uint32_t> hosts;
  for (int rank = 0; rank < ranks; ++rank) hosts.push_back(static_cast<std::uint32_t>(rank));
  return hosts;
}

void expect_sums(SimJob& job) {
  for (const auto& rank : job.ranks) {
    for (const auto& operation : rank->operations) ASSERT_EQ(error_of(*operation).message(), "");
    for (const auto& work : rank->plain_ones) ASSERT_EQ(error_of(*work).message(), "");
    for (const auto& sum : rank->data) ASSERT_EQ(sum[0], static_cast<float>(job.size()));
  }
}

struct Load {
  int ranks;
  int each;            // operations
  bool plain = false;  // without attributes: they wait as records

  void start_sums(SimContext& rank) const {
    for (int i = 0; i < each; ++i) {
      if (plain) {
        rank.sum_plainly(1);
      } else {
        rank.sum(1);
      }
    }
  }
};

class Outstanding : public ::testing::TestWithParam<Load> {};
INSTANTIATE_TEST_SUITE_P(Small, Outstanding,
                         ::testing::Values(Load{2, 1024}, Load{5, 128}, Load{64, 8}, Load{2, 1024, true},
                                           Load{5, 128, true}, Load{64, 8, true}));
// `--gtest_also_run_disabled_tests --gtest_filter='*Full*'`: minutes without optimization.
INSTANTIATE_TEST_SUITE_P(DISABLED_Full, Outstanding, ::testing::Values(Load{64, 4096}));

void expect_sums_soon_after_the_late_rank_comes(const Load& load) {
  const int ranks = load.ranks, each = load.each;
  SimJob job(one_a_host(ranks));
  const int late = ranks - 1;
  for (int rank = 0; rank < late; ++rank) load.start_sums(job[rank]);
  job.world.run_until(after(job.began, milliseconds(249)));
  const std::uint64_t before = job.fabric->messages();
  job.world.run_until(after(job.began, seconds(10)));
  // Looks after 250, 750, 1750, 3750 and 7750 ms. Each question of a chain, and each answer, is a message; who follows a chain
  // asks every rank once at most.
  const auto waiting = static_cast<std::uint64_t>(late);
  EXPECT_LE(job.fabric->messages() - before, 5 * waiting * 2 * static_cast<std::uint64_t>(ranks));
  EXPECT_GE(job.fabric->messages() - before, 5 * 2u) << "somebody asks";
  const Instant came = job.world.now();
  load.start_sums(job[late]);
  job.finish();
  expect_sums(job);
  EXPECT_LE(job.world.now() - came, each * std::chrono::microseconds(100));
}
TEST_P(Outstanding, SumsAreAskedAboutOnceAnIntervalAndEndSoonAfterTheLateRankComes) {
  expect_sums_soon_after_the_late_rank_comes(GetParam());
}

// Of operations the oldest run, and those behind them begin as these end. One with other traffic begins at once, behind all before it.
TEST(OutstandingOperations, RunInTurnUnlessOneIsUrgent) {
  constexpr int kEach = 1000;
  for (const auto& hosts : {std::vector<std::uint32_t>{0, 1}, std::vector<std::uint32_t>{0, 0, 1, 1}}) {
    SimJob job(hosts);
    const int late = job.size() - 1;
    CallOptions urgent;
    urgent.priority = 1;
    const auto start = [&](int rank) {
      for (int i = 0; i < kEach; ++i) job[rank].sum(1);
    };
    for (int rank = 0; rank < late; ++rank) start(rank);
    job.world.run_until(after(job.began, milliseconds(100)));
    const std::uint64_t few = job.fabric->messages();
    EXPECT_LE(few, 2 * 64u);
    for (int rank = 0; rank < late; ++rank) job[rank].sum(1, urgent);
    job.world.run_until(after(job.began, milliseconds(200)));
    const std::uint64_t all = job.fabric->messages();
    if (late == 1) {  // several ranks of a host have turns of their own
      EXPECT_GE(all, static_cast<std::uint64_t>(kEach));
    }
    for (int rank = 0; rank < late; ++rank) job[rank].sum(1, urgent);
    job.world.run_until(after(job.began, milliseconds(300)));
    if (late == 1) {
      EXPECT_GT(job.fabric->messages(), all) << "the next urgent one";
    }
    start(late);
    for (int i = 0; i < 2; ++i) job[late].sum(1, urgent);
    job.finish();
    expect_sums(job);
  }
}

#if !defined(__SANITIZE_ADDRESS__)
TEST(OutstandingOperations, TakeTheMemoryOfThoseBefore) {
  SimJob job(one_a_host(2));
  std::size_t once = 0;
  for (int round = 0; round < 3; ++round) {
    for (int rank = 0; rank < 2; ++rank) {
      for (int i = 0; i < 200; ++i) job[rank].sum(1);
    }
    job.finish();
    expect_sums(job);
    for (const auto& rank : job.ranks) {
      rank->operations.clear();
      rank->data.clear();
      rank->ended = 0;
    }
    const std::size_t slabs = job[0].context->operation_pool().slabs();
    EXPECT_GT(slabs, 1u);
    if (round > 0) {
      EXPECT_EQ(slabs, once);
    }
    once = slabs;
  }
}
#endif

void expect_the_name_of_the_dead(const Load& load) {
  const int ranks = load.ranks;
  SimJob job(one_a_host(ranks));
  const int dead = ranks / 2;
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank != dead) load.start_sums(job[rank]);
  }
  job.world.run_until(after(job.began, seconds(1)));
  job.world.kill(job[dead].loop.node());
  job.finish();
  EXPECT_LE(job.elapsed(), seconds(8));
  for (int rank = 0; rank < ranks; ++rank) {
    const auto expect_the_dead = [&](const RequestedWork& work) {
      ASSERT_EQ(error_of(work).code(), Code::kPeerFailed) << error_of(work).message();
      ASSERT_EQ(error_of(work).peer(), dead);
    };
    for (const auto& operation : job[rank].operations) expect_the_dead(*operation);
    for (const auto& work : job[rank].plain_ones) expect_the_dead(*work);
  }
}
TEST_P(Outstanding, SumsEndWithTheNameOfTheDead) { expect_the_name_of_the_dead(GetParam()); }

#if !defined(__SANITIZE_ADDRESS__)
// More than 260,000 at once: seconds without optimization.
constexpr Load kMany{64, 4096, true};
TEST(OutstandingOfSixtyFourRanks, EndSoonAfterTheLateRankComes) { expect_sums_soon_after_the_late_rank_comes(kMany); }
TEST(OutstandingOfSixtyFourRanks, EndWithTheNameOfTheDead) { expect_the_name_of_the_dead(kMany); }
#endif

TEST_P(Outstanding, ReceivesOfRanksThatComputeAreNotToldThatNobodySends) {
  const int ranks = GetParam().ranks, each = GetParam().each;
  SimJob job(one_a_host(ranks));
  std::vector<std::vector<float>> sent(static_cast<std::size_t>(ranks), std::vector<float>(each));
  std::vector<std::vector<float>> received = sent;
  const Buffer nothing;
  const auto at = [](std::vector<float>& data, int i) {
    return Buffer{reinterpret_cast<std::byte*>(&data[static_cast<std::size_t>(i)]), sizeof(float)};
  };
  for (int rank = 0; rank < ranks; ++rank) {
    job[rank].waits.reset();
    for (int i = 0; i < each; ++i) {
      const int from = (rank + ranks - 1) % ranks;
      job[rank].start(message_of(Collective::kRecv, from, static_cast<std::uint32_t>(i)), nothing,
                      at(received[static_cast<std::size_t>(rank)], i));
    }
  }
  job.world.run_until(after(job.began, milliseconds(249)));
  const std::uint64_t before = job.fabric->messages();
  job.world.run_until(after(job.began, seconds(10)));
  // Each asks only whom it receives from.
  EXPECT_LE(job.fabric->messages() - before,
            5u * static_cast<std::uint64_t>(ranks) * 2u * static_cast<unsigned>(ranks));
  for (const auto& rank : job.ranks) EXPECT_TRUE(rank->reports.empty()) << rank->reports[0].sentence;
  for (int rank = 0; rank < ranks; ++rank) {
    for (int i = each - 1; i >= 0; --i) {
      std::vector<float>& mine = sent[static_cast<std::size_t>(rank)];
      mine[static_cast<std::size_t>(i)] = static_cast<float>(i + rank);
      job[rank].start(message_of(Collective::kSend, (rank + 1) % ranks, static_cast<std::uint32_t>(i)), at(mine, i),
                      nothing);
    }
  }
  job.finish();
  for (int rank = 0; rank < ranks; ++rank) {
    for (const auto& operation : job[rank].operations) ASSERT_EQ(error_of(*operation).message(), "");
    EXPECT_EQ(received[static_cast<std::size_t>(rank)], sent[static_cast<std::size_t>((rank + ranks - 1) % ranks)]);
  }
}

// All that happens while operations wait, and no message of theirs is on its way, is a few looks and their questions.
TEST(OutstandingLooks, OfManyOperationsCostNoMoreEventsThanOfFew) {
  const auto events_while_waiting = [](int each, bool plain) {
    const Load load{4, each, plain};
    SimJob job(one_a_host(4));
    for (int rank = 0; rank < 3; ++rank) load.start_sums(job[rank]);
    job.world.run_until(after(job.began, milliseconds(249)));
    const std::uint64_t before = job.world.events();
    job.world.run_until(after(job.began, seconds(60)));
    const std::uint64_t events = job.world.events() - before;
    load.start_sums(job[3]);
    job.finish();
    expect_sums(job);
    return events;
  };
  for (const bool plain : {false, true}) {
    const std::uint64_t few = events_while_waiting(2, plain);
    EXPECT_GE(few, 3u) << "each looks";
    EXPECT_LE(events_while_waiting(2000, plain), few + few / 4);
  }
}

// Receives from any rank, half of them with one tag and half with tags of their own, and messages from the same host and from
// another: an arrival wakes one of them, also where all wait for the same tag.
TEST(OutstandingFromAny, AnArrivalIsLookedForByOneReceiveAndTheNext) {
  const auto events_of = [](int each) {
    SimJob job({0, 0, 1});
    const auto n = static_cast<std::size_t>(each);
    std::vector<float> received(n, -1), sent(n);
    std::vector<int> senders(n, -1);
    const Buffer nothing;
    const auto at = [](float& data) { return Buffer{reinterpret_cast<std::byte*>(&data), sizeof(float)}; };
    const auto tag_of = [](int i) { return i % 2 == 0 ? 7u : 100u + static_cast<unsigned>(i); };
    for (int i = 0; i < each; ++i) {
      const auto k = static_cast<std::size_t>(i);
      Call call = message_of(Collective::kRecvAny, 0, tag_of(i));
      call.sender = &senders[k];
      job[0].start(call, nothing, at(received[k]));
    }
    job.world.run_until(after(job.began, milliseconds(100)));
    const std::uint64_t before = job.world.events();
    for (int i = 0; i < each; ++i) {
      const auto k = static_cast<std::size_t>(i);
      sent[k] = static_cast<float>(i);
      job[1 + i % 4 / 2].start(message_of(Collective::kSend, 0, tag_of(i)), at(sent[k]), nothing);
    }
    job.finish();
    std::vector<float> of_one_tag;
    for (int i = 0; i < each; ++i) {
      const auto k = static_cast<std::size_t>(i);
      EXPECT_EQ(error_of(*job[0].operations[k]).message(), "");
      EXPECT_GT(senders[k], 0);
      if (i % 2 == 0) {
        of_one_tag.push_back(received[k]);
      } else {
        EXPECT_EQ(received[k], sent[k]);
      }
    }
    // Those of one sender in their order, whatever comes between.
    for (const int sender : {1, 2}) {
      std::vector<float> its;
      for (const float value : of_one_tag) {
        if (1 + static_cast<int>(value) % 4 / 2 == sender) its.push_back(value);
      }
      EXPECT_EQ(its.size(), n / 4);
      EXPECT_TRUE(std::is_sorted(its.begin(), its.end()));
    }
    EXPECT_LE(job[0].context->world().any_source_looks(), 4 * n + 4) << "two when it is posted, two when it is met";
    return job.world.events() - before;
  };
  const std::uint64_t few = events_of(128);
  EXPECT_LE(events_of(1024), 8 * few + few);
}

// Of many that are late one is reported: the oldest. So it is when that one has ended and the next goes on waiting.
TEST(OutstandingReports, NameTheOldestAndNotEach) {
  SimJob job({0, 1});
  for (int i = 0; i < 100; ++i) job[0].sum(1);
  job.world.run_until(after(job.began, seconds(100)));
  ASSERT_EQ(job[0].reports.size(), 1u);
  EXPECT_NE(job[0].reports[0].sentence.find("(operation 1 of"), std::string::npos) << job[0].reports[0].sentence;
  for (int i = 0; i < 50; ++i) job[1].sum(1);
  job.world.run_until(after(job.began, seconds(200)));
  ASSERT_EQ(job[0].reports.size(), 2u);
  EXPECT_NE(job[0].reports[1].sentence.find("(operation 51 of"), std::string::npos) << job[0].reports[1].sentence;
  EXPECT_NE(job[0].reports[1].sentence.find("rank 1"), std::string::npos) << job[0].reports[1].sentence;
}

// A member that has made a call, which waits there for its turn, is not who holds it up.
TEST(OutstandingReports, AMemberWhoseCallWaitsForItsTurnIsNotTheStraggler) {
  SimJob job({0, 1, 2});
  CallOptions named;
  named.name = "loss";
  Call reduce;
  reduce.kind = Collective::kReduce;
  reduce.count = 1;
  reduce.root = 1;
  const auto call = [&](int rank) {
    for (int i = 0; i < 74; ++i) {
      std::vector<float>& one = job[rank].data.emplace_back(1, 1.0f);
      const Buffer buffer{reinterpret_cast<std::byte*>(one.data()), sizeof(float)};
      job[rank].start(reduce, buffer, rank == 1 ? buffer : Buffer{}, named);
    }
    job[rank].sum(1, named);
  };
  call(0);
  call(1);
  job.world.run_until(after(job.began, seconds(100)));
  ASSERT_EQ(job[0].reports.size(), 1u);
  const std::string& sentence = job[0].reports[0].sentence;
  EXPECT_NE(sentence.find("(operation 75 of"), std::string::npos) << sentence;
  EXPECT_NE(sentence.find("rank 2 has not made this call"), std::string::npos) << sentence;
  call(2);
  job.finish();
}

// The deadline of one that is not the oldest is met to the instant, and names who holds up those before it.
// What others make wait for days on purpose is not late; with a deadline it would be met all the same.
TEST(OutstandingReports, WhatWaitsLongIsNotReported) {
  SimJob job({0, 1});
  CallOptions options;
  options.timeout = Duration::max();
  options.waits_long = true;
  job[0].sum(1, options);
  job.world.run_until(after(job.began, std::chrono::hours(24)));
  EXPECT_TRUE(job[0].reports.empty());
  job[1].sum(1);
  job.finish();
  expect_sums(job);
}

class OutstandingDeadline : public ::testing::TestWithParam<Duration> {};
INSTANTIATE_TEST_SUITE_P(ShortAndLong, OutstandingDeadline, ::testing::Values(milliseconds(200), seconds(5)));
TEST_P(OutstandingDeadline, BehindOthersIsMetAndNamesTheMissing) {
  SimJob job({0, 1});
  for (int i = 0; i < 100; ++i) job[0].sum(1);
  CallOptions options;
  options.timeout = GetParam();
  GroupOperation& immediate = job[0].sum(1, options);
  for (int i = 0; i < 10; ++i) job[0].sum(1);
  job.finish();
  EXPECT_GE(job.elapsed(), GetParam());
  EXPECT_LE(job.elapsed(), GetParam() + milliseconds(10));
  EXPECT_EQ(error_of(immediate).code(), Code::kTimeout);
  EXPECT_EQ(error_of(immediate).peer(), 1) << error_of(immediate).message();
  EXPECT_NE(error_of(immediate).message().find("(operation 101 of"), std::string::npos)
      << error_of(immediate).message();
}

}  // namespace
}  // namespace aiacc::sim
