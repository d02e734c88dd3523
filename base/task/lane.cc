#include "base/task/lane.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace aiacc {
namespace {

// How often a thread looks for the lane, yielding its core in between, before it sleeps: some 100 us.
constexpr int kLooks = 200;

}  // namespace

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

// False if somebody else than the helper drives, who has work of its own, or if the helper does not come to it soon.
bool Lane::take_from_helper() noexcept {
  if (!helping_.load(std::memory_order_acquire)) return false;
  callers_.fetch_add(1, std::memory_order_acq_rel);
  loop_.wake();
  bool taken = false;
  for (int looks = 0; looks < kLooks && !taken; ++looks) {
    taken = (token_.load(std::memory_order_relaxed) & kHeld) == 0 && try_take();
    if (!taken) sched_yield();
  }
  callers_.fetch_sub(1, std::memory_order_acq_rel);
  return taken;
}

// The helper gives the lane to those who ask. True if it is back with the helper; false once it takes too long to stay awake
// for: then the helper is called as always.
bool Lane::take_back() noexcept {
  helping_.store(false, std::memory_order_release);
  give_up();
  for (int looks = 0; looks < kLooks; ++looks) {
    sched_yield();
    const bool free = (token_.load(std::memory_order_relaxed) & kHeld) == 0;
    if (!free || callers_.load(std::memory_order_acquire) != 0 || !try_take()) continue;
    helping_.store(true, std::memory_order_release);
    begin_submitted();  // who submitted while the lane was free called the helper, which did not sleep
    return true;
  }
  return false;
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
  Work* const works[] = {&work};
  lane_.drive_until_done(works, kNever);
}

bool Lane::wait(Work& work, std::optional<Duration> timeout) {
  Work* const works[] = {&work};
  return wait_any(works, timeout);
}

bool Lane::any_done(std::span<Work* const> works) noexcept {
  return std::any_of(works.begin(), works.end(), [](const Work* work) { return work->done(); });
}

bool Lane::wait_any(std::span<Work* const> works, std::optional<Duration> timeout) {
  AIACC_INVARIANT(drive_ != nullptr, "a blocking call on a lane that is driven from outside");
  // The loop's time belongs to its driver: a caller that sleeps first uses up its timeout there and drives with the rest.
  while (!any_done(works)) {
    if (!try_take() && !take_from_helper()) {
      if (timeout && *timeout <= Duration::zero()) return false;
      const auto before = std::chrono::steady_clock::now();
      sleep(works, timeout);
      if (timeout) *timeout -= std::min<Duration>(*timeout, std::chrono::steady_clock::now() - before);
      continue;
    }
    begin_submitted();
    drive_until_done(works, timeout ? after(loop_.now(), *timeout) : kNever);
    give_up();
    return any_done(works);
  }
  return true;
}

void Lane::drive_until_done(std::span<Work* const> works, Instant until) {
  FramePool::Use frames(frames_);
  while (!any_done(works)) {
    if (until != kNever && loop_.now() >= until) return;
    drive_->turn(until);
    begin_submitted();
  }
}

// Returns when some of the work is done, when this thread is called to drive, when nobody drives, or after the timeout.
void Lane::sleep(std::span<Work* const> works, std::optional<Duration> timeout) {
  Sleeper self;
  self.works = works;
  std::uint64_t left;
  {
    std::unique_lock lock(mutex_);
    sleepers_.push_back(self);
    const bool driven = (token_.fetch_add(kSleeper, std::memory_order_seq_cst) & kHeld) != 0;
    bool done = false;
    for (Work* work : works) {
      done |= (work->state_.fetch_or(Work::kWatched, std::memory_order_acq_rel) & Work::kDone) != 0;
    }
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
  if ((left & kHeld) == 0 && left != 0 && any_done(works)) call_somebody();
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
    if (std::find(sleeper.works.begin(), sleeper.works.end(), &work) == sleeper.works.end()) return;
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
      helping_.store(true, std::memory_order_release);
      bool drives = true;
      while (drives && token_.load(std::memory_order_relaxed) >= kAsync) {
        drive_->turn(kNever);
        begin_submitted();
        if (callers_.load(std::memory_order_acquire) != 0) drives = take_back();
      }
      helping_.store(false, std::memory_order_release);
      if (drives) give_up();
    }
    lock.lock();
  }
}

}  // namespace aiacc
