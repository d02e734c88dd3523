// The conformance suite of Clock and its Loop, real or simulated. Only the simulator's tests bound lateness: a busy
// machine may be late, never early.
//
// A Fixture gives: io::Clock& clock(); Loop& loop(); template <class T> T run(Task<T>), which drives the loop until the
// task ends. Use: INSTANTIATE_TYPED_TEST_SUITE_P(Name, ClockConformance, MyFixture).
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/io/clock.h"
#include "base/task/loop.h"
#include "base/task/scope.h"

namespace aiacc::io {
namespace clock_conformance {

using std::chrono::milliseconds;

inline Task<Duration> slept(Loop& loop, Duration span) {
  Stop never;
  const Instant began = loop.now();
  co_await sleep_for(loop, span, never);
  co_return loop.now() - began;
}

// Appends its name to a log each time it expires.
class NamedTimer final : public Timer {
 public:
  NamedTimer(std::string name, std::vector<std::string>& log) : name_(std::move(name)), log_(log) {}
  void expired() noexcept override { log_.push_back(name_); }

 private:
  std::string name_;
  std::vector<std::string>& log_;
};

class CountingJob final : public Job {
 public:
  void run() noexcept override { ++runs; }
  int runs = 0;
};

inline Task<void> stop_later(Loop& loop, Duration span, Stop& stop, Stop& target) {
  co_await sleep_for(loop, span, stop);
  target.request(std::make_exception_ptr(Error(Code::kAborted, "enough slept")));
}

inline Task<void> sleep_an_hour(Loop& loop, Stop& stop) { co_await sleep_for(loop, std::chrono::hours(1), stop); }

inline Task<std::string> sentence_of_stopped_sleep(Loop& loop) {
  Stop outer;
  Stop target;
  Scope scope(loop, outer);
  scope.spawn(stop_later(loop, milliseconds(5), scope.stop(), target));
  std::string sentence;
  try {
    co_await sleep_an_hour(loop, target);
  } catch (const Error& error) {
    sentence = error.message();
  }
  co_await scope.join();
  co_return sentence;
}

}  // namespace clock_conformance

template <class Fixture>
class ClockConformance : public testing::Test {
 protected:
  Fixture fixture_;
};
TYPED_TEST_SUITE_P(ClockConformance);

TYPED_TEST_P(ClockConformance, TimeNeverGoesBack) {
  Clock& clock = this->fixture_.clock();
  Instant last = clock.now();
  for (int i = 0; i < 1000; ++i) {
    const Instant now = clock.now();
    ASSERT_GE(now, last);
    last = now;
  }
  EXPECT_GT(clock.wall_ns(), 0);
}

TYPED_TEST_P(ClockConformance, LoopAndClockShareOneTimeline) {
  const Instant before = this->fixture_.clock().now();
  const Instant loop_time = this->fixture_.loop().now();
  const Instant afterwards = this->fixture_.clock().now();
  EXPECT_LE(before, loop_time);
  EXPECT_LE(loop_time, afterwards);
}

TYPED_TEST_P(ClockConformance, ASleepLastsAtLeastItsSpan) {
  using namespace clock_conformance;
  for (const Duration span : {Duration(0), Duration(1), Duration(milliseconds(1)), Duration(milliseconds(20))}) {
    EXPECT_GE(this->fixture_.run(slept(this->fixture_.loop(), span)), span);
  }
}

TYPED_TEST_P(ClockConformance, TimersRingInOrderOfTimeThenOfArming) {
  using namespace clock_conformance;
  Loop& loop = this->fixture_.loop();
  std::vector<std::string> log;
  NamedTimer late("late", log);
  NamedTimer early("early", log);
  NamedTimer twin("twin of early", log);
  NamedTimer disarmed("disarmed", log);
  NamedTimer moved("moved", log);
  const Instant start = loop.now();
  loop.arm(late, start + milliseconds(20));
  loop.arm(moved, start + milliseconds(1));
  loop.arm(early, start + milliseconds(5));
  loop.arm(twin, start + milliseconds(5));
  loop.arm(disarmed, start + milliseconds(2));
  disarmed.disarm();
  loop.arm(moved, start + milliseconds(10));
  EXPECT_TRUE(moved.armed());
  EXPECT_FALSE(disarmed.armed());
  {
    NamedTimer destroyed("destroyed", log);
    loop.arm(destroyed, start + milliseconds(3));
  }
  // A sleep that is over when the loop first looks ends without the timers.
  for (int sleeps = 0; sleeps < 100 && log.size() < 4; ++sleeps) this->fixture_.run(slept(loop, milliseconds(40)));
  EXPECT_EQ(log, (std::vector<std::string>{"early", "twin of early", "moved", "late"}));
  EXPECT_FALSE(late.armed());
}

TYPED_TEST_P(ClockConformance, AJobRunsOnceAndNeverInsidePost) {
  using namespace clock_conformance;
  Loop& loop = this->fixture_.loop();
  CountingJob job;
  CountingJob dropped;
  loop.post(job);
  loop.post(dropped);
  EXPECT_EQ(job.runs, 0);
  dropped.unlink();
  // A sleep that is over when the loop first looks ends without it.
  for (int sleeps = 0; sleeps < 100 && job.runs == 0; ++sleeps) this->fixture_.run(slept(loop, milliseconds(2)));
  EXPECT_EQ(job.runs, 1);
  EXPECT_EQ(dropped.runs, 0);
}

TYPED_TEST_P(ClockConformance, AStopEndsASleepWithItsReason) {
  using namespace clock_conformance;
  Loop& loop = this->fixture_.loop();
  const Instant began = loop.now();
  EXPECT_EQ(this->fixture_.run(sentence_of_stopped_sleep(loop)), "enough slept");
  EXPECT_LT(loop.now() - began, std::chrono::minutes(1));
}

REGISTER_TYPED_TEST_SUITE_P(ClockConformance, TimeNeverGoesBack, LoopAndClockShareOneTimeline,
                            ASleepLastsAtLeastItsSpan, TimersRingInOrderOfTimeThenOfArming,
                            AJobRunsOnceAndNeverInsidePost, AStopEndsASleepWithItsReason);

}  // namespace aiacc::io
