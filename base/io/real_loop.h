// RealLoop: the real Loop. It waits for descriptors (epoll), timers, flags that other processes store into shared
// memory (Poller, BlockGuard), and wake() from other threads.
//
// One thread at a time drives it (turn, run_until, run); the caller decides which (a lane's token: a RealLoop is its
// lane's Drive). Everything but wake() is for the driving thread.
//
// While a Poller is registered, it polls in a short spin, then yields its core between polls (several ranks on one core
// take turns within microseconds), then asks every BlockGuard and blocks in the kernel until a descriptor, a timer or a
// wake. While it expects answers on streams it polls these before it yields and between yields, as long as that worthwhile.
// Without either it blocks at once. There is no periodic timer: a blocked loop costs nothing.
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

// Notified when a descriptor is ready. It is a member of the descriptor's owner, destroyed before the descriptor is
// closed.
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

// Polls shared flags for waits. While one is registered the loop spins before it blocks.
class Poller : public ListNode<Poller> {
 public:
  // Completes finished waits (which posts, never resumes) and returns whether there was any. Must cost only a load or
  // two when nothing changed: it is called millions of times per second. May unlink itself, but no other poller.
  virtual bool look_at_flags() noexcept = 0;
  // What it waits for comes from other hosts, and takes longer than a flag.
  virtual bool looks_at_network() const noexcept { return false; }

 protected:
  ~Poller() = default;
};

// A stream on which an answer is expected soon: the loop stays awake and polls it directly.
class Answerer : public ListNode<Answerer> {
 public:
  // Reads what has arrived; returns whether anything had.
  virtual bool look_for_answer() noexcept = 0;

 protected:
  ~Answerer() = default;
};

// Called before the loop blocks, so that no store by another process is missed: about_to_block() arms the doorbell (a
// watched descriptor), then polls once more, and returns false if there is something to do. woke() follows each call of
// about_to_block(), whatever it returned.
class BlockGuard : public ListNode<BlockGuard> {
 public:
  virtual bool about_to_block() noexcept = 0;
  virtual void woke() noexcept = 0;

 protected:
  ~BlockGuard() = default;
};

// Run by the driver once after any number of wake() calls: takes over submissions of other threads.
class WakeHook : public ListNode<WakeHook> {
 public:
  virtual void woken() noexcept = 0;

 protected:
  ~WakeHook() = default;
};

// Adaptive polling: decides whether to poll once more, by how often recent polls succeeded. While they do, always; otherwise
// at every 32nd question.
class AdaptivePoll {
 public:
  bool worthwhile() noexcept { return credit_ > 0 || ++refused_ % kPerProbe == 0; }
  void record(bool succeeded) noexcept { credit_ = std::clamp(credit_ + (succeeded ? 1 : -2), 0, kMostCredit); }

 private:
  static constexpr unsigned kPerProbe = 32;
  static constexpr int kMostCredit = 8;
  unsigned refused_ = 0;
  int credit_ = kMostCredit;
};

class RealLoop final : public Loop, public Drive {
 public:
  // How long an idle loop that has pollers stays awake. Spinning pays while the peer runs on another core, where an exchange
  // of a cache line takes well under a microsecond; see also spin().
  struct SpinPolicy {
    Duration spin = std::chrono::microseconds(2);
    Duration yield = std::chrono::microseconds(300);  // 0: no yields
    int min_yields = 8;  // a yield may last another process's whole time slice; one poll after it is not enough
  };

  RealLoop();  // throws kSystem with the limit if no descriptors are left
  ~RealLoop() override;

  Instant now() noexcept override;
  Instant about_now() noexcept override;
  void post(Job& job) noexcept override { jobs_.push_back(job); }
  void wake() noexcept override;

  void set_spin_policy(SpinPolicy policy) noexcept { spin_policy_ = policy; }
  const SpinPolicy& spin_policy() const noexcept { return spin_policy_; }

  // Polls everything once; if there was nothing to do, waits until something happens or until `until`.
  void turn(Instant until) override { look_and_wait(until); }
  bool stay_awake() noexcept override;
  // One look at everything, without waiting. Whether there was anything to do.
  bool look() override { return look_and_wait(Instant{}); }
  bool glance() override;
  bool listen(Instant* due) override;
  void listened() noexcept override;
  void await_event(Instant due) noexcept override;
  void interrupt() noexcept override;

  template <std::predicate Done>
  void run_until(Done&& done) {
    while (!done()) turn(kNever);
  }

  // Drives until `task` ends; returns its result or throws its error.
  template <class T>
  T run(Task<T> task) {
    task.start();
    while (!task.done()) turn(kNever);
    return task.take();
  }

  // Edge-triggered: notifies at once if ready now, then at each change. The owner reads or writes until EAGAIN.
  // Returns false for descriptors that are always ready (regular files). Throws kSystem if the kernel refuses.
  bool watch_edges(Watch& watch, int descriptor, bool read, bool write);
  // Notifies once; rearm() requests another notification.
  bool watch_once(Watch& watch, int descriptor, bool read, bool write);
  void rearm(Watch& watch);

  void add(Poller& poller) noexcept { pollers_.push_back(poller); }
  void add(BlockGuard& guard) noexcept { guards_.push_back(guard); }
  void add(WakeHook& hook) noexcept { hooks_.push_back(hook); }

  // A coroutine whose reads and writes never suspend would starve everything else. True while the present turn may
  // complete one more of them in place; later ones are put off to the next turn (base/io/fd_stream.cc).
  bool may_complete_in_place() noexcept {
    if (in_place_left_ == 0) return false;
    --in_place_left_;
    return true;
  }
  // Tries the next read or write of this turn in place, however many there were before it: for the last message of a process
  // that may end before the next turn.
  void allow_one_in_place() noexcept { in_place_left_ = std::max(in_place_left_, 1); }

  // Expects answers on `stream` until await_no_answer().
  void await_answer(Answerer& stream) noexcept {
    answerers_.push_back(stream);
    ++answering_;
  }
  void await_no_answer(Answerer& stream) noexcept {
    stream.unlink();
    --answering_;
  }

  // How often the loop blocked in the kernel; for tests and aiacc-info.
  std::uint64_t blocked_count() const noexcept { return blocked_count_; }

 private:
  friend class Watch;
  static constexpr int kBatch = 64;  // events taken from the kernel at once
  static constexpr int kJobsPerTurn = 256;
  static constexpr int kInPlacePerTurn = 64;
  static constexpr unsigned kTurnsPerClockRead = 8;    // while there is work
  static constexpr unsigned kTurnsPerKernelLook = 32;  // likewise
  static constexpr unsigned kGlancesPerLook = 16;

  void do_arm(Timer& timer) override { timers_.add(timer, when(timer)); }
  void do_disarm(Timer& timer) noexcept override { timers_.remove(timer); }

  bool watch(Watch& watch, int descriptor, std::uint32_t events);
  void unwatch(Watch& watch) noexcept;

  void begin_turn() noexcept;
  bool take_wake() noexcept;
  bool run_jobs() noexcept;
  bool run_timers() noexcept;
  bool poll_flags() noexcept;
  bool look_and_wait(Instant until);
  bool wait_awake(Instant due) noexcept;
  Duration spin_time() noexcept;
  bool spin(Instant began, Instant due) noexcept;
  bool look_for_answers() noexcept;
  bool poll_without_yield() noexcept;
  void block(Instant due) noexcept;
  bool arm_guards() noexcept;
  bool look_at_kernel() noexcept;
  int collect(Instant until) noexcept;
  bool dispatch(int events) noexcept;

  Fd epoll_;
  Fd bell_;       // an eventfd that is only ever written: edge-triggered, so that nobody has to drain it
  Fd interrupt_;  // an eventfd for await_event() alone: a driver would take its edge
  bool has_pwait2_ = true;
  SpinPolicy spin_policy_;
  IntrusiveList<Job> jobs_;
  TimerQueue timers_;
  IntrusiveList<Poller> pollers_;
  IntrusiveList<Answerer> answerers_;
  IntrusiveList<BlockGuard> guards_;
  IntrusiveList<WakeHook> hooks_;

  std::array<epoll_event, kBatch> batch_{};
  int batch_next_ = 0;  // the part of the batch that is not dispatched yet, which unwatch() must search
  int batch_size_ = 0;
  int in_place_left_ = kInPlacePerTurn;
  // Counted since the last time, and not taken modulo: full looks that come every so many glances would never meet the turn.
  unsigned turns_without_clock_ = 0;
  unsigned turns_without_kernel_ = 0;
  unsigned glances_ = 0;
  int answering_ = 0;          // in answerers_
  AdaptivePoll flag_polls_;    // of flags in shared memory
  AdaptivePoll kernel_polls_;  // of streams, between yields
  AdaptivePoll busy_polls_;    // of streams, without yields
  std::uint64_t blocked_count_ = 0;

  // Dekker: wake() stores wake_ and then loads blocked_; the driver stores blocked_ and then loads wake_; all seq_cst, so
  // at least one of them sees the other. The exchange in take_wake() pairs with the one in wake(): what a waker wrote
  // before is seen by the hooks.
  alignas(64) std::atomic<bool> wake_{false};
  std::atomic<bool> blocked_{false};
};

}  // namespace aiacc::io
