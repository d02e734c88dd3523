#include "base/task/lane.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace aiacc {
namespace {

// How often a thread polls for the lane, yielding its core in between, before it sleeps: about 100 us.
constexpr int kLooks = 200;

// How long nobody must have driven before the helper does. It grows while others drive: each look of the helper takes some
// microseconds from whoever computes on its core.
constexpr Duration kShortestStandBy = std::chrono::microseconds(500);
constexpr Duration kLongestStandBy = std::chrono::milliseconds(4);
// The helper's looks that find no asynchronous work before it sleeps: work is often started one after the other.
constexpr int kIdleLooks = 16;

// While more is outstanding (kFewOutstanding), what start() hands to the loop goes out together with what else comes within this time
// after the last time: a call to the kernel takes 5 to 10 us, whatever it carries, and must not be counted, or each message would
// pay for one.
constexpr Duration kBatchTime = std::chrono::microseconds(20);

// Tests in vain, one after the other, after which the caller's core is offered to others: the peer may need it.
constexpr std::uint32_t kTestsPerYield = 8;

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
  if (helper == nullptr) return;
  drive_->interrupt();
  helper->join();
}

void Lane::submit(Work& work) noexcept {
  work.lane_ = this;
  work.next_ = submitted_.load(std::memory_order_relaxed);
  // Release: pairs with the driver's acquire in begin_all(), which reads the work.
  while (!submitted_.compare_exchange_weak(work.next_, &work, std::memory_order_release, std::memory_order_relaxed)) {
  }
}

// False if a thread other than the helper drives, because that has work of its own, or if the helper does not respond
// soon.
bool Lane::reclaim_from_helper() noexcept {
  if (!helping_.load(std::memory_order_acquire)) return false;
  callers_.fetch_add(1, std::memory_order_acq_rel);
  bool taken = false;
  for (int looks = 0; looks < kLooks && !taken; ++looks) {
    taken = (token_.load(std::memory_order_relaxed) & kHeld) == 0 && try_take();
    if (!taken) sched_yield();
  }
  callers_.fetch_sub(1, std::memory_order_acq_rel);
  return taken;
}

void Lane::stop_listening() noexcept {
  listening_ = false;
  drive_->listened();
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
    Work* next = oldest->next_;  // read first: begin() may finish the work, whose owner may then destroy it
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
  {
    Hold hold(*this, Hold::AtOnce());
    if (hold.owns()) return hold.start(work);
  }
  token_.fetch_add(kAsync, std::memory_order_seq_cst);
  submit(work);
  // Whoever gives up the token after this sees the work in the word; if that was before, nobody has seen it yet.
  if ((token_.load(std::memory_order_seq_cst) & kHeld) != 0) {
    loop_.wake();
  } else {
    see_to(kAsync);
  }
}

void Lane::Hold::start(Work& work, bool sends) noexcept {
  FramePool::Use frames(lane_.frames_);
  const bool few = lane_.unfinished() < kFewOutstanding;
  ++lane_.begun_here_;
  work.asynchronous_ = true;
  work.lane_ = &lane_;
  work.begin();
  if (!few && !sends && ++lane_.starts_without_glance_ < kStartsPerGlance) return;
  if (!few && sends && lane_.loop_.now() - lane_.last_glance_ < kBatchTime) return;
  lane_.starts_without_glance_ = 0;
  lane_.drove();
  lane_.drive_->glance();
  if (sends) lane_.last_glance_ = lane_.loop_.now();
}

void Lane::Hold::glance() noexcept {
  FramePool::Use frames(lane_.frames_);
  lane_.starts_without_glance_ = 0;
  lane_.drove();
  lane_.drive_->glance();
}

// Whether anything came of it.
bool Lane::drive_a_little() noexcept {
  if (drive_ == nullptr || !try_take()) return false;
  begin_submitted();
  bool any = false;
  {
    FramePool::Use frames(frames_);
    drove();
    any = drive_->glance();
  }
  give_up();
  return any;
}

bool Lane::test(Work& work) {
  if (work.done()) return true;
  const bool any = drive_a_little();
  if (work.done()) return true;
  if (any) {
    vain_tests_.store(0, std::memory_order_relaxed);
  } else if (vain_tests_.fetch_add(1, std::memory_order_relaxed) % kTestsPerYield == kTestsPerYield - 1) {
    sched_yield();
  }
  return false;
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

template <class Done>
void Lane::drive_until(Done&& done, Instant until) {
  FramePool::Use frames(frames_);
  while (!done()) {
    if (until != kNever && loop_.now() >= until) return;
    drove();
    drive_->turn(until);
    begin_submitted();
  }
}

void Lane::Hold::run(Work& work) {
  work.lane_ = &lane_;
  const Waiting waiting(lane_);  // from its beginning on
  {
    FramePool::Use frames(lane_.frames_);
    work.begin();
  }
  lane_.drive_until([&work] { return work.done(); }, kNever);
}

bool Lane::wait(Work& work, std::optional<Duration> timeout) {
  Work* const works[] = {&work};
  return wait_any(works, timeout);
}

bool Lane::any_done(std::span<Work* const> works) noexcept {
  return std::any_of(works.begin(), works.end(), [](const Work* work) { return work->done(); });
}

bool Lane::all_done(std::span<Work* const>& works) noexcept {
  while (!works.empty() && works.front()->done()) works = works.subspan(1);
  return works.empty();
}

// `done` gets whether this thread drives. A thread that does not drive sleeps until one of `works` is done; with `all`,
// until the first unfinished one is done.
template <class Done>
bool Lane::wait_until(Done&& done, std::span<Work* const>& works, bool all, std::optional<Duration> timeout) {
  AIACC_INVARIANT(drive_ != nullptr, "a blocking call on a lane that is driven from outside");
  // Only the driver may use the loop's clock, so a sleep uses up its part of the timeout before this thread drives.
  if (done(false)) return true;
  if (timeout && *timeout <= Duration::zero()) {
    drive_a_little();
    return done(false);
  }
  const Waiting waiting(*this);
  while (!done(false)) {
    if (!try_take() && !reclaim_from_helper()) {
      if (timeout && *timeout <= Duration::zero()) return false;
      const auto before = std::chrono::steady_clock::now();
      sleep(all ? works.first(1) : works, timeout);
      if (timeout) *timeout -= std::min<Duration>(*timeout, std::chrono::steady_clock::now() - before);
      continue;
    }
    begin_submitted();
    drive_until([&done] { return done(true); }, timeout ? after(loop_.now(), *timeout) : kNever);
    give_up();
    return done(false);
  }
  return true;
}

// Marks the works as looked for; returns whether one is done.
bool Lane::look_for_any(std::span<Work* const> works) noexcept {
  return std::any_of(works.begin(), works.end(), [](Work* work) {
    const std::uint32_t state = work->state_.load(std::memory_order_acquire);
    if ((state & (Work::kDone | Work::kLookedFor)) != 0) return (state & Work::kDone) != 0;
    return (work->state_.fetch_or(Work::kLookedFor, std::memory_order_acq_rel) & Work::kDone) != 0;
  });
}

// Each work is marked once. They are checked again only after a marked work has ended, so the end of other work costs
// nothing here.
bool Lane::wait_any(std::span<Work* const> works, std::optional<Duration> timeout) {
  constexpr std::uint64_t kNotYet = ~std::uint64_t{0};
  std::uint64_t looked_at = kNotYet;
  const auto done = [&](bool drives) {
    if (!drives || works.size() == 1) return any_done(works);
    const std::uint64_t before = std::exchange(looked_at, looked_for_ended_);
    return before == kNotYet ? look_for_any(works) : before != looked_for_ended_ && any_done(works);
  };
  return wait_until(done, works, false, timeout);
}

bool Lane::wait_all(std::span<Work* const> works, std::optional<Duration> timeout) {
  return wait_until([&](bool) { return all_done(works); }, works, true, timeout);
}

bool Lane::wait_all(InTurn& works, std::optional<Duration> timeout) {
  Work* first = nullptr;
  bool over = false;  // and stays so, whatever unfinished() would say later
  std::span<Work* const> next(&first, 1);
  const auto done = [&](bool) {
    if (!over && (first == nullptr || first->done())) over = (first = works.unfinished()) == nullptr;
    return over;
  };
  return wait_until(done, next, true, timeout);
}

// Returns when one of the works is done, when this thread is called to drive, when no thread drives, or after the
// timeout.
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
      const std::uint32_t marks = work->sleeper_ == nullptr ? Work::kWatched : Work::kWatched | Work::kShared;
      work->sleeper_ = &self;
      done |= (work->state_.fetch_or(marks, std::memory_order_acq_rel) & Work::kDone) != 0;
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
    for (Work* work : works) {
      if (work->sleeper_ == &self) work->sleeper_ = nullptr;
    }
  }
  // If this thread was called to drive but has no work left, it calls the next one.
  if ((left & kHeld) == 0 && left != 0 && any_done(works)) call_somebody();
}

// After the token was given up with something left to do.
void Lane::see_to(std::uint64_t left) noexcept {
  if (left % kAsync == 0 && helper_state_.load(std::memory_order_seq_cst) == Helper::kStandBy) return;
  call_somebody();
}

void Lane::call_somebody() noexcept {
  std::lock_guard lock(mutex_);
  const std::uint64_t token = token_.load(std::memory_order_seq_cst);
  if ((token & kHeld) != 0) return;  // the driver sees the remaining work when it gives up the token
  if (!sleepers_.empty()) {
    sleepers_.front().called = true;
    sleepers_.front().wake.notify_one();
  } else if (token >= kAsync && helper_ != nullptr) {
    call_helper();
  }
}

// Under the mutex.
void Lane::call_helper() noexcept {
  Helper listening = Helper::kListening;
  if (helper_state_.compare_exchange_strong(listening, Helper::kStandBy, std::memory_order_seq_cst)) {
    drive_->interrupt();
  } else if (listening == Helper::kAsleep && !helper_called_) {
    helper_calls_.fetch_add(1, std::memory_order_relaxed);
    helper_called_ = true;
    helper_wake_.notify_one();
  }
}

void Lane::finished(Work& work) noexcept {
  if (work.asynchronous_) --begun_here_;
  std::uint32_t before = work.state_.load(std::memory_order_acquire);
  if ((before & Work::kWatched) == 0) {
    before = work.state_.exchange(Work::kDone, std::memory_order_acq_rel);
    if ((before & Work::kLookedFor) != 0) ++looked_for_ended_;
    if ((before & Work::kWatched) == 0) return;
    // A thread went to sleep on it just now. The work may be gone; its address still tells who slept on it. A wrong match (a
    // new work at the same address) wakes a thread that looks and sleeps again.
    std::lock_guard lock(mutex_);
    return wake_sleepers(&work, nullptr);
  }
  std::lock_guard lock(mutex_);
  Sleeper* const only = work.sleeper_;
  before = work.state_.exchange(Work::kDone, std::memory_order_acq_rel);
  if ((before & Work::kLookedFor) != 0) ++looked_for_ended_;
  wake_sleepers(&work, (before & Work::kShared) == 0 ? only : nullptr);
}

// Those that sleep on this work: `only`, or whoever has it among its works. Under the mutex.
void Lane::wake_sleepers(const Work* work, Sleeper* only) noexcept {
  const auto wake = [](Sleeper& sleeper) {
    sleeper.called = true;
    sleeper.wake.notify_one();
  };
  if (only != nullptr) return wake(*only);
  sleepers_.for_each([&](Sleeper& sleeper) {
    if (sleeper.called) return;
    searched_.fetch_add(sleeper.works.size(), std::memory_order_relaxed);
    if (std::find(sleeper.works.begin(), sleeper.works.end(), work) != sleeper.works.end()) wake(sleeper);
  });
}

void Lane::wake_for_ended() noexcept {
  std::lock_guard lock(mutex_);
  sleepers_.for_each([](Sleeper& sleeper) {
    if (sleeper.called || !any_done(sleeper.works)) return;
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
  while (!stopping_) {
    // Dekker: see_to() sees the state after it changed the token; this sees the token after it changed the state.
    helper_state_.store(Helper::kAsleep, std::memory_order_seq_cst);
    const std::uint64_t token = token_.load(std::memory_order_seq_cst);
    if ((token & kHeld) != 0 || token < kAsync) {
      helper_wake_.wait(lock, [&] { return helper_called_ || stopping_; });
    }
    helper_called_ = false;
    helper_state_.store(Helper::kStandBy, std::memory_order_seq_cst);
    lock.unlock();
    stand_by();
    lock.lock();
  }
}

// Until nothing has been outstanding for a while, or another thread drives all the time.
void Lane::stand_by() {
  Duration span = kShortestStandBy;
  int idle = 0;
  for (std::uint64_t seen = drives_.load(std::memory_order_relaxed);;) {
    {
      std::unique_lock lock(mutex_);
      if (helper_wake_.wait_for(lock, span, [&] { return stopping_.load(); })) return;
    }
    const std::uint64_t drives = drives_.load(std::memory_order_relaxed);
    const bool somebody_drove = std::exchange(seen, drives) != drives;
    const std::uint64_t token = token_.load(std::memory_order_relaxed);
    if (somebody_drove) {
      idle = 0;
      span = std::min(2 * span, kLongestStandBy);
    } else if ((token & kHeld) != 0) {
      return;
    } else if (token < kAsync) {
      if (++idle == kIdleLooks) return;
    } else {
      idle = 0;
      span = kShortestStandBy;
      drive_alone();
      seen = drives_.load(std::memory_order_relaxed);
    }
    if (stopping_) return;
  }
}

// Until nothing is outstanding, or another thread drives or would: one that starts something while this thread has the lane.
void Lane::drive_alone() {
  if (!try_take_quietly()) return;
  helped_.fetch_add(1, std::memory_order_relaxed);
  FramePool::Use frames(frames_);
  helping_.store(true, std::memory_order_release);
  begin_submitted();
  while (unfinished() > 0 && callers_.load(std::memory_order_acquire) == 0) {
    const bool any = drive_->look();
    if (submitted_.load(std::memory_order_relaxed) != nullptr) {
      begin_all();
      break;
    }
    Instant due = kNever;
    if (any || !drive_->listen(&due)) continue;
    listening_ = true;
    helper_state_.store(Helper::kListening, std::memory_order_seq_cst);
    helping_.store(false, std::memory_order_release);
    const std::uint64_t left = release();
    if (left % kAsync != 0) call_somebody();
    if (!stopping_) drive_->await_event(due);
    helper_state_.store(Helper::kStandBy, std::memory_order_seq_cst);
    if (stopping_ || !try_take_quietly()) return;
    if (!std::exchange(listening_, false)) {  // another thread drives now and then
      give_up();
      return;
    }
    drive_->listened();
    helping_.store(true, std::memory_order_release);
    begin_submitted();
  }
  helping_.store(false, std::memory_order_release);
  give_up();
}

}  // namespace aiacc
