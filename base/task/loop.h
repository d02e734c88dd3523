// Loop: resumes coroutines and provides time. One thread at a time drives a loop; everything here except wake() and
// post_from_any_thread() is for that thread. Real loops wait for descriptors and shared flags (base/io/real_loop.h);
// simulated ones take the next event in virtual time (base/sim). Code above base does not know which.
#pragma once

#include <atomic>
#include <coroutine>
#include <cstdint>
#include <string>

#include "base/intrusive_list.h"
#include "base/task/stop.h"
#include "base/task/task.h"
#include "base/time.h"

namespace aiacc {

// Something to run soon. It is a member of its owner (usually an awaiter in a coroutine frame); unlinks itself when
// destroyed.
class Job : public ListNode<Job> {
 public:
  virtual void run() noexcept = 0;

 protected:
  ~Job() = default;
};

// A completion that another thread posts and the driver of a loop runs. Its owner keeps it until it has run.
class RemoteJob {
 public:
  virtual void on_driver() noexcept = 0;

 protected:
  ~RemoteJob() = default;

 private:
  friend class Loop;
  RemoteJob* next_ = nullptr;
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
  std::uint64_t key_ = 0;  // its key in a TimerQueue
  Instant when_{};
};

class Loop {
 public:
  Loop() = default;
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;
  virtual ~Loop() = default;

  virtual Instant now() noexcept = 0;
  // A time at most some milliseconds before now() and never after it, for a fifth of its cost. For records, not for
  // decisions.
  virtual Instant about_now() noexcept { return now(); }

  // Runs `job` once, later in this turn or in the next, never from inside post(). A real loop keeps the order of posts;
  // in a simulated one, the seed may permute jobs that are due at the same instant.
  virtual void post(Job& job) noexcept = 0;

  void arm(Timer& timer, Instant when) {
    timer.disarm();
    timer.when_ = when;
    timer.loop_ = this;
    do_arm(timer);
  }

  // Any thread: makes the driver check its submissions even if it is blocked.
  virtual void wake() noexcept = 0;

  // Any thread: the driver runs `job` soon, in the order of the posts of one thread, and is woken if it is blocked. The
  // loop must outlive the call. Not for simulated loops, where one thread does everything.
  void post_from_any_thread(RemoteJob& job) noexcept {
    RemoteJob* newest = remote_.load(std::memory_order_relaxed);
    do {
      job.next_ = newest;
      // Release: pairs with the acquire in run_remote_jobs().
    } while (!remote_.compare_exchange_weak(newest, &job, std::memory_order_release, std::memory_order_relaxed));
    wake();
  }

 protected:
  // The driver calls it after each wake-up. Returns whether there was any.
  bool run_remote_jobs() noexcept {
    RemoteJob* newest = remote_.exchange(nullptr, std::memory_order_acquire);
    RemoteJob* oldest = nullptr;
    while (newest != nullptr) {
      RemoteJob* const next = newest->next_;
      newest->next_ = oldest;
      oldest = newest;
      newest = next;
    }
    const bool any = oldest != nullptr;
    while (oldest != nullptr) {
      RemoteJob* const next = oldest->next_;  // read first: the owner may destroy the job once it has run
      oldest->on_driver();
      oldest = next;
    }
    return any;
  }

  friend class Timer;
  virtual void do_arm(Timer& timer) = 0;
  virtual void do_disarm(Timer& timer) noexcept = 0;
  static Instant when(const Timer& timer) noexcept { return timer.when_; }

 private:
  std::atomic<RemoteJob*> remote_{nullptr};  // newest first
};

inline void Timer::disarm() noexcept {
  if (loop_ == nullptr) return;
  loop_->do_disarm(*this);
  loop_ = nullptr;
}

// Base of the leaf awaiters: suspends a coroutine until complete() or fail() is called, or until `stop` is requested.
// The completing code may be deep inside another call, so the coroutine is posted, not resumed in place.
//
//   struct ReadAwait : Leaf { ... void begin() override; };   // begin() starts the wait; end() undoes it on a stop
//
// A Leaf is in the frame of the coroutine that awaits it. It is awaited once, immediately after its creation unless
// start() of its class began it earlier.
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
  // A derived class with a result hides this function: it calls this one first, then returns its result.
  void await_resume() const {
    if (error_) std::rethrow_exception(error_);
  }

  // Called once by the awaited object, on the loop's thread, from begin() at the earliest.
  void complete() noexcept { finish(nullptr); }
  void fail(std::exception_ptr error) noexcept { finish(std::move(error)); }

  Loop& loop() const noexcept { return *loop_; }

 protected:
  ~Leaf() = default;
  // Begins the wait before a coroutine awaits it; resume_at() names that coroutine. False if there is nothing to wait
  // for. Throws like try_now().
  bool begin_unawaited() {
    if (await_ready()) return false;
    stop_->add(*this);
    begin();
    return true;
  }
  void resume_at(std::coroutine_handle<> self) noexcept { self_ = self; }
  // True if there is nothing to wait for; then begin() is not called. May throw.
  virtual bool try_now() { return false; }
  // Registers with the awaited object. May call complete() or fail(). Must not throw.
  virtual void begin() noexcept = 0;
  // A stop ended the wait: deregister. complete() and fail() must not be called any more.
  virtual void cancel() noexcept = 0;
  // For a wait that lends memory, which may still be read or written when the stop is requested. Such a leaf revokes
  // the memory, returns false, and calls fail(reason) when nothing accesses it any more; until then the coroutine stays
  // suspended.
  virtual bool revoke(const std::exception_ptr& /*reason*/) noexcept {
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
    if (revoke(reason)) finish(reason);
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

// co_await yield_turn(loop, stop): resumes in a later turn, after the timers that are due. For a coroutine whose awaits
// may all complete without suspending, such as accepting from a full queue; sleep_for() with zero does not suspend.
class YieldAwait final : public Leaf {
 public:
  YieldAwait(Loop& loop, Stop& stop) noexcept : Leaf(loop, stop) {}

 private:
  struct Alarm final : Timer {
    YieldAwait* owner = nullptr;
    void expired() noexcept override { owner->complete(); }
  };
  void begin() noexcept override {
    alarm_.owner = this;
    loop().arm(alarm_, loop().now());
  }
  void cancel() noexcept override { alarm_.disarm(); }

  Alarm alarm_;
};

inline YieldAwait yield_turn(Loop& loop, Stop& stop) { return YieldAwait(loop, stop); }

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
// reset(). An Event must outlive its waiters.
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
