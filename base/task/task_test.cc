#include "base/task/task.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/task/scope.h"
#include "base/task/test_loop.h"

namespace aiacc {
namespace {

Task<int> constant(int value) { co_return value; }

Task<long> sum_of_children(int count) {
  long sum = 0;
  for (int i = 0; i < count; ++i) sum += co_await constant(i);
  co_return sum;
}

Task<int> deep(Loop& loop, Stop& stop, int levels) {
  if (levels == 0) {
    co_await sleep_for(loop, std::chrono::seconds(1), stop);
    co_return 0;
  }
  co_return 1 + co_await deep(loop, stop, levels - 1);
}

TEST(Task, AChainOfFinishedChildrenUsesNoStack) {
  TestLoop loop;
  EXPECT_EQ(loop.run(sum_of_children(200'000)), 199'999L * 200'000 / 2);
}

TEST(Task, ADeepStackOfParentsResumesInConstantStack) {
  TestLoop loop;
  Stop stop;
  EXPECT_EQ(loop.run(deep(loop, stop, 2'000)), 2'000);
}

Task<void> thrower() {
  co_await constant(1);
  throw Error(Code::kMismatch, "seven is not eight", 3);
}

TEST(Task, AnExceptionReachesTheAwaiter) {
  TestLoop loop;
  try {
    loop.run(thrower());
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kMismatch);
    EXPECT_EQ(error.peer(), 3);
    EXPECT_STREQ(error.what(), "seven is not eight");
  }
}

Task<void> sleeper(Loop& loop, Stop& stop, Duration span, std::vector<std::string>& log, std::string name) {
  try {
    co_await sleep_for(loop, span, stop);
    log.push_back(name + " woke");
  } catch (const Error& error) {
    log.push_back(name + " stopped: " + error.message());
    throw;
  }
}

Task<void> failing_child(Loop& loop, Stop& stop) {
  co_await sleep_for(loop, std::chrono::seconds(1), stop);
  throw Error(Code::kPeerFailed, "rank 2 died", 2);
}

Task<void> parent(Loop& loop, Stop& stop, std::vector<std::string>& log) {
  Scope scope(loop, stop);
  scope.spawn(sleeper(loop, scope.stop(), std::chrono::milliseconds(10), log, "early"));
  scope.spawn(sleeper(loop, scope.stop(), std::chrono::hours(1), log, "late"));
  scope.spawn(failing_child(loop, scope.stop()));
  co_await scope.join();
}

TEST(Scope, TheFirstFailureStopsTheSiblingsAndIsRethrown) {
  TestLoop loop;
  Stop stop;
  std::vector<std::string> log;
  EXPECT_THROW(loop.run(parent(loop, stop, log)), Error);
  EXPECT_EQ(log, (std::vector<std::string>{"early woke", "late stopped: rank 2 died"}));
  EXPECT_EQ(loop.now().time_since_epoch(), std::chrono::seconds(1));
}

Task<void> hurried(Loop& loop) {
  Stop stop;
  Deadline deadline(loop, after(loop.now(), std::chrono::seconds(2)), stop, "nothing came within 2 s");
  co_await sleep_for(loop, std::chrono::hours(1), stop);
}

TEST(Deadline, StopsTheWaitsWithItsSentence) {
  TestLoop loop;
  try {
    loop.run(hurried(loop));
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kTimeout);
    EXPECT_STREQ(error.what(), "nothing came within 2 s");
  }
  EXPECT_EQ(loop.now().time_since_epoch(), std::chrono::seconds(2));
}

// Lends a buffer; after a stop the borrower needs `returns_after` to release it.
class Lend final : public Leaf {
 public:
  Lend(Loop& loop, Stop& stop, Duration returns_after) : Leaf(loop, stop), returns_after_(returns_after) {}

 private:
  struct Return final : Timer {
    Lend* owner = nullptr;
    void expired() noexcept override { owner->fail(owner->reason_); }
  };
  void begin() noexcept override {}
  void cancel() noexcept override {}
  bool revoke(const std::exception_ptr& reason) noexcept override {
    reason_ = reason;
    return_.owner = this;
    loop().arm(return_, after(loop().now(), returns_after_));
    return false;
  }
  Duration returns_after_;
  std::exception_ptr reason_;
  Return return_;
};

Task<void> lender(Loop& loop) {
  Stop stop;
  Deadline deadline(loop, after(loop.now(), std::chrono::seconds(2)), stop, "nothing came within 2 s");
  Lend lend(loop, stop, std::chrono::seconds(3));
  co_await lend;
}

TEST(Leaf, AStoppedWaitThatLentMemoryEndsOnlyWhenItIsBack) {
  TestLoop loop;
  EXPECT_THROW(loop.run(lender(loop)), Error);
  EXPECT_EQ(loop.now().time_since_epoch(), std::chrono::seconds(5));
}

TEST(Stop, AChildStopsWithItsParentAndNotTheOtherWayRound) {
  Stop parent;
  Stop child(parent);
  Stop other(parent);
  child.request(std::make_exception_ptr(Error(Code::kAborted, "child")));
  EXPECT_FALSE(parent.requested());
  parent.request(std::make_exception_ptr(Error(Code::kAborted, "parent")));
  EXPECT_TRUE(other.requested());
  EXPECT_EQ(as_error(child.reason()).message(), "child");
  Stop born_late(parent);
  EXPECT_TRUE(born_late.requested());
}

}  // namespace
}  // namespace aiacc
