#include "launcher/verdict.h"

#include <gtest/gtest.h>

namespace aiacc::launcher {
namespace {

TEST(Verdict, AJobThatWentWellHasNoClosingLine) { EXPECT_FALSE(closing_line(Verdict{})); }

TEST(Verdict, StrangersAreCountedByHostAndChangeNothing) {
  Verdict verdict;
  verdict.strangers = {{"h1", 1}};
  EXPECT_EQ(closing_line(verdict)->sentence, "all ranks have ended; 1 stranger was turned away on h1");
  EXPECT_EQ(closing_line(verdict)->id, MessageId::kStrangers);
  EXPECT_EQ(exit_code(verdict), kExitOk);
  verdict.strangers = {{"h1", 10}, {"h3", 2}};
  EXPECT_EQ(closing_line(verdict)->sentence, "all ranks have ended; 12 strangers were turned away (10 on h1, 2 on h3)");
  for (int host = 0; host < 100; ++host) verdict.strangers.emplace_back("n" + std::to_string(host), 1);
  EXPECT_TRUE(closing_line(verdict)->sentence.ends_with("1 on n5 and more on 94 hosts)"));
}

TEST(Verdict, AFailureComesFirst) {
  Verdict verdict;
  verdict.cause = Cause::kTimeout;
  verdict.timeout = std::chrono::seconds(5);
  verdict.dropped_bytes = 7;
  verdict.strangers = {{"h1", 3}};
  EXPECT_EQ(closing_line(verdict)->id, MessageId::kTimeout);
  EXPECT_TRUE(closing_line(verdict)->sentence.ends_with(
      "; 7 bytes of output that nobody read were dropped; 3 strangers were turned away on h1"));
  EXPECT_EQ(exit_code(verdict), kExitTimeout);
}

TEST(Verdict, OnlyRanksThatRanWereStopped) {
  Verdict verdict;
  verdict.cause = Cause::kLost;
  verdict.sentence = "the connection to host b was lost";
  verdict.took = std::chrono::seconds(2);
  verdict.stopped_ranks = 4;
  EXPECT_EQ(closing_line(verdict)->sentence, "the connection to host b was lost; 4 ranks stopped after 2.0 s");
  verdict.stopped_ranks = 0;
  EXPECT_EQ(closing_line(verdict)->sentence,
            "the connection to host b was lost; no rank was running any more after 2.0 s");
  verdict.stopped_ranks = 4;
  verdict.ranks_started = false;
  EXPECT_EQ(closing_line(verdict)->sentence, "the connection to host b was lost; no rank had been started after 2.0 s");
  verdict.cause = Cause::kInterrupted;
  verdict.interrupted_by = 2;
  EXPECT_EQ(closing_line(verdict)->sentence, "the job was ended by SIGINT after 2.0 s; no rank had been started");
  verdict.ranks_started = true;
  verdict.stopped_ranks = 1;
  verdict.hosts = "host a";
  EXPECT_EQ(closing_line(verdict)->sentence, "the job was ended by SIGINT after 2.0 s; 1 rank on host a ended with it");
}

}  // namespace
}  // namespace aiacc::launcher
