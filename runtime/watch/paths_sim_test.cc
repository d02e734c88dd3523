// Broken paths between hosts in virtual time: when they are told of, when they end groups and which, and that one that comes back
// costs nothing.
#include <gtest/gtest.h>

#include <string>

#include "base/error_about.h"
#include "tests/sim_job.h"

namespace aiacc {
namespace {

using sim::error_of;
using sim::FabricModel;
using sim::SimContext;
using sim::SimJob;
using std::chrono::milliseconds;
using std::chrono::seconds;

// The fabric itself never gives a rank up.
FabricModel patient() {
  FabricModel model;
  model.lease = std::chrono::hours(24);
  return model;
}

// A watch looks as long as a path is broken, also while the simulation ends.
struct Job final : SimJob {
  explicit Job(const std::vector<std::uint32_t>& hosts) : SimJob(hosts, 1, patient()) {}
  ~Job() {
    for (int other = 1; other < size(); ++other) fabric->heal(0, other);
  }
};

const std::string kEnds = "rank 0 (host 0) and rank 1 (host 1)";

struct Pair {
  // A group of ranks 0 and `other`, as `rank` makes it.
  Pair(SimJob& job, int rank, int other) {
    GroupOrder order;
    order.ranks = {0, other};
    Stop stop;
    Task<void> task = job[rank].context->groups().make(*job.view, order, &group, stop);
    task.start();
    EXPECT_TRUE(job.world.run_while_not([&] { return task.done(); }));
    task.take();
  }
  GroupOperation& barrier(SimContext& rank) {
    const Buffer nothing;
    const CallOptions options;
    rank.operations.push_back(group->prepare(Call{}, nothing, nothing, &options));
    rank.lane.start(*rank.operations.back());
    return *rank.operations.back();
  }
  Group* group = nullptr;
};

TEST(SimPaths, ABrokenPathIsToldAfterFiveSecondsAndEndsTheGroupAfterItsTimeout) {
  Job job({0, 1, 2});
  const Instant cut = after(job.began, milliseconds(10));
  job.world.at(cut, [&] { job.fabric->cut(0, 1); });
  job.world.run_until(after(job.began, milliseconds(20)));
  const Instant used = job.world.now();
  for (auto& rank : job.ranks) rank->sum(200'000);

  job.world.run_until(after(cut, seconds(5) - milliseconds(1)));
  for (const auto& rank : job.ranks) EXPECT_TRUE(rank->reports.empty());
  job.world.run_until(after(cut, seconds(100)));
  for (const int rank : {0, 1}) {
    ASSERT_EQ(job[rank].reports.size(), 2u) << "the path, and that the operation is late";
    EXPECT_EQ(job[rank].reports[0].when, after(cut, seconds(5)));
    const std::string& said = job[rank].reports[0].sentence;
    EXPECT_EQ(said.find("The path between " + kEnds + " has been broken for 5 s: the simulated link is cut. "), 0u)
        << said;
    EXPECT_NE(said.find("waits for 116 s more (AIACC_PATH_TIMEOUT)"), std::string::npos)
        << "it was seen in use a second after it broke: " << said;
  }
  EXPECT_EQ(job[2].reports.size(), 1u) << "it is late, and no path of its own is broken";

  const Instant end = after(cut, seconds(121));
  ASSERT_LT(used, after(cut, seconds(1)));
  job.world.run_until(after(end, -milliseconds(1)));
  for (const auto& rank : job.ranks) EXPECT_FALSE(rank->operations[0]->done());
  job.world.run_until(after(end, milliseconds(1)));
  for (auto& rank : job.ranks) {
    const Error error = error_of(*rank->operations[0]);
    EXPECT_EQ(error.code(), Code::kUnreachable);
    EXPECT_EQ(error.message().find("the path between " + kEnds + " was broken for 121 s (AIACC_PATH_TIMEOUT): "), 0u)
        << error.message();
    EXPECT_EQ(error.message(), error_of(*job[0].operations[0]).message()) << "also at the other end, over rank 2";
    EXPECT_EQ(ranks_of(rank->operations[0]->error()), (std::vector<int>{0, 1}));
  }
}

TEST(SimPaths, EachEndOfAWorldOfTwoHostsSaysIt) {
  Job job({0, 1});
  for (auto& rank : job.ranks) rank->sum(200'000);
  job.world.run_until(after(job.began, std::chrono::microseconds(10)));
  const Instant cut = job.world.now();
  job.fabric->cut(0, 1);
  job.world.run_until(after(cut, seconds(120) - milliseconds(1)));
  EXPECT_FALSE(job[0].operations[0]->done());
  job.world.run_until(after(cut, seconds(120) + milliseconds(1)));
  EXPECT_EQ(error_of(*job[0].operations[0]).code(), Code::kUnreachable);
  EXPECT_FALSE(job[1].operations[0]->done()) << "a notice might come another way";
  job.world.run_until(after(cut, seconds(121) + milliseconds(1)));
  EXPECT_EQ(error_of(*job[1].operations[0]).code(), Code::kUnreachable);
}

TEST(SimPaths, APathThatComesBackInTimeCostsNothing) {
  Job job({0, 1});
  for (auto& rank : job.ranks) rank->sum(200'000);
  job.world.run_until(after(job.began, std::chrono::microseconds(10)));
  const Instant cut = job.world.now();
  job.fabric->cut(0, 1);
  job.world.run_until(after(cut, seconds(120) - milliseconds(1)));
  job.fabric->heal(0, 1);
  job.finish();
  EXPECT_LT(job.world.now(), after(cut, seconds(120)));
  job.world.run_until(after(cut, seconds(300)));
  for (auto& rank : job.ranks) {
    EXPECT_EQ(error_of(*rank->operations[0]).message(), "");
    ASSERT_EQ(rank->reports.size(), 3u) << "broken, late, and well again";
    EXPECT_EQ(rank->reports[2].sentence, "The path between " + kEnds + " carries messages again after 120 s.");
    rank->sum(3);
  }
  job.finish();
  for (auto& rank : job.ranks) EXPECT_EQ(error_of(*rank->operations[1]).message(), "");
}

TEST(SimPaths, ABlinkIsNotWorthALine) {
  Job job({0, 1});
  for (auto& rank : job.ranks) rank->sum(200'000);
  job.world.run_until(after(job.began, std::chrono::microseconds(10)));
  const Instant cut = job.world.now();
  job.fabric->cut(0, 1);
  job.world.run_until(after(cut, seconds(5) - milliseconds(1)));
  job.fabric->heal(0, 1);
  job.finish();
  job.world.run_until(after(cut, seconds(300)));
  for (auto& rank : job.ranks) {
    EXPECT_EQ(error_of(*rank->operations[0]).message(), "");
    EXPECT_TRUE(rank->reports.empty());
  }
}

TEST(SimPaths, OnlyTheGroupsThatNeedItEnd) {
  Job job({0, 1, 2});
  Pair zero_one(job, 0, 1), one_zero(job, 1, 1), zero_two(job, 0, 2), two_zero(job, 2, 2);
  job.fabric->cut(0, 1);
  const Instant cut = job.world.now();
  GroupOperation* needs[] = {&zero_one.barrier(job[0]), &one_zero.barrier(job[1])};
  for (int second = 0; second < 150; second += 10) {
    job.world.run_until(after(cut, seconds(second)));
    GroupOperation* goes_on[] = {&zero_two.barrier(job[0]), &two_zero.barrier(job[2])};
    ASSERT_TRUE(job.world.run_while_not([&] { return goes_on[0]->done() && goes_on[1]->done(); }));
    for (const GroupOperation* each : goes_on) EXPECT_EQ(error_of(*each).message(), "");
    if (second != 120) {
      EXPECT_EQ(needs[0]->done(), second > 120);
    }
  }
  for (const GroupOperation* each : needs) {
    EXPECT_EQ(error_of(*each).code(), Code::kUnreachable);
    EXPECT_NE(error_of(*each).message().find("the path between " + kEnds), std::string::npos);
  }
  EXPECT_FALSE(job[0].context->world().aborted());
  EXPECT_FALSE(job[1].context->world().aborted());
}

TEST(SimPaths, APathThatNobodyUsesMayBeBrokenForAsLongAsItLikes) {
  Job job({0, 1});
  job.fabric->cut(0, 1);
  job.world.run_until(after(job.began, seconds(1000)));
  const Instant used = job.world.now();
  for (auto& rank : job.ranks) rank->sum(3);
  job.world.run_until(after(used, seconds(2)));
  for (const auto& rank : job.ranks) {
    ASSERT_EQ(rank->reports.size(), 1u) << "it has been broken for longer than five seconds";
    EXPECT_FALSE(rank->operations[0]->done()) << "its time begins with the use";
  }
  job.world.run_until(after(used, seconds(119)));
  for (const auto& rank : job.ranks) EXPECT_FALSE(rank->operations[0]->done());
  job.world.run_until(after(used, seconds(123)));
  for (const auto& rank : job.ranks) EXPECT_EQ(error_of(*rank->operations[0]).code(), Code::kUnreachable);
}

// --- leaving -----------------------------------------------------------------------------------------------------------

TEST(SimLeaving, AfterAnErrorIsOneDeadlineForAllSteps) {
  Job job({0, 1, 2});
  for (auto& rank : job.ranks) rank->sum(3);
  job.finish();
  // Rank 1 computes and looks at nothing; with rank 2 nothing can be exchanged at all.
  job.world.freeze(job[1].loop.node());
  job.fabric->cut(0, 2);
  job[0].context->world().abort(std::make_exception_ptr(Error(Code::kSystem, "the disk of rank 0 is full", 0)));
  const Instant began = job.world.now();
  Stop stop;
  LeaveDeadline deadline(job[0].loop);
  Task<void> closing = job[0].context->close(deadline, stop);
  closing.start();
  ASSERT_TRUE(job.world.run_while_not([&] { return closing.done(); }));
  EXPECT_EQ(deadline.of_job(), after(began, seconds(1))) << "for whom it met the job by";
  EXPECT_GE(job.world.now(), deadline.of_messages());
  EXPECT_LE(job.world.now(), after(deadline.of_connections(), std::chrono::microseconds(1)));
  EXPECT_LT(deadline.of_connections(), deadline.of_job()) << "there is time for a last word";
}

}  // namespace
}  // namespace aiacc
