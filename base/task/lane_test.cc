// Lane: who drives, and that no wake-up is lost. Run with the thread sanitizer too.
#include "base/task/lane.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "base/task/scope.h"
#include "base/task/test_loop.h"
#include "base/task/timer_queue.h"

namespace aiacc {
namespace {

using namespace std::chrono_literals;

// A loop that really blocks and is really woken, without a descriptor.
class BlockingLoop final : public Loop, public Drive {
 public:
  Instant now() noexcept override {
    return Instant(std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch()));
  }
  void post(Job& job) noexcept override { jobs_.push_back(job); }
  void wake() noexcept override {
    std::lock_guard lock(mutex_);
    woken_ = true;
    wake_.notify_one();
  }
  void turn(Instant until) override {
    driver_ = std::this_thread::get_id();
    ++turns_;
    if (Timer* timer = timers_.pop_due(now())) timer->expired();
    if (Job* job = jobs_.pop_front()) {
      job->run();
      return;
    }
    std::unique_lock lock(mutex_);
    const Instant when = std::min(until, timers_.next());
    if (when == kNever) {
      wake_.wait(lock, [&] { return woken_; });
    } else {
      wake_.wait_for(lock, when - now(), [&] { return woken_; });
    }
    woken_ = false;
  }
  std::thread::id driver() const { return driver_; }
  int turns() const { return turns_; }

 private:
  void do_arm(Timer& timer) override { timers_.add(timer, when(timer)); }
  void do_disarm(Timer& timer) noexcept override { timers_.remove(timer); }

  IntrusiveList<Job> jobs_;
  TimerQueue timers_;
  std::thread::id driver_;
  int turns_ = 0;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool woken_ = false;
};

// Sleeps on the loop for `nap`, then counts (not atomically: only one thread drives at a time).
class Nap final : public Work, private Root::Owner {
 public:
  Nap(Lane& lane, Duration nap, long& count) : lane_(lane), nap_(nap), count_(count) {}
  std::thread::id begun_by;

 private:
  static Task<void> body(Nap* self) {
    if (self->nap_ > Duration::zero()) co_await sleep_for(self->lane_.loop(), self->nap_, self->stop_);
    ++self->count_;
  }
  void begin() noexcept override {
    begun_by = std::this_thread::get_id();
    root_.emplace(lane_.loop(), body(this), static_cast<Root::Owner&>(*this));
    root_->start();
  }
  void root_ended(Root&, std::exception_ptr) noexcept override {
    root_.reset();
    finish();
  }
  Lane& lane_;
  Duration nap_;
  long& count_;
  Stop stop_;
  std::optional<Root> root_;
};

TEST(Lane, BlockingCallDrivesInlineWithoutHelper) {
  BlockingLoop loop;
  Lane lane(loop, &loop, "t");
  long count = 0;
  Nap immediate(lane, Duration::zero(), count);
  lane.run(immediate);
  EXPECT_EQ(loop.turns(), 0) << "work that ends in begin() needs no turn";
  Nap nap(lane, 2ms, count);
  lane.run(nap);
  EXPECT_EQ(count, 2);
  EXPECT_EQ(nap.begun_by, std::this_thread::get_id());
  EXPECT_FALSE(lane.helper_started());
}

TEST(Lane, AsynchronousWorkEndsThoughNobodyCalls) {
  BlockingLoop loop;
  Lane lane(loop, &loop, "t");
  long count = 0;
  Nap nap(lane, 2ms, count);
  lane.start(nap);
  EXPECT_TRUE(lane.helper_started());
  const auto limit = std::chrono::steady_clock::now() + 60s;
  while (!nap.done()) {
    ASSERT_LT(std::chrono::steady_clock::now(), limit);
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_NE(nap.begun_by, std::this_thread::get_id());
  EXPECT_EQ(count, 1);
}

TEST(Lane, TheHelperHandsTheLaneToCallersAndTakesItBack) {
  BlockingLoop loop;
  Lane lane(loop, &loop, "test");
  long count = 0;
  Nap background(lane, 300ms, count);
  lane.start(background);
  int driven_here = 0;
  for (int i = 0; i < 200; ++i) {
    Nap call(lane, i % 10 == 0 ? 100us : 0us, count);
    lane.run(call);
    driven_here += call.begun_by == std::this_thread::get_id() ? 1 : 0;
  }
  EXPECT_GT(driven_here, 0) << "some wait asleep where the helper gets no core";
  EXPECT_TRUE(lane.wait(background)) << "the helper, or this thread, goes on with it";
  EXPECT_EQ(count, 201);
}

// What is started while the helper waits to get the lane back is begun when it has it.
TEST(Lane, TheHelperBeginsWhatCameWhileACallerHadTheLane) {
  BlockingLoop loop;
  Lane lane(loop, &loop, "test");
  struct Outstanding final : Work {
    void begin() noexcept override {}
    void end() noexcept { finish(); }
  } background;
  struct End final : Work {
    explicit End(Outstanding& what) : outstanding(what) {}
    void begin() noexcept override {
      outstanding.end();
      finish();
    }
    Outstanding& outstanding;
  } end(background);
  lane.start(background);
  long count = 0;
  for (int i = 0; i < 300; ++i) {
    Nap call(lane, 0us, count);
    Nap started(lane, 0us, count);
    lane.run(call);
    lane.start(started);
    const auto limit = std::chrono::steady_clock::now() + 10s;
    while (!started.done() && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
    ASSERT_TRUE(started.done()) << "call " << i;
  }
  lane.run(end);
  EXPECT_TRUE(background.done());
}

TEST(Lane, WaitsForAnyOfSeveral) {
  BlockingLoop loop;
  Lane lane(loop, &loop, "test");
  long count = 0;
  Nap slow(lane, 200ms, count);
  Nap quick(lane, 5ms, count);
  lane.start(slow);
  lane.start(quick);
  Work* const works[] = {&slow, &quick};
  EXPECT_FALSE(lane.wait_any(works, 0ms));
  EXPECT_TRUE(lane.wait_any(works));
  EXPECT_TRUE(quick.done());
  Work* const rest[] = {&slow};
  EXPECT_FALSE(lane.wait_any(rest, 1ms));
  EXPECT_TRUE(lane.wait_any(rest));
  EXPECT_EQ(count, 2);
}

TEST(Lane, WaitGivesUpAfterItsTimeoutDrivingOrAsleep) {
  BlockingLoop loop;
  Lane lane(loop, &loop, "t");
  long count = 0;
  Nap slow(lane, 200ms, count);
  lane.start(slow);
  EXPECT_FALSE(lane.wait(slow, 0ns));
  EXPECT_FALSE(lane.wait(slow, 1ms));
  EXPECT_TRUE(lane.wait(slow, 60s));
  EXPECT_TRUE(lane.wait(slow));
  EXPECT_EQ(count, 1);
}

TEST(Lane, SleeperTakesOverWhenTheDriverLeaves) {
  BlockingLoop loop;
  Lane lane(loop, &loop, "t");
  long count = 0;
  std::atomic<bool> driving{false};
  std::thread first([&] {
    Nap nap(lane, 20ms, count);
    Lane::Hold hold(lane);
    driving = true;
    ASSERT_TRUE(hold.owns());
    hold.run(nap);
  });
  while (!driving) std::this_thread::yield();
  Nap longer(lane, 60ms, count);
  lane.run(longer);
  EXPECT_EQ(loop.driver(), std::this_thread::get_id());
  first.join();
  EXPECT_EQ(count, 2);
  EXPECT_FALSE(lane.helper_started());
}

TEST(Lane, OrderOfSubmissionIsOrderOfBeginning) {
  TestLoop loop;
  Lane lane(loop, nullptr, "t");
  struct Note final : Work {
    std::vector<int>* order = nullptr;
    int number = 0;
    void begin() noexcept override {
      order->push_back(number);
      finish();
    }
  };
  std::vector<int> order;
  Note notes[5];
  for (int i = 0; i < 5; ++i) {
    notes[i].order = &order;
    notes[i].number = i;
    lane.start(notes[i]);
  }
  EXPECT_TRUE(order.empty()) << "a lane driven from outside begins work when its loop runs";
  while (loop.turn()) {
  }
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_THROW(lane.run(notes[0]), Error);
}

TEST(Lane, ManyThreadsSubmittingLoseNoWakeUp) {
  BlockingLoop loop;
  Lane lane(loop, &loop, "t");
  long count = 0;
  constexpr int kThreads = 8;
  constexpr int kRounds = 400;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRounds; ++i) {
        const Duration nap = (i + t) % 7 == 0 ? Duration(20us) : Duration::zero();
        Nap work(lane, nap, count);
        switch ((i + t) % 3) {
          case 0: lane.run(work); break;
          case 1:
            lane.start(work);
            lane.wait(work);
            break;
          default:
            lane.start(work);
            while (!lane.wait(work, 10us)) {
            }
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, long{kThreads} * kRounds);
}

TEST(Lane, ManyLanesComeAndGo) {
  for (int i = 0; i < 50; ++i) {
    BlockingLoop loop;
    Lane lane(loop, &loop, "t");
    long count = 0;
    Nap a(lane, 0ns, count);
    Nap b(lane, 10us, count);
    lane.start(a);
    lane.start(b);
    lane.wait(b);
    lane.wait(a);
    ASSERT_EQ(count, 2);
  }
}

}  // namespace
}  // namespace aiacc
