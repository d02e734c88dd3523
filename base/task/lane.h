// Lane: one loop and everything that is driven with it, by exactly one thread at a time (design decision 2).
//
// Who drives is one atomic word. A blocking call takes it and drives its own work to the end, with no hand-over; when
// another thread drives already, it leaves its work in the submission queue and sleeps until the work is done or until
// nobody drives any more, and then takes its turn. Asynchronous work is driven by whoever drives; when nobody does, by the
// helper thread, which starts with the first asynchronous work and not before. The helper hands the lane to a caller that
// asks for it, and stays awake for a moment to take it back: many small calls beside a large asynchronous one would each
// sleep otherwise.
//
// A lane without a Drive is driven from outside (the simulator): work may be started and nobody may wait for it.
//
// No wake-up is lost, because everything that must be driven stands in the token word: a thread that goes to sleep or
// starts asynchronous work first adds itself to the word and then looks whether the token is held; the driver gives up the
// token and sees in the same read-modify-write whether anything is left. Whichever comes second in the word's modification
// order sees the other and acts.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "base/task/driver_thread.h"
#include "base/task/frame_pool.h"
#include "base/task/loop.h"

namespace aiacc {

// How the loop of a lane is driven: implemented by adapters of the real loop (base/io/real_loop.h) and of tests.
class Drive {
 public:
  // Runs what is due. When nothing is, waits for something to become due, for Loop::wake(), or until `until`. A wake()
  // from before the call is not lost.
  virtual void turn(Instant until) = 0;
  // Runs what is due, or else waits for answers as long as turn() would stay awake. False: nothing came, or something else is
  // to be done; then turn() is called.
  virtual bool stay_awake() noexcept { return false; }

 protected:
  ~Drive() = default;
};

class Lane;

// Something that runs on a lane: begun by its driver, in the order of submission, and finished once. Its owner keeps it
// until done(). After finish() the driver does not touch it any more.
class Work {
 public:
  Work() = default;
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  // Acquires everything that was written before finish().
  bool done() const noexcept { return (state_.load(std::memory_order_acquire) & kDone) != 0; }

 protected:
  ~Work() = default;
  // On the driving thread. May call finish().
  virtual void begin() noexcept = 0;
  // On the driving thread, as the last thing: the owner may destroy this object before finish() returns.
  void finish() noexcept;

 private:
  friend class Lane;
  static constexpr std::uint32_t kDone = 1;
  static constexpr std::uint32_t kWatched = 2;  // a thread sleeps on it

  std::atomic<std::uint32_t> state_{0};
  bool asynchronous_ = false;
  Lane* lane_ = nullptr;
  Work* next_ = nullptr;  // in the submission queue
};

class Lane {
 public:
  // `drive` drives `loop`; null if it is driven from outside. `name` (at most 15 bytes) is the helper thread's.
  Lane(Loop& loop, Drive* drive, std::string name);
  // No work is outstanding and nobody waits.
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  Loop& loop() noexcept { return loop_; }
  FramePool& frames() noexcept { return frames_; }

  // --- any thread ------------------------------------------------------------------------------------------------------
  // Starts asynchronous work. Throws kSystem, with nothing started, if the helper thread is needed and cannot be made.
  void start(Work& work);
  // Runs `work` to its end, driving if nobody else does.
  void run(Work& work);
  // Waits for work that was started before; false if `timeout` passed first.
  bool wait(Work& work, std::optional<Duration> timeout = std::nullopt);
  // Waits until one of several is done; all were started on this lane.
  bool wait_any(std::span<Work* const> works, std::optional<Duration> timeout = std::nullopt);

  // The right to drive, for calls that finish without a Work (the one-cache-line path). What was submitted before is begun
  // before the holder goes on, so that the order of calls is kept.
  class Hold {
   public:
    explicit Hold(Lane& lane) noexcept : lane_(lane), owns_(lane.try_take() || lane.take_from_helper()) {
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
    // For a call that has no Work yet: Drive::stay_awake().
    bool stay_awake() noexcept { return lane_.drive_ != nullptr && lane_.drive_->stay_awake(); }

   private:
    Lane& lane_;
    bool owns_;
  };

  bool helper_started() const noexcept { return helper_started_.load(std::memory_order_acquire); }

 private:
  friend class Work;

  // The token word: bit 0 held, then sleepers, then asynchronous work that is not finished.
  static constexpr std::uint64_t kHeld = 1;
  static constexpr std::uint64_t kSleeper = 2;
  static constexpr std::uint64_t kAsync = std::uint64_t{1} << 32;

  struct Sleeper : ListNode<Sleeper> {
    std::span<Work* const> works;
    bool called = false;  // to drive, or because its work is done
    std::condition_variable wake;
  };

  bool try_take() noexcept {  // acquires what the last driver released
    return (token_.fetch_or(kHeld, std::memory_order_seq_cst) & kHeld) == 0;
  }
  bool take_from_helper() noexcept;
  bool take_back() noexcept;
  void give_up() noexcept {
    if (token_.fetch_sub(kHeld, std::memory_order_seq_cst) != kHeld) call_somebody();
  }
  void begin_submitted() noexcept {
    if (submitted_.load(std::memory_order_relaxed) != nullptr) begin_all();
  }

  void begin_all() noexcept;
  void submit(Work& work) noexcept;
  static bool any_done(std::span<Work* const> works) noexcept;
  void drive_until_done(std::span<Work* const> works, Instant until);
  void sleep(std::span<Work* const> works, std::optional<Duration> timeout);
  void call_somebody() noexcept;
  void ensure_helper();
  void help();
  void finished(Work& work) noexcept;

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
  std::atomic<std::uint32_t> callers_{0};  // who ask the helper for the lane
  std::atomic<bool> helping_{false};       // the helper drives
  std::atomic<Work*> submitted_{nullptr};  // newest first; release-pushed, taken whole with acquire by the driver

  alignas(64) std::mutex mutex_;  // guards what follows
  IntrusiveList<Sleeper> sleepers_;
  std::condition_variable helper_wake_;
  bool helper_called_ = false;
  bool stopping_ = false;
  std::unique_ptr<DriverThread> helper_;
  std::atomic<bool> helper_started_{false};
};

inline void Work::finish() noexcept { lane_->finished(*this); }

}  // namespace aiacc
