#include "launcher/head/job_result.h"

#include <gtest/gtest.h>

namespace aiacc::launcher {
namespace {

TEST(JobResult, AJobThatWentWellHasNoClosingLine) { EXPECT_FALSE(closing_line(JobResult{})); }

TEST(JobResult, UnauthenticatedPeersAreCountedByHostAndChangeNothing) {
  JobResult result;
  result.unauthenticated = {{"h1", 1}};
  EXPECT_EQ(closing_line(result)->sentence, "all ranks have ended; 1 unauthenticated peer was turned away on h1");
  EXPECT_EQ(closing_line(result)->id, MessageId::kStrangers);
  EXPECT_EQ(exit_code(result), kExitOk);
  result.unauthenticated = {{"h1", 10}, {"h3", 2}};
  EXPECT_EQ(closing_line(result)->sentence,
            "all ranks have ended; 12 unauthenticated peers were turned away (10 on h1, 2 on h3)");
  for (int host = 0; host < 100; ++host) result.unauthenticated.emplace_back("n" + std::to_string(host), 1);
  EXPECT_TRUE(closing_line(result)->sentence.ends_with("1 on n5 and more on 94 hosts)"));
}

TEST(JobResult, AFailureComesFirst) {
  JobResult result;
  result.cause = Cause::kTimeout;
  result.timeout = std::chrono::seconds(5);
  result.dropped_bytes = 7;
  result.unauthenticated = {{"h1", 3}};
  EXPECT_EQ(closing_line(result)->id, MessageId::kTimeout);
  EXPECT_TRUE(closing_line(result)->sentence.ends_with(
      "; 7 bytes of output that nobody read were dropped; 3 unauthenticated peers were turned away on h1"));
  EXPECT_EQ(exit_code(result), kExitTimeout);
}

TEST(JobResult, OnlyRanksThatRanWereStopped) {
  JobResult result;
  result.cause = Cause::kLost;
  result.sentence = "the connection to host b was lost";
  result.took = std::chrono::seconds(2);
  result.stopped_ranks = 4;
  EXPECT_EQ(closing_line(result)->sentence, "the connection to host b was lost; 4 ranks stopped after 2.0 s");
  result.stopped_ranks = 0;
  EXPECT_EQ(closing_line(result)->sentence,
            "the connection to host b was lost; no rank was running any more after 2.0 s");
  result.stopped_ranks = 4;
  result.ranks_started = false;
  EXPECT_EQ(closing_line(result)->sentence, "the connection to host b was lost; no rank had been started after 2.0 s");
  result.cause = Cause::kInterrupted;
  result.interrupted_by = 2;
  EXPECT_EQ(closing_line(result)->sentence, "the job was ended by SIGINT after 2.0 s; no rank had been started");
  result.ranks_started = true;
  result.stopped_ranks = 1;
  result.hosts = "host a";
  EXPECT_EQ(closing_line(result)->sentence, "the job was ended by SIGINT after 2.0 s; 1 rank on host a ended with it");
}

}  // namespace
}  // namespace aiacc::launcher
