#include "base/task/lane.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace aiacc {

Lane::Lane(Loop& loop, Drive* drive, std::string name) : loop_(loop), drive_(drive), name_(std::move(name)) {
  outside_.lane = this;
}

Lane::~Lane() {
  std::unique_ptr<DriverThread> helper;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    helper_wake_.notify_all();
    helper = std::move(helper_);
  }
  if (helper != nullptr) helper->join();
}

void Lane::submit(Work& work) noexcept {
  work.lane_ = this;
  work.next_ = submitted_.load(std::memory_order_relaxed);
  // Release: pairs with the driver's acquire in begin_all(), which reads the work.
  while (!submitted_.compare_exchange_weak(work.next_, &work, std::memory_order_release, std::memory_order_relaxed)) {
  }
}

void Lane::begin_all() noexcept {
  FramePool::Use frames(frames_);
  Work* newest = submitted_.exchange(nullptr, std::memory_order_acquire);
  Work* oldest = nullptr;
  while (newest != nullptr) {
    Work* next = std::exchange(newest->next_, oldest);
    oldest = std::exchange(newest, next);
  }
  while (oldest != nullptr) {
    Work* next = oldest->next_;  // begin() may finish the work, and then it is gone
    oldest->begin();
    oldest = next;
  }
}

void Lane::start(Work& work) {
  work.asynchronous_ = true;
  if (drive_ == nullptr) {
    token_.fetch_add(kAsync, std::memory_order_relaxed);
    const bool first = submitted_.load(std::memory_order_relaxed) == nullptr;
    submit(work);
    if (first) loop_.post(outside_);
    return;
  }
  ensure_helper();
  submit(work);
  if ((token_.fetch_add(kAsync, std::memory_order_seq_cst) & kHeld) != 0) {
    loop_.wake();
  } else {
    call_somebody();
  }
}

void Lane::run(Work& work) {
  AIACC_INVARIANT(drive_ != nullptr, "a blocking call on a lane that is driven from outside");
  {
    Hold hold(*this);
    if (hold.owns()) {
      hold.run(work);
      return;
    }
  }
  submit(work);
  loop_.wake();
  wait(work);
}

void Lane::Hold::run(Work& work) {
  work.lane_ = &lane_;
  {
    FramePool::Use frames(lane_.frames_);
    work.begin();
  }
  lane_.drive_until_done(work, kNever);
}

bool Lane::wait(Work& work, std::optional<Duration> timeout) {
  AIACC_INVARIANT(drive_ != nullptr, "a blocking call on a lane that is driven from outside");
  // The loop's time belongs to its driver: a caller that sleeps first uses up its timeout there and drives with the rest.
  while (!work.done()) {
    if (!try_take()) {
      if (timeout && *timeout <= Duration::zero()) return false;
      const auto before = std::chrono::steady_clock::now();
      sleep(work, timeout);
      if (timeout) *timeout -= std::min<Duration>(*timeout, std::chrono::steady_clock::now() - before);
      continue;
    }
    begin_submitted();
    drive_until_done(work, timeout ? after(loop_.now(), *timeout) : kNever);
    give_up();
    return work.done();
  }
  return true;
}

void Lane::drive_until_done(Work& work, Instant until) {
  FramePool::Use frames(frames_);
  while (!work.done()) {
    if (until != kNever && loop_.now() >= until) return;
    drive_->turn(until);
    begin_submitted();
  }
}

// Returns when the work is done, when this thread is called to drive, when nobody drives, or after the timeout.
void Lane::sleep(Work& work, std::optional<Duration> timeout) {
  Sleeper self;
  self.work = &work;
  std::uint64_t left;
  {
    std::unique_lock lock(mutex_);
    sleepers_.push_back(self);
    const bool driven = (token_.fetch_add(kSleeper, std::memory_order_seq_cst) & kHeld) != 0;
    const bool done = (work.state_.fetch_or(Work::kWatched, std::memory_order_acq_rel) & Work::kDone) != 0;
    if (driven && !done) {
      const auto called = [&] { return self.called; };
      if (timeout) {
        self.wake.wait_for(lock, *timeout, called);
      } else {
        self.wake.wait(lock, called);
      }
    }
    left = token_.fetch_sub(kSleeper, std::memory_order_seq_cst) - kSleeper;
    self.unlink();
  }
  // Perhaps this thread was called to drive and has nothing left to drive for: then the call goes to the next.
  if ((left & kHeld) == 0 && left != 0 && work.done()) call_somebody();
}

void Lane::call_somebody() noexcept {
  std::lock_guard lock(mutex_);
  const std::uint64_t token = token_.load(std::memory_order_seq_cst);
  if ((token & kHeld) != 0) return;  // whoever holds it sees the rest when giving up
  if (!sleepers_.empty()) {
    sleepers_.front().called = true;
    sleepers_.front().wake.notify_one();
  } else if (token >= kAsync && helper_ != nullptr) {
    helper_called_ = true;
    helper_wake_.notify_one();
  }
}

void Lane::finished(Work& work) noexcept {
  if (work.asynchronous_) token_.fetch_sub(kAsync, std::memory_order_relaxed);
  if ((work.state_.exchange(Work::kDone, std::memory_order_acq_rel) & Work::kWatched) == 0) return;
  // The work may be gone by now; its address still tells who slept on it. A wrong match (a new work at the same address)
  // wakes a thread that looks and sleeps again.
  std::lock_guard lock(mutex_);
  sleepers_.for_each([&](Sleeper& sleeper) {
    if (sleeper.work != &work) return;
    sleeper.called = true;
    sleeper.wake.notify_one();
  });
}

void Lane::ensure_helper() {
  if (helper_started_.load(std::memory_order_acquire)) return;
  std::lock_guard lock(mutex_);
  if (helper_ != nullptr) return;
  helper_ = std::make_unique<DriverThread>(name_, [this] { help(); });
  helper_started_.store(true, std::memory_order_release);
}

void Lane::help() {
  std::unique_lock lock(mutex_);
  while (true) {
    helper_wake_.wait(lock, [&] { return helper_called_ || stopping_; });
    if (stopping_) return;
    helper_called_ = false;
    lock.unlock();
    if (try_take()) {
      FramePool::Use frames(frames_);
      begin_submitted();
      while (token_.load(std::memory_order_relaxed) >= kAsync) {
        drive_->turn(kNever);
        begin_submitted();
      }
      give_up();
    }
    lock.lock();
  }
}

}  // namespace aiacc
