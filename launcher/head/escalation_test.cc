#include "launcher/head/escalation.h"

#include <gtest/gtest.h>

#include <csignal>

namespace aiacc::launcher {
namespace {

using namespace std::chrono_literals;
using Signals = std::vector<int>;

TEST(Escalation, FirstSignalIsPassedOnAsItIs) {
  for (int number : {SIGINT, SIGTERM, SIGHUP}) {
    Escalation escalation(30s);
    Escalation::Step step = escalation.user_signal(number, 64);
    EXPECT_EQ(step.signals, (Signals{number, SIGCONT}));
    EXPECT_EQ(step.kill_after, 30s);
    EXPECT_NE(step.sentence.find("64 ranks"), std::string::npos);
    EXPECT_NE(step.sentence.find("30 s"), std::string::npos);
    EXPECT_EQ(escalation.interrupted_by(), number);
  }
}

TEST(Escalation, SecondInterruptTerminatesThirdKills) {
  Escalation escalation(30s);
  escalation.user_signal(SIGINT, 4);
  Escalation::Step second = escalation.user_signal(SIGINT, 4);
  EXPECT_EQ(second.signals, (Signals{SIGTERM, SIGCONT}));
  EXPECT_EQ(second.kill_after, 2s);
  EXPECT_EQ(escalation.flush_grace(), 2s);
  Escalation::Step third = escalation.user_signal(SIGINT, 4);
  EXPECT_EQ(third.kill_after, 0s);
  EXPECT_EQ(escalation.flush_grace(), 0s);
  EXPECT_TRUE(escalation.user_signal(SIGINT, 4).nothing());
}

TEST(Escalation, RepeatedTermIsOnlyPassedOn) {
  Escalation escalation(30s);
  escalation.user_signal(SIGTERM, 4);
  Escalation::Step again = escalation.user_signal(SIGTERM, 4);
  EXPECT_EQ(again.signals, (Signals{SIGTERM, SIGCONT}));
  EXPECT_EQ(again.kill_after, Duration::max());
  EXPECT_TRUE(again.sentence.empty());
}

TEST(Escalation, AShortGraceStaysShort) {
  Escalation escalation(1s);
  escalation.user_signal(SIGINT, 1);
  EXPECT_EQ(escalation.user_signal(SIGINT, 1).kill_after, 1s);
}

TEST(Escalation, InterruptWhileAFailedJobEndsHurriesIt) {
  Escalation escalation(30s);
  Escalation::Step end = escalation.end_job();
  EXPECT_EQ(end.signals, (Signals{SIGTERM, SIGCONT}));
  EXPECT_EQ(end.kill_after, 30s);
  EXPECT_TRUE(escalation.end_job().nothing());
  EXPECT_EQ(escalation.user_signal(SIGINT, 4).kill_after, 2s);
  EXPECT_EQ(escalation.interrupted_by(), 0);  // the failure came first
}

TEST(Escalation, LostIsQuick) {
  Escalation escalation(30s);
  Escalation::Step step = escalation.lost();
  EXPECT_EQ(step.signals, (Signals{SIGTERM, SIGCONT}));
  EXPECT_EQ(step.kill_after, 2s);
}

}  // namespace
}  // namespace aiacc::launcher
