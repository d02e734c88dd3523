#include "launcher/agent/exit_rules.h"

#include <gtest/gtest.h>

#include <csignal>

namespace aiacc::launcher {
namespace {

using namespace std::chrono_literals;

RankEnd code(int value) { return {{value, 0}, false, 2s}; }
RankEnd killed(int signal) { return {{0, signal}, false, 2s}; }

void run_through(ExitRules& rules, int rank) {
  EXPECT_FALSE(rules.connected(rank, 1s));
  rules.initialised(rank);
}

TEST(ExitRules, ProgramsThatNeverInitialiseAreFine) {
  ExitRules rules(3);
  for (int rank : {2, 0, 1}) EXPECT_FALSE(rules.exited(rank, code(0)));
  EXPECT_TRUE(rules.all_exited());
  EXPECT_FALSE(rules.first_failure());
}

TEST(ExitRules, FirstFailureInTimeCountsAndNoLater) {
  ExitRules rules(3);
  auto first = rules.exited(2, code(7));
  ASSERT_TRUE(first);
  EXPECT_EQ(first->rank, 2);
  EXPECT_EQ(first->exit_code, 7);
  EXPECT_FALSE(rules.exited(0, killed(SIGSEGV)));
  EXPECT_EQ(rules.first_failure()->exit_code, 7);
  EXPECT_EQ(rules.running(), 1);
}

RankEnd consequence(int value, int lost) { return {{value, 0}, false, 2s, lost}; }

TEST(ExitRules, AConsequenceWaitsForItsCause) {
  ExitRules rules(4);
  EXPECT_FALSE(rules.undecided());
  EXPECT_FALSE(rules.exited(0, consequence(3, 2)));
  EXPECT_TRUE(rules.undecided());
  EXPECT_FALSE(rules.exited(1, consequence(3, 0)));
  auto failure = rules.exited(2, killed(SIGSEGV));
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, 2);
  EXPECT_FALSE(rules.undecided());
  EXPECT_FALSE(rules.decide());
  EXPECT_EQ(rules.first_failure()->rank, 2);
}

TEST(ExitRules, TheFirstConsequenceIsTheFailureIfNothingElseIs) {
  ExitRules rules(3);
  EXPECT_FALSE(rules.decide());
  EXPECT_FALSE(rules.exited(1, consequence(3, 2)));
  EXPECT_FALSE(rules.exited(0, consequence(4, 2)));
  auto failure = rules.decide();
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, 1);
  EXPECT_EQ(closing_sentence(*failure, "a", 1),
            "rank 1 on host a exited with status 3 after 2.0 s (first failure; it had lost rank 2; 1 other stopped by "
            "aiaccrun)");
}

TEST(ExitRules, ALostPathIsNamedBeforeTheRankThatEndedForIt) {
  ExitRules rules(2);
  RankEnd end{{14, 0}, false, 2s, -1};
  end.lost_path = "the path between rank 0 on host a and rank 1 on host b was broken for 120 s";
  const std::optional<RankFailure> failure = rules.exited(1, end);
  ASSERT_TRUE(failure) << "no rank's failure caused it";
  EXPECT_EQ(failure->id, MessageId::kPathLost);
  EXPECT_EQ(failure->exit_code, 14);
  EXPECT_EQ(closing_sentence(*failure, "b", 1),
            "the path between rank 0 on host a and rank 1 on host b was broken for 120 s; rank 1 on host b exited with "
            "status 14 after 2.0 s (first failure; 1 other stopped by aiaccrun)");
}

TEST(ExitRules, NothingIsUndecidedOnceTheJobEnds) {
  ExitRules rules(2);
  EXPECT_FALSE(rules.exited(1, consequence(3, 0)));
  rules.stop_counting();
  EXPECT_FALSE(rules.undecided());
  EXPECT_FALSE(rules.decide());
  EXPECT_FALSE(rules.first_failure());
}

TEST(ExitRules, SignalGives128Plus) {
  ExitRules rules(1);
  auto failure = rules.exited(0, killed(SIGKILL));
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->exit_code, 137);
  EXPECT_EQ(failure->id, MessageId::kRankSignal);
  EXPECT_EQ(
      closing_sentence(*failure, "c03", 0),
      "rank 0 on host c03 was killed by signal 9 (Killed) after 2.0 s (first failure; no other rank was running)");
  EXPECT_EQ(
      closing_sentence(*failure, "c03", 15),
      "rank 0 on host c03 was killed by signal 9 (Killed) after 2.0 s (first failure; 15 others stopped by aiaccrun)");
}

TEST(ExitRules, MemoryKillIsToldApart) {
  ExitRules rules(1);
  RankEnd end = killed(SIGKILL);
  end.by_memory = true;
  auto failure = rules.exited(0, end);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->id, MessageId::kRankMemory);
  EXPECT_EQ(failure->exit_code, 137);
}

TEST(ExitRules, ZeroWithoutFinalizeIsAnError) {
  ExitRules rules(2);
  run_through(rules, 0);
  run_through(rules, 1);
  rules.finalized(1);
  EXPECT_FALSE(rules.exited(1, code(0)));
  auto failure = rules.exited(0, code(0));
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->exit_code, 1);
  EXPECT_EQ(failure->id, MessageId::kRankState);
}

TEST(ExitRules, ZeroWithoutInitialisingWhileOthersDidIsAnErrorInEitherOrder) {
  ExitRules early(2);
  EXPECT_FALSE(early.exited(1, code(0)));
  auto failure = early.connected(0, 1s);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, 1);
  EXPECT_EQ(failure->exit_code, 1);

  ExitRules late(2);
  EXPECT_FALSE(late.connected(0, 1s));
  failure = late.exited(1, code(0));
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, 1);
}

TEST(ExitRules, OneProgramAfterAnotherIsFineIfAllRanksRunBoth) {
  ExitRules rules(2);
  for (int program = 0; program < 2; ++program) {
    for (int rank : {0, 1}) run_through(rules, rank);
    for (int rank : {0, 1}) rules.finalized(rank);
  }
  for (int rank : {0, 1}) EXPECT_FALSE(rules.exited(rank, code(0)));

  ExitRules uneven(2);
  for (int rank : {0, 1}) run_through(uneven, rank);
  for (int rank : {0, 1}) uneven.finalized(rank);
  EXPECT_FALSE(uneven.exited(1, code(0)));
  EXPECT_TRUE(uneven.connected(0, 1s));
}

TEST(ExitRules, AJobWithSpareRanksSurvivesTheirFailures) {
  ExitRules rules(4, 2);
  EXPECT_FALSE(rules.take_survived());
  EXPECT_FALSE(rules.exited(2, killed(SIGKILL)));
  EXPECT_EQ(rules.take_survived()->rank, 2);
  EXPECT_FALSE(rules.take_survived()) << "once";
  EXPECT_FALSE(rules.exited(0, code(0)));
  EXPECT_FALSE(rules.take_survived());
  EXPECT_FALSE(rules.exited(1, code(5)));
  EXPECT_EQ(rules.take_survived()->exit_code, 5);
  EXPECT_EQ(rules.not_failed(), 2);
  EXPECT_FALSE(rules.exited(3, code(0)));
  EXPECT_TRUE(rules.all_exited());
  EXPECT_FALSE(rules.first_failure());
}

TEST(ExitRules, TheFirstFailureIsTheJobsIfTooFewAreLeft) {
  ExitRules rules(3, 2);
  EXPECT_FALSE(rules.exited(1, killed(SIGSEGV)));
  const std::optional<RankFailure> failure = rules.exited(0, consequence(1, 1));
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, 1);

  ExitRules late(3, 2);
  EXPECT_FALSE(late.exited(0, consequence(1, 1)));
  EXPECT_FALSE(late.undecided()) << "the job survives it";
  EXPECT_FALSE(late.exited(2, consequence(1, 1)));
  EXPECT_TRUE(late.undecided());
  EXPECT_EQ(late.exited(1, killed(SIGSEGV))->rank, 1);
}

TEST(ExitRules, ARankThatOthersWaitForEndsAlsoAJobWithSpareRanks) {
  ExitRules rules(3, 1);
  EXPECT_FALSE(rules.connected(0, 1s));
  const std::optional<RankFailure> failure = rules.exited(1, code(0));
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->id, MessageId::kRankState);
}

TEST(ExitRules, AReplacementThatJoinsRepairsTheFailure) {
  ExitRules rules(3, 2);
  for (int rank : {0, 1, 2}) run_through(rules, rank);
  for (int round = 0; round < 5; ++round) {
    EXPECT_FALSE(rules.exited(1, killed(SIGKILL)));
    EXPECT_TRUE(rules.survives());
    EXPECT_EQ(rules.take_survived()->rank, 1);
    rules.replaced(1);
    EXPECT_TRUE(rules.joining(1));
    EXPECT_EQ(rules.not_failed(), 2);
    for (int rank : {0, 2}) {
      rules.finalized(rank);
      EXPECT_FALSE(rules.connected(rank, 1s));
    }
    EXPECT_FALSE(rules.connected(1, 1s));
    for (int rank : {2, 0, 1}) rules.initialised(rank, round + 2);
    EXPECT_EQ(rules.not_failed(), 3);
  }
  for (int rank : {1, 0, 2}) {
    rules.finalized(rank);
    EXPECT_FALSE(rules.exited(rank, code(0))) << "all have said hello equally often";
  }
  EXPECT_TRUE(rules.all_exited());
}

// Rank 2 exits while aiaccrun opens the second world, which is void on their host: who waits there says no further hello for the
// third one, and the replacement of rank 2 says its first.
TEST(ExitRules, AWorldThatWasVoidLeavesAllWithTheSameCount) {
  ExitRules rules(3, 1);
  for (const int rank : {0, 1, 2}) run_through(rules, rank);
  const auto replace = [&rules](int lost) {
    EXPECT_FALSE(rules.exited(lost, killed(SIGKILL)));
    EXPECT_EQ(rules.take_survived()->rank, lost);
    rules.replaced(lost);
  };
  replace(1);
  for (const int rank : {0, 2}) EXPECT_FALSE(rules.connected(rank, 1s));
  EXPECT_FALSE(rules.connected(1, 1s));
  replace(2);
  EXPECT_FALSE(rules.connected(2, 1s));
  for (const int rank : {0, 1, 2}) rules.initialised(rank, 3);
  for (const int rank : {0, 1, 2}) {
    rules.finalized(rank);
    EXPECT_FALSE(rules.exited(rank, code(0))) << "rank " << rank;
  }
  EXPECT_TRUE(rules.all_exited());
}

TEST(ExitRules, WhoFinishesIsNotMissingForAReplacementThatComesTooLate) {
  ExitRules rules(3, 1);
  for (const int rank : {0, 1, 2}) run_through(rules, rank);
  EXPECT_FALSE(rules.exited(2, killed(SIGKILL)));
  rules.take_survived();
  rules.replaced(2);
  EXPECT_FALSE(rules.connected(2, 1s));
  rules.finalized(0);
  EXPECT_FALSE(rules.exited(0, code(0)));
  EXPECT_FALSE(rules.exited(2, code(1))) << "it is refused";
  EXPECT_TRUE(rules.survives());
  rules.finalized(1);
  EXPECT_FALSE(rules.exited(1, code(0)));
  EXPECT_FALSE(rules.first_failure());
}

TEST(ExitRules, AReplacementThatFailsBeforeItJoinedCountsOnce) {
  ExitRules rules(3, 2);
  for (int rank : {0, 1, 2}) run_through(rules, rank);
  EXPECT_FALSE(rules.exited(1, killed(SIGKILL)));
  rules.take_survived();
  rules.replaced(1);
  EXPECT_FALSE(rules.exited(1, code(6)));
  EXPECT_TRUE(rules.survives());
  rules.take_survived();
  rules.leave_out(1);
  for (int rank : {0, 2}) {
    rules.finalized(rank);
    EXPECT_FALSE(rules.connected(rank, 1s)) << "nobody waits for it";
    rules.initialised(rank);
  }
  const auto failure = rules.exited(0, code(7));
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, 1) << "the first in time";
}

TEST(ExitRules, AfterItsLastRepairTheNextFailureIsTheJobs) {
  ExitRules rules(3, 1);
  for (int rank : {0, 1, 2}) run_through(rules, rank);
  EXPECT_FALSE(rules.exited(1, killed(SIGKILL)));
  rules.take_survived();
  rules.replaced(1);
  rules.survive_no_more();
  EXPECT_FALSE(rules.undecided());
  run_through(rules, 1);
  EXPECT_FALSE(rules.survive_losing({2}));
  const auto failure = rules.exited(2, code(7));
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, 2) << "the other is repaired";
}

// Where hosts are found, a lost rank is left out and another number takes its part.
TEST(ExitRules, AnAddedRankRepairsTheLossOfAnother) {
  ExitRules rules(3, 1);
  for (int rank : {0, 1, 2}) run_through(rules, rank);
  for (const int lost : {0, 3}) {
    EXPECT_FALSE(rules.exited(lost, killed(SIGKILL)));
    rules.take_survived();
    rules.leave_out(lost);
    const int added = rules.add();
    EXPECT_FALSE(rules.connected(added, 1s));
    rules.initialised(added, 2);
    EXPECT_EQ(rules.not_failed(), 3);
  }
  EXPECT_FALSE(rules.exited(1, code(6)));
  EXPECT_FALSE(rules.exited(2, code(7)));
  const auto failure = rules.exited(4, code(8));
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, 1) << "the first that was not repaired";
}

TEST(ExitRules, WhoIsDismissedIsNotWantedForARepair) {
  ExitRules rules(4, 1);
  for (int rank : {0, 1, 2, 3}) run_through(rules, rank);
  EXPECT_FALSE(rules.exited(3, killed(SIGKILL)));
  rules.take_survived();
  rules.leave_out(3);
  rules.dismiss(2);
  EXPECT_FALSE(rules.exited(2, code(0)));
  const int added = rules.add();
  rules.initialised(added, 2);
  EXPECT_FALSE(rules.exited(0, code(5)));
  EXPECT_FALSE(rules.exited(1, code(5)));
  const auto failure = rules.exited(added, code(5));
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, 0) << "as many ranks as there could be had come together before";
}

// They have no state of the job.
TEST(ExitRules, NewRanksDoNotRepairAJobOfWhichNobodyIsLeft) {
  ExitRules rules(2, 1);
  for (int rank : {0, 1}) run_through(rules, rank);
  const int late = rules.add();
  EXPECT_FALSE(rules.connected(late, 1s));
  rules.dismiss(1);
  EXPECT_FALSE(rules.exited(1, killed(SIGKILL)));
  EXPECT_FALSE(rules.exited(0, consequence(1, 1)));
  EXPECT_TRUE(rules.undecided());
  rules.leave_out(0);
  rules.initialised(late, 2);
  const auto failure = rules.decide();
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, 0);
}

TEST(ExitRules, ANewRankThatEndsBeforeItWasInitialisedIsNotMissed) {
  ExitRules rules(3, 1);
  for (int rank : {0, 1, 2}) run_through(rules, rank);
  const int late = rules.add();
  EXPECT_FALSE(rules.exited(late, code(0)));
  EXPECT_TRUE(rules.take_survived());
  EXPECT_EQ(rules.not_failed(), 3);
  EXPECT_FALSE(rules.exited(1, code(3))) << "two are left";
}

// Their program calls nothing of the library.
TEST(ExitRules, NewRanksMayFinishWhereNobodyInitialises) {
  ExitRules rules(2, 1);
  const int late = rules.add();
  EXPECT_FALSE(rules.left_early(late));
  EXPECT_FALSE(rules.exited(late, code(0)));
  EXPECT_FALSE(rules.survives());
}

TEST(ExitRules, AProcessThatTakesTheTurnOfAnotherInTheSameWorldIsNoFurtherWorld) {
  for (const bool elastic : {false, true}) {
    ExitRules rules(2, elastic ? 1 : 2);
    for (const int rank : {0, 0, 1}) EXPECT_FALSE(rules.connected(rank, 1s));
    for (const int rank : {0, 1}) rules.initialised(rank, elastic ? 1 : 0);
    for (const int rank : {0, 1}) rules.finalized(rank);
    for (const int rank : {1, 0}) EXPECT_FALSE(rules.exited(rank, code(0))) << elastic;
  }
}

// aiaccrun refuses them, whether the rank ends before they ask or while they wait.
TEST(ExitRules, NobodyWaitsForAFinishedRankOfAnElasticJob) {
  for (const bool elastic : {false, true}) {
    for (const bool ends_first : {false, true}) {
      ExitRules rules(2, 1, elastic);
      for (const int rank : {0, 1}) run_through(rules, rank);
      for (const int rank : {0, 1}) rules.finalized(rank);
      const auto early = ends_first ? rules.exited(0, code(0)) : rules.connected(1, 1s);
      EXPECT_FALSE(early);
      const auto failure = ends_first ? rules.connected(1, 1s) : rules.exited(0, code(0));
      EXPECT_EQ(failure.has_value(), !elastic);
      EXPECT_FALSE(rules.exited(1, code(9))) << "one rank ended well, or the job failed before";
      EXPECT_EQ(rules.survives(), elastic);
    }
    ExitRules never(2, 1, elastic);
    run_through(never, 1);
    EXPECT_TRUE(never.exited(0, code(0))) << "it was in no world, and is waited for";
  }
}

TEST(ExitRules, WhatTheLauncherKilledNeverCounts) {
  ExitRules rules(2);
  rules.stop_counting();
  EXPECT_FALSE(rules.exited(0, killed(SIGTERM)));
  EXPECT_FALSE(rules.exited(1, code(9)));
  EXPECT_FALSE(rules.first_failure());
  EXPECT_TRUE(rules.all_exited());
}

TEST(ExitRules, FailureAfterFinalizeStillCounts) {
  ExitRules rules(1);
  run_through(rules, 0);
  rules.finalized(0);
  auto failure = rules.exited(0, code(4));
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->exit_code, 4);
}

TEST(ExitRules, AnAddedRankCountsOnceItIsInitialised) {
  ExitRules rules(2, 2);
  for (const int rank : {0, 1}) rules.connected(rank, {});
  for (const int rank : {0, 1}) rules.initialised(rank);
  EXPECT_EQ(rules.add(), 2);
  EXPECT_EQ(rules.not_failed(), 2);
  EXPECT_EQ(rules.running(), 3);
  EXPECT_FALSE(rules.exited(2, {{5, 0}})) << "it was in no world yet";
  EXPECT_TRUE(rules.take_survived());
  EXPECT_EQ(rules.add(), 3);
  rules.leave_out(2);
  EXPECT_FALSE(rules.connected(3, {})) << "nobody waits for rank 2, which never came";
  rules.initialised(3, 2);
  EXPECT_EQ(rules.not_failed(), 3);
  EXPECT_FALSE(rules.exited(0, {{5, 0}})) << "2 are left";
  const auto failure = rules.exited(1, {{6, 0}});
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, 0);
}

TEST(ExitRules, AnAddedRankMayMissWorldsWhileItStarts) {
  ExitRules rules(2);
  for (const int rank : {0, 1}) run_through(rules, rank);
  const int late = rules.add();
  for (const int rank : {0, 1}) rules.finalized(rank);
  for (const int rank : {0, 1}) run_through(rules, rank);  // the second world, without it
  for (const int rank : {0, 1}) rules.finalized(rank);
  for (const int rank : {0, 1}) EXPECT_FALSE(rules.connected(rank, 1s));
  EXPECT_FALSE(rules.connected(late, 1s));
  for (const int rank : {0, 1, late}) rules.initialised(rank, 3);
  for (const int rank : {late, 0, 1}) {
    rules.finalized(rank);
    EXPECT_FALSE(rules.exited(rank, code(0))) << "nobody waits for it";
  }
}

TEST(ExitRules, HowADismissedRankEndsCountsNothing) {
  ExitRules rules(3, 1);
  for (const int rank : {0, 1, 2}) rules.connected(rank, {});
  for (const int rank : {0, 1, 2}) rules.initialised(rank);
  rules.dismiss(1);
  EXPECT_EQ(rules.not_failed(), 2);
  EXPECT_FALSE(rules.exited(1, {{9, 0}}));
  EXPECT_FALSE(rules.survives());
  EXPECT_EQ(rules.running(), 2);
  rules.finalized(0);
  EXPECT_FALSE(rules.exited(0, {{0, 0}}));
  const int late = rules.add();
  rules.dismiss(late);
  EXPECT_FALSE(rules.connected(late, {})) << "rank 0 has finished, and is not missing for it";
  EXPECT_EQ(rules.not_failed(), 2);
}

}  // namespace
}  // namespace aiacc::launcher
