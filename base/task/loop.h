// Loop: where coroutines are resumed and time passes. One thread at a time drives a loop; everything here except wake()
// is for that thread. Real loops wait for descriptors and shared flags (base/io/real_loop.h); simulated ones take the
// next event in virtual time (base/sim). Code above base never asks which.
#pragma once

#include <coroutine>
#include <cstdint>
#include <string>

#include "base/intrusive_list.h"
#include "base/task/stop.h"
#include "base/task/task.h"
#include "base/time.h"

namespace aiacc {

// Something to run soon. Lives in its owner (usually an awaiter in a coroutine frame); unlinks itself when destroyed.
class Job : public ListNode<Job> {
 public:
  virtual void run() noexcept = 0;

 protected:
  ~Job() = default;
};

class Loop;

// Something to run at an instant, once. Re-arming while armed moves it. Disarms itself when destroyed.
class Timer {
 public:
  Timer() = default;
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  bool armed() const noexcept { return loop_ != nullptr; }
  void disarm() noexcept;
  virtual void expired() noexcept = 0;

 protected:
  ~Timer() { disarm(); }

 private:
  friend class Loop;
  friend class TimerQueue;
  Loop* loop_ = nullptr;
  std::uint64_t key_ = 0;  // its place in a TimerQueue
  Instant when_{};
};

class Loop {
 public:
  Loop() = default;
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;
  virtual ~Loop() = default;

  virtual Instant now() noexcept = 0;
  // Some milliseconds ago at most, and never later than now(), for a fifth of its cost. For records, not for decisions.
  virtual Instant about_now() noexcept { return now(); }

  // Runs `job` once, later in this turn or in the next, never from inside post(). Order of posts is kept by a real loop;
  // a simulated one may permute jobs that are due at the same instant, by its seed.
  virtual void post(Job& job) noexcept = 0;

  void arm(Timer& timer, Instant when) {
    timer.disarm();
    timer.when_ = when;
    timer.loop_ = this;
    do_arm(timer);
  }

  // Any thread: makes the driver look at its submissions even if it is blocked.
  virtual void wake() noexcept = 0;

 protected:
  friend class Timer;
  virtual void do_arm(Timer& timer) = 0;
  virtual void do_disarm(Timer& timer) noexcept = 0;
  static Instant when(const Timer& timer) noexcept { return timer.when_; }
};

inline void Timer::disarm() noexcept {
  if (loop_ == nullptr) return;
  loop_->do_disarm(*this);
  loop_ = nullptr;
}

// Base of the leaf awaiters: suspends a coroutine until complete() or fail() is called, or until `stop` is requested.
// Whoever completes it may be deep inside other code, so the coroutine is posted, not resumed in place.
//
//   struct ReadAwait : Leaf { ... void begin() override; };   // begin() starts the wait; end() undoes it on a stop
//
// A Leaf lives in the frame of the coroutine that awaits it, and is awaited at once, once; unless start() of its class has
// begun it before.
class Leaf : private Job, private Stop::Waiter {
 public:
  Leaf(Loop& loop, Stop& stop) noexcept : loop_(&loop), stop_(&stop) {}
  Leaf(const Leaf&) = delete;
  Leaf& operator=(const Leaf&) = delete;

  bool await_ready() {
    stop_->throw_if_requested();
    return try_now();
  }
  void await_suspend(std::coroutine_handle<> self) {
    self_ = self;
    stop_->add(*this);
    begin();
  }
  // A derived class with a result hides this, calls it first, and returns its result.
  void await_resume() const {
    if (error_) std::rethrow_exception(error_);
  }

  // Called by what the leaf waits for; once, on the loop's thread, from begin() at the earliest.
  void complete() noexcept { finish(nullptr); }
  void fail(std::exception_ptr error) noexcept { finish(std::move(error)); }

  Loop& loop() const noexcept { return *loop_; }

 protected:
  ~Leaf() = default;
  // Begins the wait before anybody awaits it; resume_at() names who does. False if there is nothing to wait for. Throws like
  // try_now().
  bool begin_unawaited() {
    if (await_ready()) return false;
    stop_->add(*this);
    begin();
    return true;
  }
  void resume_at(std::coroutine_handle<> self) noexcept { self_ = self; }
  // True if there is nothing to wait for; then begin() is not called. May throw.
  virtual bool try_now() { return false; }
  // Registers with what is waited for. May call complete() or fail(). Must not throw.
  virtual void begin() noexcept = 0;
  // A stop ended the wait: deregister. complete() and fail() must not be called any more.
  virtual void cancel() noexcept = 0;
  // For a wait that lends memory: somebody may still be reading or writing it when the stop comes. Such a leaf takes it
  // back, returns false, and calls fail(reason) when nobody touches it any more; until then the coroutine stays suspended.
  virtual bool let_go(const std::exception_ptr& /*reason*/) noexcept {
    cancel();
    return true;
  }

 private:
  void finish(std::exception_ptr error) noexcept {
    Stop::Waiter::unlink();
    error_ = std::move(error);
    if (self_) loop_->post(*this);
  }
  void on_stop(const std::exception_ptr& reason) noexcept final {
    if (let_go(reason)) finish(reason);
  }
  void run() noexcept final { resume(self_); }

  Loop* loop_;
  Stop* stop_;
  std::coroutine_handle<> self_;
  std::exception_ptr error_;
};

// co_await sleep_until(loop, when, stop): resumes at `when` or throws the stop's reason.
class SleepAwait final : public Leaf {
 public:
  SleepAwait(Loop& loop, Instant when, Stop& stop) noexcept : Leaf(loop, stop), when_(when) {}

 private:
  struct Alarm final : Timer {
    SleepAwait* owner = nullptr;
    void expired() noexcept override { owner->complete(); }
  };
  bool try_now() override { return loop().now() >= when_; }
  void begin() noexcept override {
    alarm_.owner = this;
    loop().arm(alarm_, when_);
  }
  void cancel() noexcept override { alarm_.disarm(); }

  Instant when_;
  Alarm alarm_;
};

inline SleepAwait sleep_until(Loop& loop, Instant when, Stop& stop) { return SleepAwait(loop, when, stop); }
inline SleepAwait sleep_for(Loop& loop, Duration span, Stop& stop) {
  return SleepAwait(loop, after(loop.now(), span), stop);
}

// Requests `stop` with kTimeout and `sentence` when `when` passes while the object lives.
class Deadline final : private Timer {
 public:
  Deadline(Loop& loop, Instant when, Stop& stop, std::string sentence) : stop_(stop), sentence_(std::move(sentence)) {
    if (when != kNever) loop.arm(*this, when);
  }

 private:
  void expired() noexcept override { stop_.request(std::make_exception_ptr(Error(Code::kTimeout, sentence_))); }
  Stop& stop_;
  std::string sentence_;
};

// A one-shot or repeating signal between coroutines of one loop. set() releases all present and later waiters until
// reset(). An Event outlives its waiters.
class Event {
 public:
  explicit Event(Loop& loop) noexcept : loop_(loop) {}

  class Await final : public Leaf, private ListNode<Await> {
   public:
    Await(Event& event, Stop& stop) noexcept : Leaf(event.loop_, stop), event_(event) {}

   private:
    friend class Event;
    friend class IntrusiveList<Await>;
    bool try_now() override { return event_.set_; }
    void begin() noexcept override { event_.waiters_.push_back(*this); }
    void cancel() noexcept override { ListNode<Await>::unlink(); }
    Event& event_;
  };

  bool is_set() const noexcept { return set_; }
  void set() noexcept {
    set_ = true;
    while (Await* waiter = waiters_.pop_front()) waiter->complete();
  }
  void reset() noexcept { set_ = false; }
  Await wait(Stop& stop) noexcept { return Await(*this, stop); }

 private:
  Loop& loop_;
  bool set_ = false;
  IntrusiveList<Await> waiters_;
};

}  // namespace aiacc
