// Contexts of one host in virtual time: exact bounds of lateness and deadlines, frozen and killed ranks, and that an error
// reaches every member. The lane, group, board and collectives are the ones of real processes.
#include <gtest/gtest.h>

#include <string>

#include "tests/sim_job.h"

namespace aiacc {
namespace {

using sim::error_of;
using std::chrono::milliseconds;
using std::chrono::seconds;

struct SimHost : sim::SimJob {
  explicit SimHost(int size, std::uint64_t seed = 1)
      : SimJob(std::vector<std::uint32_t>(static_cast<std::size_t>(size)), seed) {}
};

class SimContexts : public testing::TestWithParam<int> {};

TEST_P(SimContexts, ManyOperationsInFlight) {
  SimHost host(GetParam());
  for (auto& rank : host.ranks) {
    for (const std::size_t count : {1, 10, 5000, 3, 100'000, 16}) rank->sum(count);
  }
  host.finish();
  for (auto& rank : host.ranks) {
    for (std::size_t i = 0; i < rank->operations.size(); ++i) {
      EXPECT_EQ(error_of(*rank->operations[i]).code(), Code::kOk);
      EXPECT_EQ(rank->data[i].front(), static_cast<float>(GetParam()));
      EXPECT_EQ(rank->data[i].back(), static_cast<float>(GetParam()));
    }
    EXPECT_TRUE(rank->reports.empty());
  }
}

// A device that is lost: its rank's operation ends with its sentence, and the group of all with it, once nobody touches
// their buffers any more.
TEST(SimContextsCompute, AFailureOfAComputeEndsTheGroupWithItsSentence) {
  using Placement = std::vector<std::uint32_t>;
  for (const Placement& hosts : {Placement{0, 0}, Placement{0, 1}, Placement{0, 0, 1, 1}}) {
    for (const std::size_t count : {2000, 400'000}) {
      sim::SimJob job(hosts);
      job[1].compute.fail_after(0, std::make_exception_ptr(Error(Code::kSystem, "device 3 has fallen off the bus")));
      for (auto& rank : job.ranks) rank->sum(count);
      job.finish();
      EXPECT_EQ(error_of(*job[1].operations[0]).code(), Code::kSystem);
      for (auto& rank : job.ranks) {  // whoever had all that it needed hears of it with the next call
        if (!rank->operations[0]->error()) rank->sum(count);
      }
      job.finish();
      EXPECT_LE(job.elapsed(), seconds(1)) << "nobody waits for a deadline";
      for (auto& rank : job.ranks) {
        const Error error = error_of(*rank->operations.back());
        EXPECT_EQ(error.code(), Code::kSystem) << error.message();
        EXPECT_NE(error.message().find("device 3 has fallen off the bus"), std::string::npos) << error.message();
      }
      job[1].sum(10);
      job.finish();
      EXPECT_EQ(error_of(*job[1].operations[1]).code(), Code::kAborted);
    }
  }
}

TEST_P(SimContexts, AMissingRankIsReportedAfter60SecondsAndFailsTheGroupAfter1800) {
  SimHost host(GetParam());
  const int missing = GetParam() - 1;
  const std::string named = "rank " + std::to_string(missing) + " has not arrived";
  for (int rank = 0; rank < missing; ++rank) host[rank].sum(1000);
  host.world.run_until(after(host.began, seconds(1799)));
  for (int rank = 0; rank < missing; ++rank) {
    EXPECT_FALSE(host[rank].operations[0]->done()) << "before the deadline nobody fails";
    ASSERT_EQ(host[rank].reports.size(), 1u) << "reported once";
    EXPECT_EQ(host[rank].reports[0].when - host.began, seconds(60));
    EXPECT_NE(host[rank].reports[0].sentence.find(named), std::string::npos) << host[rank].reports[0].sentence;
  }
  host.finish();
  EXPECT_GE(host.elapsed(), seconds(1800));
  EXPECT_LE(host.elapsed(), seconds(1800) + milliseconds(10));
  for (int rank = 0; rank < missing; ++rank) {
    const Error error = error_of(*host[rank].operations[0]);
    EXPECT_EQ(error.code(), Code::kTimeout);
    EXPECT_NE(error.message().find(named), std::string::npos) << error.message();
  }
  host[missing].sum(1000);
  host[missing].sum(1000);
  host.finish();
  EXPECT_EQ(error_of(*host[missing].operations[0]).code(), Code::kTimeout)
      << "the first error, for the call that learns it";
  EXPECT_EQ(error_of(*host[missing].operations[1]).code(), Code::kAborted);
  EXPECT_NE(error_of(*host[missing].operations[1]).message().find(named), std::string::npos);
}

TEST_P(SimContexts, AShortDeadlineOfOneRankIsHeardByAllAtOnce) {
  SimHost host(GetParam());
  for (int rank = 0; rank + 1 < host.size(); ++rank) {
    CallOptions options;
    if (rank == 0) options.timeout = milliseconds(5);
    host[rank].sum(100'000, options);
  }
  host.finish();
  EXPECT_LE(host.elapsed(), milliseconds(6)) << "log2(n) lines that travel";
  for (int rank = 0; rank + 1 < host.size(); ++rank) {
    EXPECT_EQ(error_of(*host[rank].operations[0]).code(), Code::kTimeout);
    EXPECT_EQ(error_of(*host[rank].operations[0]).message(), error_of(*host[0].operations[0]).message());
  }
}

TEST_P(SimContexts, AFrozenRankIsAStallAndNoFailure) {
  SimHost host(GetParam());
  host.world.freeze(host[1].loop.node());
  for (auto& rank : host.ranks) rank->sum(50'000);
  host.world.run_until(after(host.began, seconds(1000)));
  EXPECT_FALSE(host[0].operations[0]->done());
  EXPECT_EQ(host[0].reports.size(), 1u);
  host.world.thaw(host[1].loop.node());
  host.finish();
  for (auto& rank : host.ranks) {
    EXPECT_EQ(error_of(*rank->operations[0]).code(), Code::kOk);
    EXPECT_EQ(rank->data[0].back(), static_cast<float>(GetParam()));
  }
}

TEST_P(SimContexts, ADeathEndsWhatRunsAndIsNamed) {
  SimHost host(GetParam());
  for (auto& rank : host.ranks) {
    for (int i = 0; i < 4; ++i) rank->sum(200'000);
  }
  const int dead = 1;
  host.world.at(after(host.began, std::chrono::microseconds(150)), [&] {
    host.world.kill(host[dead].loop.node());
    const auto lost = std::make_exception_ptr(Error(Code::kPeerFailed, "rank 1 was killed", dead));
    // Only rank 0's agent is quick: the board tells the others.
    host[0].context->on_rank_lost(dead, lost);
  });
  if (GetParam() > 2) {
    host.world.at(after(host.began, seconds(2)), [&] {
      const auto lost = std::make_exception_ptr(Error(Code::kPeerFailed, "rank 1 was killed", dead));
      for (int rank = 2; rank < host.size(); ++rank) host[rank].context->on_rank_lost(dead, lost);
    });
  }
  host.finish();
  for (int rank = 0; rank < host.size(); ++rank) {
    if (rank == dead) continue;
    bool failed = false;
    for (const auto& operation : host[rank].operations) {
      const Error error = error_of(*operation);
      failed = failed || error.code() != Code::kOk;
      if (!failed) continue;
      EXPECT_EQ(error.code(), Code::kPeerFailed) << error.message();
      EXPECT_EQ(error.peer(), dead);
      EXPECT_EQ(error.message(), "rank 1 was killed");
    }
    EXPECT_TRUE(failed);
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, SimContexts, testing::Values(2, 3, 8, 13));

TEST(SimContextsTrace, OneSeedIsOneHistory) {
  const auto trace = [](std::uint64_t seed) {
    SimHost host(5, seed);
    for (auto& rank : host.ranks) {
      for (const std::size_t count : {7, 3000, 90'000}) rank->sum(count);
    }
    host.finish();
    return host.world.trace_hash();
  };
  EXPECT_EQ(trace(3), trace(3));
  EXPECT_NE(trace(3), trace(4));
}

}  // namespace
}  // namespace aiacc
