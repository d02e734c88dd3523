// Lane: one loop and everything that is driven with it, by exactly one thread at a time (design decision 2).
//
// The right to drive is a token in one atomic word. A blocking call takes the token and drives its own work to the end,
// without a hand-over; if another thread is driving, it submits its work to the queue and sleeps until the work is done
// or the token is free, and then takes the token. Asynchronous work begins in the thread that starts it, and whoever
// tests or waits drives all work of the lane. The helper thread, which is created with the first asynchronous work,
// drives what nobody else does. No start wakes it: it looks from time to time whether somebody has driven since its last
// look, drives if nobody has, and never spins, because the caller may be computing on the same core. When nothing is left
// to do it listens for events without the token, so that a caller can take the lane at once.
//
// A lane without a Drive is driven from outside (the simulator): work may be started, but no thread may wait for it.
//
// No wake-up is lost, because the token word counts everything that must be driven: a thread that goes to sleep or
// starts asynchronous work first adds itself to the word and then checks whether the token is held; the driver gives up
// the token and sees in the same read-modify-write whether work is left. Whichever comes second in the word's
// modification order sees the other and acts.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/task/driver_thread.h"
#include "base/task/frame_pool.h"
#include "base/task/loop.h"

namespace aiacc {

// How the loop of a lane is driven: implemented by adapters of the real loop (base/io/real_loop.h) and of tests.
class Drive {
 public:
  // Runs what is due. If nothing is, waits until something becomes due, for Loop::wake(), or until `until`. A wake()
  // from before the call counts.
  virtual void turn(Instant until) = 0;
  // Runs what is due, or polls for messages as long as turn() would without sleeping. False: nothing arrived, or there
  // is other work; the caller then calls turn().
  virtual bool stay_awake() noexcept { return false; }
  // Runs what is due, without waiting. Whether there was anything.
  virtual bool look() = 0;
  // The same for a caller that has other things to do and comes again: it may leave out what is rarely due.
  virtual bool glance() { return look(); }

  // Events can be awaited without the right to drive. listen() prepares that, by the driver: from then on any event that
  // makes something due ends await_event(), until listened(). False: something is due already. `due` is when the next timer is.
  virtual bool listen(Instant* due) = 0;
  virtual void listened() noexcept = 0;
  // Not the driver, one thread at a time. Returns after an event, after interrupt(), or at `due`, sometimes earlier.
  virtual void await_event(Instant due) noexcept = 0;
  // Any thread: ends the present await_event(), or the next one.
  virtual void interrupt() noexcept = 0;

 protected:
  ~Drive() = default;
};

class Lane;
struct LaneSleeper;

// Something that runs on a lane: its driver begins works in the order of submission and finishes each once. The owner
// keeps it until done(). After finish() the driver does not touch it any more.
class Work {
 public:
  Work() = default;
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  // Acquires everything that was written before finish().
  bool done() const noexcept { return (state_.load(std::memory_order_acquire) & kDone) != 0; }

 protected:
  ~Work() = default;
  // Called on the driving thread. May call finish().
  virtual void begin() noexcept = 0;
  // Called last, on the driving thread: the owner may destroy this object before finish() returns.
  void finish() noexcept;
  // The same of one of several that end together: without an atomic operation. Lane::finished_together() follows.
  void finish_with_others() noexcept;

 private:
  friend class Lane;
  static constexpr std::uint32_t kDone = 1;
  static constexpr std::uint32_t kWatched = 2;    // a thread sleeps on it
  static constexpr std::uint32_t kLookedFor = 4;  // a thread that drives, or did, waits for it and for others
  static constexpr std::uint32_t kShared = 8;     // several threads slept on it at once

  std::atomic<std::uint32_t> state_{0};
  bool asynchronous_ = false;
  LaneSleeper* sleeper_ = nullptr;  // who sleeps on it, the last if several do; guarded by the lane's mutex
  Lane* lane_ = nullptr;
  Work* next_ = nullptr;  // in the submission queue
};

struct LaneSleeper : ListNode<LaneSleeper> {  // a thread that waits while another one drives
  std::span<Work* const> works;
  bool called = false;  // to drive, or because its work is done
  std::condition_variable wake;
};

class Lane {
 public:
  // `drive` drives `loop`; null if the loop is driven from outside. `name` (at most 15 bytes) names the helper thread.
  Lane(Loop& loop, Drive* drive, std::string name);
  // Requires that no work is outstanding and no thread waits.
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  Loop& loop() noexcept { return loop_; }
  FramePool& frames() noexcept { return frames_; }

  // --- any thread ------------------------------------------------------------------------------------------------------
  // Starts asynchronous work: it begins here and goes as far as it can, unless another thread drives, which then begins it.
  // Throws kSystem, with nothing started, if there is no helper thread and none can be made.
  void start(Work& work);
  // Makes the helper thread, so that asynchronous work can start. Throws kSystem if the system refuses one.
  void ensure_helper();
  // Whether work that was started is done. Drives a little if it is not.
  bool test(Work& work);
  // Begins `work` at once; on the thread that drives, from inside of other work, which keeps the lane driven until its end.
  void begin_here(Work& work) noexcept {
    work.lane_ = this;
    work.begin();
  }
  // On the thread that drives, after Work::finish_with_others(): wakes who sleeps on one of them. A thread that goes to sleep changes
  // the token too: it sees that its work is done if its change comes second, and is seen here if it comes first.
  void finished_together() noexcept {
    if (token_.fetch_add(0, std::memory_order_seq_cst) % kAsync >= kSleeper) [[unlikely]]
      wake_for_ended();
  }
  // Whether nobody drives it but who drives the loop: the simulator.
  bool driven_outside() const noexcept { return drive_ == nullptr; }
  // Runs `work` to its end; drives if no other thread does.
  void run(Work& work);
  // Waits for work that was started before; false if `timeout` passed first.
  bool wait(Work& work, std::optional<Duration> timeout = std::nullopt);
  // Waits until one of several is done; all were started on this lane.
  bool wait_any(std::span<Work* const> works, std::optional<Duration> timeout = std::nullopt);
  // Waits until all are done.
  bool wait_all(std::span<Work* const> works, std::optional<Duration> timeout = std::nullopt);
  // The same for works that the caller names one by one.
  class InTurn {
   public:
    // The next one, or the same again while it is not done; null if there is none, which ends the wait. Called by the thread that waits.
    virtual Work* unfinished() noexcept = 0;

   protected:
    ~InTurn() = default;
  };
  bool wait_all(InTurn& works, std::optional<Duration> timeout = std::nullopt);

  // Exists while its thread waits for work that it has started. The lane's waits create it; a simulated program does so
  // itself.
  class Waiting {
   public:
    explicit Waiting(Lane& lane) noexcept : lane_(lane) {
      lane_.waits_.fetch_add(kWait + 1, std::memory_order_relaxed);
    }
    ~Waiting() { lane_.waits_.fetch_sub(1, std::memory_order_relaxed); }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    Lane& lane_;
  };
  // 0 if no thread waits here. If it returns the same number as before, no thread has begun to wait since. For notices
  // only: what other threads do is unknown.
  std::uint64_t present_wait() const noexcept {
    const std::uint64_t waits = waits_.load(std::memory_order_relaxed);
    return waits % kWait == 0 ? 0 : waits / kWait;
  }

  // The right to drive, for calls that finish without a Work (the one-cache-line path). Work submitted earlier is begun
  // before the holder proceeds, which keeps the order of calls.
  class Hold {
   public:
    explicit Hold(Lane& lane) noexcept : lane_(lane), owns_(lane.try_take() || lane.reclaim_from_helper()) {
      if (owns_) lane_.begin_submitted();
    }
    // For a caller that can do without: does not ask a helper that is busy for the lane.
    struct AtOnce {};
    Hold(Lane& lane, AtOnce) noexcept : lane_(lane), owns_(lane.try_take()) {
      if (owns_) lane_.begin_submitted();
    }
    ~Hold() {
      if (owns_) lane_.give_up();
    }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    bool owns() const noexcept { return owns_; }
    // Begins `work` at once and drives until it is done.
    void run(Work& work);
    // Lane::start() for who holds the lane. The helper must be there (Lane::ensure_helper). `sends`: the beginning may hand the
    // loop something that is to leave at once.
    void start(Work& work, bool sends = true) noexcept;
    // The same of work that sends nothing, in place of which `begin` begins it: without a coroutine.
    template <class Begin>
    void start_as(Work& work, Begin&& begin) noexcept {
      const bool few = lane_.unfinished() < kFewOutstanding;
      ++lane_.begun_here_;
      work.asynchronous_ = true;
      work.lane_ = &lane_;
      begin();
      if (few || ++lane_.starts_without_glance_ >= kStartsPerGlance) glance();
    }
    // Asynchronous works that nobody would drive meanwhile.
    std::uint64_t unfinished() const noexcept { return lane_.unfinished(); }
    // Drive::stay_awake(), for a call that has no Work yet.
    bool stay_awake() noexcept {
      if (lane_.drive_ == nullptr) return false;
      lane_.drove();
      return lane_.drive_->stay_awake();
    }
    // Drive::glance(), for a call that ends at once and has waited for nothing. The lane must have a Drive.
    void glance() noexcept;

   private:
    Lane& lane_;
    bool owns_;
  };

  bool helper_started() const noexcept { return helper_started_.load(std::memory_order_acquire); }
  // For tests: how often the helper took the lane, how often somebody called it from its sleep, and how many works were
  // looked at because one ended that a thread slept on.
  std::uint64_t helped() const noexcept { return helped_.load(std::memory_order_relaxed); }
  std::uint64_t helper_calls() const noexcept { return helper_calls_.load(std::memory_order_relaxed); }
  std::uint64_t searched() const noexcept { return searched_.load(std::memory_order_relaxed); }

 private:
  friend class Work;

  // The token word: bit 0: held; above it the number of sleepers, then of unfinished asynchronous works.
  static constexpr std::uint64_t kHeld = 1;
  static constexpr std::uint64_t kSleeper = 2;
  static constexpr std::uint64_t kAsync = std::uint64_t{1} << 32;

  // What start() hands to the loop (messages to be written) goes out at once while little is outstanding.
  static constexpr std::uint64_t kFewOutstanding = 2;
  // What sends nothing is not in a hurry: its start looks at the loop so often, without a look at the clock, which costs 25 ns.
  static constexpr unsigned kStartsPerGlance = 16;

  static constexpr std::uint64_t kWait = std::uint64_t{1}
                                         << 20;  // threads in a wait are counted below it, waits from it on

  using Sleeper = LaneSleeper;

  bool try_take_quietly() noexcept {  // acquires what the last driver released
    return (token_.fetch_or(kHeld, std::memory_order_seq_cst) & kHeld) == 0;
  }
  bool try_take() noexcept {
    if (!try_take_quietly()) return false;
    if (listening_) stop_listening();
    return true;
  }
  // The caller, who holds the token and is not the helper, has run the loop. Taking the token alone does not count: a thread
  // may do so for calls that end at once, for ever, while asynchronous work waits for somebody to drive.
  void drove() noexcept { drives_.store(drives_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
  bool reclaim_from_helper() noexcept;
  void stop_listening() noexcept;
  // Of the token's holder, who counts works that begin and end by itself until it gives the token up: others look at the count of
  // a token that nobody holds, and an atomic addition for each work is saved.
  std::uint64_t unfinished() const noexcept {
    return token_.load(std::memory_order_relaxed) / kAsync + static_cast<std::uint64_t>(begun_here_);
  }
  // Returns what is left to do.
  std::uint64_t release() noexcept {
    const std::uint64_t change = static_cast<std::uint64_t>(std::exchange(begun_here_, 0)) * kAsync - kHeld;
    return token_.fetch_add(change, std::memory_order_seq_cst) + change;
  }
  void give_up() noexcept {
    if (const std::uint64_t left = release(); left != 0) see_to(left);
  }
  void begin_submitted() noexcept {
    if (submitted_.load(std::memory_order_relaxed) != nullptr) begin_all();
  }

  void begin_all() noexcept;
  void submit(Work& work) noexcept;
  // Removes finished works from the front of `works`; returns whether all were finished.
  static bool all_done(std::span<Work* const>& works) noexcept;
  static bool any_done(std::span<Work* const> works) noexcept;
  static bool look_for_any(std::span<Work* const> works) noexcept;
  template <class Done>
  bool wait_until(Done&& done, std::span<Work* const>& works, bool all, std::optional<Duration> timeout);
  template <class Done>
  void drive_until(Done&& done, Instant until);
  void sleep(std::span<Work* const> works, std::optional<Duration> timeout);
  bool drive_a_little() noexcept;
  void see_to(std::uint64_t left) noexcept;
  void call_somebody() noexcept;
  void call_helper() noexcept;
  void help();
  void stand_by();
  void drive_alone();
  void finished(Work& work) noexcept;
  void wake_sleepers(const Work* work, Sleeper* only) noexcept;
  void wake_for_ended() noexcept;

  struct Outside final : Job {  // begins submitted work when the loop is driven from outside
    Lane* lane = nullptr;
    void run() noexcept override { lane->begin_all(); }
  };

  Loop& loop_;
  Drive* drive_;
  std::string name_;
  FramePool frames_;
  Outside outside_;

  alignas(64) std::atomic<std::uint64_t> token_{0};
  std::atomic<std::uint64_t> drives_{
      0};  // how often others than the helper ran the loop; written by the token's holder
  std::int64_t begun_here_ =
      0;  // asynchronous works that began since the token was taken, less those that ended; guarded by it
  bool listening_ = false;  // the helper listens, and nobody has driven since; guarded by the token
  std::atomic<std::uint64_t> waits_{0};
  std::uint64_t looked_for_ended_ = 0;  // work, ever, with Work::kLookedFor: the driver's
  Instant last_glance_{};               // of start(); guarded by the token, as the next
  unsigned starts_without_glance_ = 0;  // of work that sends nothing
  std::atomic<std::uint32_t> vain_tests_{0};
  std::atomic<std::uint32_t> callers_{0};  // who ask the helper for the lane
  std::atomic<bool> helping_{false};       // the helper drives
  // What the helper does while it does not drive. Asleep, it is called when work is left behind; on stand-by it finds that
  // itself; listening, it is interrupted once somebody else has driven and left work behind.
  enum class Helper : std::uint8_t { kAsleep, kStandBy, kListening };
  std::atomic<Helper> helper_state_{Helper::kAsleep};
  std::atomic<Work*> submitted_{nullptr};  // newest first; release-pushed, taken whole with acquire by the driver

  alignas(64) std::mutex mutex_;  // guards what follows
  IntrusiveList<Sleeper> sleepers_;
  std::condition_variable helper_wake_;
  bool helper_called_ = false;
  std::atomic<bool> stopping_{false};  // written under the mutex
  std::atomic<std::uint64_t> helped_{0};
  std::atomic<std::uint64_t> helper_calls_{0};
  std::atomic<std::uint64_t> searched_{0};
  std::unique_ptr<DriverThread> helper_;
  std::atomic<bool> helper_started_{false};
};

inline void Work::finish() noexcept { lane_->finished(*this); }

// A mark that a thread has just set may be lost: it is asleep by then, or sees that the work is done.
inline void Work::finish_with_others() noexcept {
  if (asynchronous_) --lane_->begun_here_;
  if ((state_.load(std::memory_order_relaxed) & kLookedFor) != 0) ++lane_->looked_for_ended_;
  state_.store(kDone, std::memory_order_release);
}

}  // namespace aiacc
