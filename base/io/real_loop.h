// RealLoop: the Loop of a living process. It waits for descriptors (epoll), timers, flags that other processes store into
// shared memory (Poller, BlockGuard), and wake() from other threads.
//
// One thread at a time drives it (turn, run_until, run); which one is the caller's matter (a lane's token: a RealLoop is
// its lane's Drive). Everything but
// wake() belongs to the driving thread.
//
// How it waits while a Poller is registered: it polls in a short spin, then yields its core between polls (several ranks
// on one core hand it round in microseconds), then asks every BlockGuard and blocks in the kernel until a descriptor, a
// timer or a wake. While it awaits answers it looks for them before it yields and between yields, as long as that pays. Without
// either it blocks at once. There is no periodic timer: a blocked loop costs nothing.
#pragma once

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <concepts>
#include <cstdint>

#include "base/fd.h"
#include "base/task/lane.h"
#include "base/task/loop.h"
#include "base/task/timer_queue.h"

namespace aiacc::io {

class RealLoop;

// Told when a descriptor is ready. Lives in its owner, beside the descriptor, and is destroyed before that is closed.
class Watch {
 public:
  struct Ready {
    bool readable = false;
    bool writable = false;  // an error or a hang-up sets both: the next read or write finds out which it is
    bool ended = false;     // the other side has shut down, or the descriptor is broken
  };
  Watch() = default;
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  bool watching() const noexcept { return loop_ != nullptr; }
  void unwatch() noexcept;
  virtual void ready(Ready what) noexcept = 0;

 protected:
  ~Watch() { unwatch(); }

 private:
  friend class RealLoop;
  RealLoop* loop_ = nullptr;
  int descriptor_ = -1;
  std::uint32_t events_ = 0;
};

// Looks at shared flags on behalf of waits. While one is registered the loop spins before it blocks.
class Poller : public ListNode<Poller> {
 public:
  // Completes what can be completed (which posts, never resumes) and says whether there was anything. A load or two when
  // nothing changed: it is called millions of times a second. May unlink itself, and no other poller.
  virtual bool look_at_flags() noexcept = 0;

 protected:
  ~Poller() = default;
};

// A stream on which an answer is awaited: worth staying awake for, and asking the kernel about it alone.
class Answerer : public ListNode<Answerer> {
 public:
  // Takes what has come, and says whether anything had.
  virtual bool look_for_answer() noexcept = 0;

 protected:
  ~Answerer() = default;
};

// Asked before the loop blocks, so that a store by another process is never slept through:
// about_to_block() arms the doorbell (a descriptor that is watched), then looks once more, and returns false if there is
// something to do. woke() follows each call of about_to_block(), whatever it returned.
class BlockGuard : public ListNode<BlockGuard> {
 public:
  virtual bool about_to_block() noexcept = 0;
  virtual void woke() noexcept = 0;

 protected:
  ~BlockGuard() = default;
};

// Run by the driver once after any number of wake() calls: where submissions of other threads are taken over.
class WakeHook : public ListNode<WakeHook> {
 public:
  virtual void woken() noexcept = 0;

 protected:
  ~WakeHook() = default;
};

// Whether something is worth trying that may be in vain: always while it succeeds, and once in a while otherwise.
class Experience {
 public:
  bool pays() noexcept { return credit_ > 0 || ++refused_ % kPerProbe == 0; }
  void note(bool succeeded) noexcept { credit_ = std::clamp(credit_ + (succeeded ? 1 : -2), 0, kMostCredit); }

 private:
  static constexpr unsigned kPerProbe = 32;
  static constexpr int kMostCredit = 8;
  unsigned refused_ = 0;
  int credit_ = kMostCredit;
};

class RealLoop final : public Loop, public Drive {
 public:
  // How long an idle loop that has pollers stays awake. Spinning pays while the peer
  // runs on another core, where an exchange of a cache line takes well under a microsecond; see also spin().
  struct Patience {
    Duration spin = std::chrono::microseconds(2);
    Duration yield = std::chrono::microseconds(300);  // 0: not at all
    int min_yields = 8;  // a yield may last a busy neighbour's whole time slice; one look after it is not enough
  };

  RealLoop();  // throws kSystem if there are no descriptors left, naming the limit
  ~RealLoop() override;

  Instant now() noexcept override;
  Instant about_now() noexcept override;
  void post(Job& job) noexcept override { jobs_.push_back(job); }
  void wake() noexcept override;

  void set_patience(Patience patience) noexcept { patience_ = patience; }
  const Patience& patience() const noexcept { return patience_; }

  // One look at everything; if there was nothing to do, waits until something happens or until `until`.
  void turn(Instant until) override { look_and_wait(until); }
  bool stay_awake() noexcept override;
  // One look at everything, without waiting. Whether there was anything to do.
  bool look() { return look_and_wait(Instant{}); }

  template <std::predicate Done>
  void run_until(Done&& done) {
    while (!done()) turn(kNever);
  }

  // Drives until `task` ends; its result, or its error.
  template <class T>
  T run(Task<T> task) {
    task.start();
    while (!task.done()) turn(kNever);
    return task.take();
  }

  // Edge-triggered: told at once if ready now, then at each change. The owner reads or writes until EAGAIN.
  // Returns false for descriptors that never wait (regular files). Throws kSystem when the kernel refuses.
  bool watch_edges(Watch& watch, int descriptor, bool read, bool write);
  // Told once; rearm() asks again.
  bool watch_once(Watch& watch, int descriptor, bool read, bool write);
  void rearm(Watch& watch);

  void add(Poller& poller) noexcept { pollers_.push_back(poller); }
  void add(BlockGuard& guard) noexcept { guards_.push_back(guard); }
  void add(WakeHook& hook) noexcept { hooks_.push_back(hook); }

  // A coroutine whose reads and writes never have to wait would keep the loop from everything else. True while the
  // present turn may complete one more of them in place; after that they wait for their turn (base/io/real_net.cc).
  bool may_complete_in_place() noexcept {
    if (in_place_left_ == 0) return false;
    --in_place_left_;
    return true;
  }

  // From now on until await_no_answer().
  void await_answer(Answerer& stream) noexcept {
    answerers_.push_back(stream);
    ++answering_;
  }
  void await_no_answer(Answerer& stream) noexcept {
    stream.unlink();
    --answering_;
  }

  // How often the loop blocked in the kernel: what tests and aiacc-info look at.
  std::uint64_t blocked_count() const noexcept { return blocked_count_; }

 private:
  friend class Watch;
  static constexpr int kBatch = 64;  // events taken from the kernel at once
  static constexpr int kJobsPerTurn = 256;
  static constexpr int kInPlacePerTurn = 64;
  static constexpr unsigned kTurnsPerClockRead = 8;    // while there is other work
  static constexpr unsigned kTurnsPerKernelLook = 32;  // likewise

  void do_arm(Timer& timer) override { timers_.add(timer, when(timer)); }
  void do_disarm(Timer& timer) noexcept override { timers_.remove(timer); }

  bool watch(Watch& watch, int descriptor, std::uint32_t events);
  void unwatch(Watch& watch) noexcept;

  bool take_wake() noexcept;
  bool run_jobs() noexcept;
  bool run_timers() noexcept;
  bool poll_flags() noexcept;
  bool look_and_wait(Instant until);
  bool wait_awake(Instant due) noexcept;
  bool spin(Instant began, Instant due) noexcept;
  bool look_for_answers() noexcept;
  bool look_keenly() noexcept;
  void block(Instant due) noexcept;
  bool arm_guards() noexcept;
  bool look_at_kernel() noexcept;
  int collect(Instant until) noexcept;
  bool dispatch(int events) noexcept;

  Fd epoll_;
  Fd bell_;  // an eventfd that is only ever written: edge-triggered, so that nobody has to drain it
  bool has_pwait2_ = true;
  Patience patience_;
  IntrusiveList<Job> jobs_;
  TimerQueue timers_;
  IntrusiveList<Poller> pollers_;
  IntrusiveList<Answerer> answerers_;
  IntrusiveList<BlockGuard> guards_;
  IntrusiveList<WakeHook> hooks_;

  std::array<epoll_event, kBatch> batch_{};
  int batch_next_ = 0;  // of the batch being dispatched: what unwatch() must look through
  int batch_size_ = 0;
  int in_place_left_ = kInPlacePerTurn;
  unsigned turns_ = 0;
  int answering_ = 0;      // in answerers_
  Experience spins_;       // on flags
  Experience looks_;       // at the kernel, between yields
  Experience keen_looks_;  // without yields
  std::uint64_t blocked_count_ = 0;

  // Dekker: wake() stores wake_ and then loads blocked_; the driver stores blocked_ and then loads wake_; all seq_cst, so
  // at least one of them sees the other. The exchange in take_wake() pairs with the one in wake(): what a waker wrote
  // before is seen by the hooks.
  alignas(64) std::atomic<bool> wake_{false};
  std::atomic<bool> blocked_{false};
};

}  // namespace aiacc::io
