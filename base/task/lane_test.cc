// Which thread drives a lane, and that no wake-up is lost. Also run with the thread sanitizer.
#include "base/task/lane.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/task/scope.h"
#include "base/task/test_loop.h"
#include "base/task/timer_queue.h"

namespace aiacc {
namespace {

using namespace std::chrono_literals;

// A loop that blocks on a condition variable in place of a descriptor.
class BlockingLoop final : public Loop, public Drive {
 public:
  Instant now() noexcept override {
    return Instant(std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch()));
  }
  void post(Job& job) noexcept override { jobs_.push_back(job); }
  // All: a thread in turn() and the helper in await_event() may wait at the same time.
  void wake() noexcept override {
    std::lock_guard lock(mutex_);
    woken_ = true;
    wake_.notify_all();
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
  bool look() override {
    driver_ = std::this_thread::get_id();
    ++looks_;
    Timer* timer = timers_.pop_due(now());
    if (timer != nullptr) timer->expired();
    Job* job = jobs_.pop_front();
    if (job != nullptr) job->run();
    std::lock_guard lock(mutex_);
    return std::exchange(woken_, false) || timer != nullptr || job != nullptr;
  }
  bool listen(Instant* due) override {
    *due = timers_.next();
    ++listens_;
    return jobs_.empty();
  }
  void listened() noexcept override { --listens_; }
  void await_event(Instant due) noexcept override {
    std::unique_lock lock(mutex_);
    const auto over = [&] { return woken_ || interrupted_; };
    if (due == kNever) {
      wake_.wait(lock, over);
    } else {
      wake_.wait_for(lock, due - now(), over);
    }
    interrupted_ = false;
  }
  void interrupt() noexcept override {
    std::lock_guard lock(mutex_);
    interrupted_ = true;
    wake_.notify_all();
  }
  std::thread::id driver() const { return driver_; }
  int looks() const { return looks_; }
  int turns() const { return turns_; }

 private:
  void do_arm(Timer& timer) override { timers_.add(timer, when(timer)); }
  void do_disarm(Timer& timer) noexcept override { timers_.remove(timer); }

  IntrusiveList<Job> jobs_;
  TimerQueue timers_;
  std::thread::id driver_;
  int turns_ = 0;
  int looks_ = 0;
  int listens_ = 0;
  bool interrupted_ = false;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool woken_ = false;
};

// Sleeps on the loop for `nap` or until it is roused, then increments a counter (not atomic: only one thread drives at a time).
// It never ends in begin() unless `nap` is zero, however late that is.
class Nap final : public Work, private Root::Owner {
 public:
  Nap(Lane& lane, Duration nap, long& count) : lane_(lane), nap_(nap), count_(count) {}
  std::thread::id begun_by;
  void rouse() { stop_.request(std::make_exception_ptr(Error(Code::kAborted, "roused"))); }  // on the lane

 private:
  static Task<void> body(Nap* self) {
    try {
      if (self->nap_ > Duration::zero()) {
        co_await yield_turn(self->lane_.loop(), self->stop_);
        co_await sleep_for(self->lane_.loop(), self->nap_, self->stop_);
      }
    } catch (const Error&) {
    }
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

// Rouses a nap from a thread of its own, so that it ends not before it is told to, however slow this machine is.
class Rouser final : private Work {
 public:
  Rouser(Lane& lane, Nap& nap) : nap_(nap), thread_([this, &lane] { lane.run(*this); }) {}
  ~Rouser() { thread_.join(); }

 private:
  void begin() noexcept override {
    nap_.rouse();
    finish();
  }
  Nap& nap_;
  std::thread thread_;
};

// The helper takes over from a thread that is not let run, so a test of what it leaves alone needs one attempt without that.
constexpr int kAttempts = 50;

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
  EXPECT_EQ(nap.begun_by, std::this_thread::get_id()) << "it begins where it is started";
  EXPECT_NE(loop.driver(), std::this_thread::get_id());
  EXPECT_EQ(count, 1);
  EXPECT_GE(lane.helped(), 1u);
}

class AtOnce final : public Work {
  void begin() noexcept override { finish(); }
};

// Calls that end as they begin take the lane and never run the loop: what was started before is the helper's all the same.
TEST(Lane, CallsThatEndAtOnceDoNotKeepTheHelperAway) {
  BlockingLoop loop;
  Lane lane(loop, &loop, "t");
  long count = 0;
  Nap nap(lane, 2ms, count);
  lane.start(nap);
  const auto limit = std::chrono::steady_clock::now() + 60s;
  while (!nap.done()) {
    AtOnce work;
    lane.run(work);
    ASSERT_LT(std::chrono::steady_clock::now(), limit);
  }
  EXPECT_GE(lane.helped(), 1u);
}

// A caller that waits for what it starts needs no helper: the helper looks on from time to time, and nobody wakes it.
TEST(Lane, NoStartWakesTheHelperForWhatTheCallerFinishes) {
  std::uint64_t calls = 0;
  std::uint64_t helped = 0;
  constexpr std::uint64_t kRounds = 2000;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    BlockingLoop loop;
    Lane lane(loop, &loop, "t");
    long count = 0;
    for (std::uint64_t i = 0; i < kRounds; ++i) {
      Nap nap(lane, 1us, count);
      lane.start(nap);
      lane.wait(nap);
    }
    EXPECT_EQ(count, long{kRounds});
    calls = lane.helper_calls();
    helped = lane.helped();
    if (calls <= kRounds / 100 && helped <= kRounds / 10) break;
  }
  EXPECT_LE(calls, kRounds / 100) << "it sleeps only after some 60 ms without work";
  EXPECT_LE(helped, kRounds / 10) << "it takes the lane only after nobody has driven for 500 us";
}

TEST(Lane, ATestDrivesWhatItAsksFor) {
  std::uint64_t calls = 0;
  int looks = 0;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    BlockingLoop loop;
    Lane lane(loop, &loop, "t");
    long count = 0;
    for (int i = 0; i < 200; ++i) {
      Nap nap(lane, 10us, count);
      lane.start(nap);
      while (!lane.test(nap)) {
      }
    }
    EXPECT_EQ(count, 200);
    calls = lane.helper_calls();
    looks = loop.looks();
    if (calls <= 2 && looks >= 200) break;
  }
  EXPECT_LE(calls, 2u);
  EXPECT_GE(looks, 200);
}

// The helper listens without the token: a caller takes the lane at once, and what it leaves behind is the helper's again.
TEST(Lane, TheHelperGoesOnWithWhatACallerLeavesBehind) {
  std::thread::id begun_by;
  for (int attempt = 0; attempt < kAttempts && begun_by != std::this_thread::get_id(); ++attempt) {
    BlockingLoop loop;
    Lane lane(loop, &loop, "t");
    long count = 0;
    Nap background(lane, 60ms, count);
    lane.start(background);
    const auto limit = std::chrono::steady_clock::now() + 60s;
    const auto before = [&] { return std::chrono::steady_clock::now() < limit; };
    while (lane.helped() == 0 && before()) std::this_thread::sleep_for(1ms);
    Nap call(lane, 0us, count);
    lane.run(call);
    begun_by = call.begun_by;
    while (!background.done() && before()) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(count, 2);
  }
  EXPECT_EQ(begun_by, std::this_thread::get_id());
}

// A thread that sleeps in a wait for many is woken by the end of one of them without a search.
TEST(Lane, TheEndOfOneOfManyThatAThreadSleepsOnIsNotSearchedFor) {
  BlockingLoop loop;
  Lane lane(loop, &loop, "t");
  long count = 0;
  std::atomic<bool> driving{false};
  std::thread driver([&] {
    Nap nap(lane, 300ms, count);
    Lane::Hold hold(lane);
    driving = true;
    hold.run(nap);
  });
  while (!driving) std::this_thread::yield();
  std::deque<Nap> naps;
  std::vector<Work*> works;
  for (int i = 0; i < 1000; ++i) {
    naps.emplace_back(lane, i == 777 ? Duration(20ms) : Duration(200ms), count);
    works.push_back(&naps.back());
    lane.start(naps.back());
  }
  EXPECT_TRUE(lane.wait_any(works));
  EXPECT_TRUE(lane.wait_all(works));
  driver.join();
  EXPECT_EQ(count, 1001);
  EXPECT_LE(lane.searched(), 1000u) << "once at most, where the thread was only just going to sleep";
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

// Work that is started while the helper waits for the lane begins when the helper has it back.
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

// Whatever unfinished() would say later.
TEST(Lane, AWaitForWorksInTurnEndsWhenNoneIsNext) {
  BlockingLoop loop;
  Lane lane(loop, &loop, "test");
  long count = 0;
  Nap first(lane, 2ms, count);
  struct Turns final : Lane::InTurn {
    explicit Turns(Work& what) : work(what) {}
    Work* unfinished() noexcept override { return ++asked == 2 ? nullptr : &work; }
    Work& work;
    int asked = 0;
  } turns(first);
  lane.start(first);
  EXPECT_TRUE(lane.wait_all(turns, 10s));
  EXPECT_TRUE(first.done());
  EXPECT_EQ(turns.asked, 2);
}

// Works that end with others say so without an atomic operation each; whoever sleeps on one of them is woken all the same.
TEST(Lane, WhatEndsTogetherWakesItsSleepers) {
  BlockingLoop loop;
  Lane lane(loop, &loop, "test");
  struct Part final : Work {
    void begin() noexcept override {}
    void end() noexcept { finish_with_others(); }
  };
  struct End final : Work {
    End(Lane& on, std::span<Part> what) : lane(on), parts(what) {}
    void begin() noexcept override {
      for (Part& part : parts) part.end();
      lane.finished_together();
      finish();
    }
    Lane& lane;
    std::span<Part> parts;
  };
  for (int round = 0; round < 200; ++round) {
    std::array<Part, 5> parts;
    for (Part& part : parts) lane.start(part);
    std::atomic<int> waiting{0};
    std::vector<std::thread> threads;
    for (Part& part : parts) {
      threads.emplace_back([&] {
        ++waiting;
        if (&part != &parts[0]) return void(lane.wait(part));
        std::vector<Work*> all;
        for (Part& each : parts) all.push_back(&each);
        lane.wait_any(all);
      });
    }
    while (waiting < 5) std::this_thread::yield();
    if (round % 3 == 0) std::this_thread::sleep_for(200us);
    End end(lane, parts);
    lane.run(end);
    for (std::thread& thread : threads) thread.join();
    for (const Part& part : parts) ASSERT_TRUE(part.done());
  }
}

TEST(Lane, WaitsForWorksInTheirTurn) {
  BlockingLoop loop;
  Lane lane(loop, &loop, "test");
  long count = 0;
  std::deque<Nap> naps;
  for (int i = 0; i < 20; ++i) {
    naps.emplace_back(lane, i % 3 == 0 ? Duration(2ms) : Duration::zero(), count);
    lane.start(naps.back());
  }
  struct Turns final : Lane::InTurn {
    explicit Turns(std::deque<Nap>& all) : naps(all) {}
    Work* unfinished() noexcept override {
      while (next < naps.size() && naps[next].done()) ++next;
      return next < naps.size() ? &naps[next] : nullptr;
    }
    std::deque<Nap>& naps;
    std::size_t next = 0;
  } turns(naps);
  EXPECT_TRUE(lane.wait_all(turns));
  EXPECT_EQ(count, 20);
  naps.emplace_back(lane, 1h, count);
  lane.start(naps.back());
  EXPECT_FALSE(lane.wait_all(turns, 1ms));
  EXPECT_EQ(turns.next, 20u);
  const Rouser rouser(lane, naps.back());
  EXPECT_TRUE(lane.wait_all(turns, 60s));
}

TEST(Lane, WaitsForAnyOfSeveral) {
  BlockingLoop loop;
  Lane lane(loop, &loop, "test");
  long count = 0;
  Nap slow(lane, 1h, count);
  Nap quick(lane, 1h, count);
  lane.start(slow);
  lane.start(quick);
  Work* const works[] = {&slow, &quick};
  EXPECT_FALSE(lane.wait_any(works, 0ms));
  {
    const Rouser rouser(lane, quick);
    EXPECT_TRUE(lane.wait_any(works));
  }
  EXPECT_TRUE(quick.done());
  Work* const rest[] = {&slow};
  EXPECT_FALSE(lane.wait_any(rest, 1ms));
  const Rouser rouser(lane, slow);
  EXPECT_TRUE(lane.wait_any(rest));
  EXPECT_EQ(count, 2);
}

TEST(Lane, WaitGivesUpAfterItsTimeoutDrivingOrAsleep) {
  BlockingLoop loop;
  Lane lane(loop, &loop, "t");
  long count = 0;
  Nap slow(lane, 1h, count);
  lane.start(slow);
  EXPECT_FALSE(lane.wait(slow, 0ns));
  EXPECT_FALSE(lane.wait(slow, 1ms));
  const Rouser rouser(lane, slow);
  EXPECT_TRUE(lane.wait(slow, 60s));
  EXPECT_TRUE(lane.wait(slow));
  EXPECT_EQ(count, 1);
}

// A first thread that is not let run for long drives both naps.
TEST(Lane, SleeperTakesOverWhenTheDriverLeaves) {
  std::thread::id driver;
  for (int attempt = 0; attempt < kAttempts && driver != std::this_thread::get_id(); ++attempt) {
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
    driver = loop.driver();
    first.join();
    EXPECT_EQ(count, 2);
    EXPECT_FALSE(lane.helper_started());
  }
  EXPECT_EQ(driver, std::this_thread::get_id());
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
