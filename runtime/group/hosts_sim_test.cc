// Contexts on several hosts in virtual time: what a death, a frozen rank and a cut link do, that the error reaches every member on
// every host with one sentence, and how ranks leave. Calls of ranks that live are in hosts_calls_sim_test.cc.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <string>

#include "runtime/group/calls_test.h"
#include "runtime/group/hosts_sim_test.h"
#include "tests/sim_job.h"
#include "transports/stall_times.h"

namespace aiacc {
namespace {

using sim::error_of;
using sim::SimContext;
using sim::SimJob;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
class SimHosts : public hosts_sim_test::OnHosts {};
INSTANTIATE_TEST_SUITE_P(Placements, SimHosts, ::testing::ValuesIn(hosts_sim_test::kPlacements),
                         [](const auto& param) { return hosts_sim_test::text(param.param); });

// --- deaths ------------------------------------------------------------------------------------------------------------

std::exception_ptr killed(int rank) {
  return std::make_exception_ptr(
      Error(Code::kPeerFailed, "rank " + std::to_string(rank) + " on host b was killed by signal 9", rank));
}

void expect_all_name(SimJob& job, int dead, const std::string& sentence) {
  for (int rank = 0; rank < job.size(); ++rank) {
    if (rank == dead) continue;
    bool failed = false;
    for (const auto& operation : job[rank].operations) {
      const Error error = error_of(*operation);
      failed = failed || error.code() != Code::kOk;
      if (!failed) continue;
      EXPECT_EQ(error.code(), Code::kPeerFailed) << error.message();
      EXPECT_EQ(error.peer(), dead);
      EXPECT_EQ(error.message(), sentence) << "rank " << rank;
    }
    EXPECT_TRUE(failed) << "rank " << rank;
  }
}

TEST_P(SimHosts, ADeathThatOneAgentTellsOfIsNamedToAllWithinASecond) {
  for (int dead = 0; dead < size(); ++dead) {
    sim::FabricModel model;
    model.detection = seconds(20);  // connections alone would tell too late
    SimJob job(GetParam(), 1, model);
    for (auto& rank : job.ranks) {
      for (int i = 0; i < 4; ++i) rank->sum(200'000);
    }
    const int told = (dead + size() / 2) % size() == dead ? (dead + 1) % size() : (dead + size() / 2) % size();
    job.world.at(after(job.began, microseconds(150)), [&] {
      job.world.kill(job[dead].loop.node());
      job[told].context->on_rank_lost(dead, killed(dead));
    });
    job.finish();
    EXPECT_LT(job.elapsed(), seconds(1));
    expect_all_name(job, dead, as_error(killed(dead)).message());
  }
}

// What a rank says to the process that started it.
struct Told final : Bootstrap {
  Task<BootstrapResult> join(Stop&) override { co_return BootstrapResult{}; }
  void observe(BootstrapObserver&) noexcept override {}
  void lost_peer(int rank) noexcept override { lost.push_back(rank); }
  Task<void> leave(Instant, Stop&) override { co_return; }
  std::vector<int> lost;
};

TEST_P(SimHosts, ARankThatIsLostToItselfIsLostToTheOthersWhoHearItFromItFirst) {
  const int dead = size() - 1;
  SimJob job(GetParam());
  std::vector<Told> told(GetParam().size());
  for (int rank = 0; rank < size(); ++rank) job[rank].context->tell_losses_to(told[static_cast<std::size_t>(rank)]);
  for (auto& rank : job.ranks) rank->sum(200'000);
  job.world.at(after(job.began, microseconds(50)), [&] {
    job[dead].context->on_rank_lost(
        dead, std::make_exception_ptr(Error(Code::kPeerFailed, "the agent of its host is gone", dead)));
  });
  job.finish();
  for (int rank = 0; rank < size(); ++rank) {
    EXPECT_EQ(error_of(*job[rank].operations[0]).message(), "the agent of its host is gone");
    EXPECT_EQ(told[static_cast<std::size_t>(rank)].lost, std::vector<int>{dead}) << "rank " << rank;
  }
}

// As one that exits because of an error. Nobody but it knows why until its own death is noticed, which takes longer.
TEST_P(SimHosts, ARankMayDieAtOnceWhenACallHasFailed) {
  for (const bool waits : {false, true}) {
    sim::FabricModel model;
    model.detection = seconds(20);
    SimJob job(GetParam(), 1, model);
    const int dead = size() - 1;
    for (auto& rank : job.ranks)
      waits ? static_cast<void>(rank->sum_plainly(1)) : static_cast<void>(rank->sum(200'000));
    for (auto& rank : job.ranks) rank->sum(200'000);
    const RequestedWork& first = waits ? *job[dead].plain_ones[0] : *job[dead].operations[0];
    job.world.at(after(job.began, microseconds(1)), [&] {
      job[dead].context->on_rank_lost(
          dead, std::make_exception_ptr(Error(Code::kPeerFailed, "the agent of its host is gone", dead)));
    });
    ASSERT_TRUE(job.world.run_while_not([&] { return first.done(); }));
    EXPECT_EQ(error_of(first).message(), "the agent of its host is gone");
    job.world.kill(job[dead].loop.node());
    job.finish();
    EXPECT_LT(job.elapsed(), seconds(1)) << (waits ? "waits" : "an operation");
    for (int rank = 0; rank < dead; ++rank) {
      EXPECT_EQ(error_of(*job[rank].operations[0]).message(), "the agent of its host is gone") << "rank " << rank;
    }
  }
}

TEST_P(SimHosts, AnyMomentIsAMomentToDie) {
  std::uint64_t events = 0;
  std::uint64_t first = 0;
  {
    SimJob job(GetParam());
    first = job.world.events();
    for (auto& rank : job.ranks) rank->sum(20'000);
    job.finish();
    events = job.world.events();
  }
  for (std::uint64_t event = first; event < events; event += 1 + events / 150) {
    SCOPED_TRACE("killed at event " + std::to_string(event));
    SimJob job(GetParam());
    for (auto& rank : job.ranks) rank->sum(20'000);
    const int dead = static_cast<int>(event % GetParam().size());
    job.world.at_event(event, [&] {
      job.world.kill(job[dead].loop.node());
      // The agents of all hosts hear of it, one after another.
      for (int rank = 0; rank < size(); ++rank) {
        if (rank == dead) continue;
        job.world.at(after(job.world.now(), milliseconds(2 + rank)),
                     [&job, rank, dead] { job[rank].context->on_rank_lost(dead, killed(dead)); });
      }
    });
    job.finish();
    EXPECT_LT(job.elapsed(), seconds(1));
    for (int rank = 0; rank < size(); ++rank) {
      const Error error = rank == dead ? Error(Code::kOk, "") : error_of(*job[rank].operations[0]);
      if (error.code() == Code::kOk) continue;
      ASSERT_EQ(error.code(), Code::kPeerFailed) << error.message();
      ASSERT_EQ(error.peer(), dead) << error.message();
    }
  }
}

// Several operations overlap on the hosts, and more wait for them.
TEST_P(SimHosts, AnyMomentOfManyOperationsIsAMomentToDie) {
  static constexpr std::size_t kCounts[] = {20'000, 3, 5'000, 300, 60'000, 16, 9'000, 1};
  const auto start = [](SimJob& job) {
    const std::uint64_t first = job.world.events();
    for (auto& rank : job.ranks) {
      CallOptions options;
      for (const std::size_t count : kCounts) {
        options.traffic_class = count % 2 == 0 ? std::nullopt : std::optional(static_cast<TrafficClass>(count % 4));
        rank->sum(count, options);
      }
    }
    return first;
  };
  std::uint64_t events = 0;
  std::uint64_t first = 0;
  {
    SimJob job(GetParam());
    first = start(job);
    job.finish();
    events = job.world.events();
  }
  for (std::uint64_t event = first; event < events; event += 1 + events / 100) {
    SCOPED_TRACE("killed at event " + std::to_string(event));
    SimJob job(GetParam());
    start(job);
    const int dead = static_cast<int>(event % GetParam().size());
    job.world.at_event(event, [&] {
      job.world.kill(job[dead].loop.node());
      for (int rank = 0; rank < size(); ++rank) {
        if (rank == dead) continue;
        job.world.at(after(job.world.now(), milliseconds(2 + rank)),
                     [&job, rank, dead] { job[rank].context->on_rank_lost(dead, killed(dead)); });
      }
    });
    job.finish();
    EXPECT_LT(job.elapsed(), seconds(1));
    for (int rank = 0; rank < size(); ++rank) {
      if (rank == dead) continue;
      for (std::size_t i = 0; i < job[rank].operations.size(); ++i) {
        const Error error = error_of(*job[rank].operations[i]);
        if (error.code() == Code::kOk) {
          ASSERT_EQ(job[rank].data[i].back(), static_cast<float>(size()));
          continue;
        }
        ASSERT_EQ(error.code(), Code::kPeerFailed) << error.message();
        ASSERT_EQ(error.peer(), dead) << error.message();
      }
    }
  }
}

TEST_P(SimHosts, AFrozenRankIsAStallThatIsNamedAndNoFailureBeforeTheDeadline) {
  for (int frozen = 0; frozen < size(); ++frozen) {
    SCOPED_TRACE(frozen);
    SimJob job(GetParam());
    job.world.freeze(job[frozen].loop.node());
    for (auto& rank : job.ranks) rank->sum(50'000);
    job.world.run_until(after(job.began, seconds(1799)));
    for (int rank = 0; rank < size(); ++rank) {
      if (rank == frozen) continue;
      EXPECT_FALSE(job[rank].operations[0]->done());
      ASSERT_EQ(job[rank].reports.size(), 1u);
      EXPECT_NE(job[rank].reports[0].sentence.find("rank " + std::to_string(frozen)), std::string::npos)
          << "rank " << rank << ": " << job[rank].reports[0].sentence;
    }
    job.world.run_until(after(job.began, seconds(1801)));
    for (int rank = 0; rank < size(); ++rank) {
      if (rank == frozen) continue;
      const Error error = error_of(*job[rank].operations[0]);
      EXPECT_EQ(error.code(), Code::kTimeout) << error.message();
      EXPECT_NE(error.message().find("rank " + std::to_string(frozen)), std::string::npos) << error.message();
    }
  }
}

TEST_P(SimHosts, AFrozenRankThatThawsIsNoFailureAtAll) {
  SimJob job(GetParam());
  for (auto& rank : job.ranks) rank->sum(200'000);
  job.world.at(after(job.began, microseconds(100)), [&] { job.world.freeze(job[1].loop.node()); });
  job.world.at(after(job.began, seconds(1000)), [&] { job.world.thaw(job[1].loop.node()); });
  job.finish();
  for (auto& rank : job.ranks) {
    EXPECT_EQ(error_of(*rank->operations[0]).message(), "");
    EXPECT_EQ(rank->data[0].back(), static_cast<float>(size()));
  }
}

TEST_P(SimHosts, AShortDeadlineOfOneRankIsHeardByAllAtOnce) {
  SimJob job(GetParam());
  for (int rank = 0; rank + 1 < size(); ++rank) {
    CallOptions options;
    if (rank == 0) options.timeout = milliseconds(700);
    job[rank].sum(100'000, options);
  }
  job.finish();
  EXPECT_LE(job.elapsed(), milliseconds(701));
  const std::string named = "rank " + std::to_string(size() - 1);
  for (int rank = 0; rank + 1 < size(); ++rank) {
    const Error error = error_of(*job[rank].operations[0]);
    EXPECT_EQ(error.code(), Code::kTimeout);
    EXPECT_EQ(error.message(), error_of(*job[0].operations[0]).message());
    EXPECT_NE(error.message().find(named), std::string::npos) << error.message();
  }
}

TEST_P(SimHosts, ALinkThatStaysCutLosesTheGroupAfterItsLease) {
  SimJob job(GetParam());
  // Between the first ranks of two hosts.
  int other = 1;
  while (GetParam()[static_cast<std::size_t>(other)] == GetParam()[0]) ++other;
  for (auto& rank : job.ranks) rank->sum(200'000);
  job.world.at(after(job.began, microseconds(50)), [&] { job.fabric->cut(0, other); });
  job.world.run_until(after(job.began, seconds(29)));
  EXPECT_FALSE(job[0].operations[0]->done());
  job.finish();
  EXPECT_LT(job.elapsed(), seconds(31));
  for (auto& rank : job.ranks) {
    const Error error = error_of(*rank->operations[0]);
    EXPECT_EQ(error.code(), Code::kPeerFailed) << error.message();
    EXPECT_TRUE(error.peer() == 0 || error.peer() == other);
    EXPECT_NE(error.message().find("was silent for 30 s"), std::string::npos) << error.message();
  }
}

// --- leaving -----------------------------------------------------------------------------------------------------------

Task<void> leave(SimJob* job, SimContext* rank, std::string* failure) {
  Stop& stop = rank->stop;
  try {
    for (const std::size_t count : {3, 20'000}) {
      GroupOperation& operation = rank->sum(count);
      while (!operation.done()) co_await sleep_for(rank->loop, microseconds(3), stop);
      if (operation.error()) std::rethrow_exception(operation.error());
    }
    const Buffer nothing;
    GroupOperation& barrier = rank->start(Call{}, nothing, nothing);
    while (!barrier.done()) co_await sleep_for(rank->loop, microseconds(3), stop);
    if (barrier.error()) std::rethrow_exception(barrier.error());
    LeaveDeadline deadline(rank->loop);
    co_await rank->context->close(deadline, stop);
  } catch (const Error& error) {
    *failure = error.message();
  }
  // The process ends at once.
  job->world.at(job->world.now(), [job, rank] { job->world.kill(rank->loop.node()); });
}

TEST_P(SimHosts, RanksThatLeaveAtOnceHarmNobody) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    SimJob job(GetParam(), seed);
    // One connection is slower than the whole goodbye of the others.
    if (seed % 2 == 0) job.fabric->slow(0, static_cast<int>(seed) % (size() - 1) + 1, 200);
    std::vector<std::string> failures(GetParam().size());
    std::vector<Task<void>> programs;
    for (int rank = 0; rank < size(); ++rank) {
      programs.push_back(leave(&job, &job[rank], &failures[static_cast<std::size_t>(rank)]));
    }
    for (Task<void>& program : programs) program.start();
    for (Task<void>& program : programs) {
      ASSERT_TRUE(job.world.run_while_not([&] { return program.done(); })) << job.world.recent();
    }
    for (const std::string& failure : failures) ASSERT_EQ(failure, "");
    EXPECT_LT(job.elapsed(), milliseconds(200)) << "nobody waited for a time-out";
  }
}

// Ranks 1 and 3 ask rank 0 why the barrier is late, and rank 0 leaves before their questions come. Its process goes on, as one
// that will call aiacc_init again, so nobody says that it is lost.
TEST(SimHostsLeaving, WhoLeftBeforeAQuestionCameIsNotWaitedFor) {
  SimJob job({0, 0, 1, 1});
  for (const int asking : {1, 3}) job.fabric->cut(asking, 0);
  const Buffer nothing;
  for (const int rank : {1, 2, 3}) job[rank].start(Call{}, nothing, nothing);
  job.world.run_until(after(job.began, 2 * StallTimes::kFirstLook));
  job[0].start(Call{}, nothing, nothing);
  job.finish();
  const Instant left = job.world.now();
  Stop stop;
  std::deque<LeaveDeadline> deadlines;
  std::deque<Task<void>> leaving;
  for (auto& rank : job.ranks) {
    EXPECT_EQ(error_of(*rank->operations[0]).message(), "");
    deadlines.emplace_back(rank->loop);
    leaving.push_back(rank->context->close(deadlines.back(), stop));
    leaving.back().start();
  }
  ASSERT_TRUE(job.world.run_while_not([&] { return leaving[0].done() && leaving[2].done(); }));
  job.world.freeze(job[0].loop.node());
  for (const int asking : {1, 3}) job.fabric->heal(asking, 0);
  const auto all_done = [&] { return leaving[1].done() && leaving[3].done(); };
  ASSERT_TRUE(job.world.run_while_not([&] { return all_done() || job.world.now() > after(left, seconds(2)); }));
  EXPECT_TRUE(all_done());
}

// What it sends shows whether they are there.
TEST(SimHostsLeaving, WhoWaitsForOthersSaysSoAgain) {
  SimJob job({0, 1});
  for (auto& rank : job.ranks) rank->sum(3);
  job.finish();
  Stop stop;
  std::deque<LeaveDeadline> deadlines;
  std::deque<Task<void>> leaving;
  const auto leave = [&](SimContext& rank) {
    deadlines.emplace_back(rank.loop);
    leaving.push_back(rank.context->close(deadlines.back(), stop));
    leaving.back().start();
  };
  leave(job[0]);
  const Instant began = job.world.now();
  job.world.run_until(after(began, seconds(1)));
  const std::uint64_t before = job.fabric->messages();
  job.world.run_until(after(began, seconds(16)));
  EXPECT_EQ(job.fabric->messages(), before + 6) << "three, and their answers";
  leave(job[1]);
  ASSERT_TRUE(job.world.run_while_not([&] { return leaving[0].done() && leaving[1].done(); }));
}

TEST_P(SimHosts, ARankThatLeavesWithAnErrorHasToldItFirst) {
  SimJob job(GetParam());
  for (int rank = 1; rank < size(); ++rank) job[rank].sum(1000);
  job.world.at(after(job.began, milliseconds(1)), [&] {
    job[0].context->world().abort(std::make_exception_ptr(Error(Code::kSystem, "the disk of rank 0 is full", 0)));
  });
  job.world.run_until(after(job.began, milliseconds(1)));
  Stop stop;
  LeaveDeadline deadline(job[0].loop);
  Task<void> closing = job[0].context->close(deadline, stop);
  closing.start();
  ASSERT_TRUE(job.world.run_while_not([&] { return closing.done(); }));
  job.world.kill(job[0].loop.node());
  job.finish();
  for (int rank = 1; rank < size(); ++rank) {
    EXPECT_EQ(error_of(*job[rank].operations[0]).message(), "the disk of rank 0 is full");
    EXPECT_EQ(error_of(*job[rank].operations[0]).code(), Code::kSystem);
  }
  EXPECT_LT(job.elapsed(), milliseconds(1100));
}

}  // namespace
}  // namespace aiacc
