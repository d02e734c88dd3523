// A lane with threads that block, and work for it. For tests only.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/task/lane.h"
#include "base/task/scope.h"
#include "base/task/timer_queue.h"

namespace aiacc::lane_test {

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

}  // namespace aiacc::lane_test
