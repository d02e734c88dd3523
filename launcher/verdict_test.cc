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

}  // namespace
}  // namespace aiacc::launcher
