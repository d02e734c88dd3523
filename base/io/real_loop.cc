#include "base/io/real_loop.h"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <iterator>
#include <limits>

#include "base/cpu_relax.h"
#include "base/io/limits.h"
#include "base/io/real_clock.h"

namespace aiacc::io {
namespace {

constexpr int kNetworkSpins = 8;  // a spin for what other hosts send is so many times as long

timespec timespec_of(Duration span) noexcept {
  const auto ns = std::max<std::int64_t>(span.count(), 0);
  return {static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
}

int milliseconds_up(Duration span) noexcept {
  const auto ms = (std::max<std::int64_t>(span.count(), 0) + 999'999) / 1'000'000;
  return static_cast<int>(std::min<std::int64_t>(ms, std::numeric_limits<int>::max()));
}

}  // namespace

void Watch::unwatch() noexcept {
  if (loop_ != nullptr) loop_->unwatch(*this);
}

RealLoop::RealLoop()
    : epoll_(checked_descriptor(epoll_create1(EPOLL_CLOEXEC), "cannot make an epoll descriptor")),
      bell_(checked_descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "cannot make an eventfd")),
      interrupt_(checked_descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "cannot make an eventfd")) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  event.data.ptr = nullptr;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, bell_.get(), &event) != 0) {
    throw system_error("cannot watch the loop's own eventfd", errno);
  }
}

RealLoop::~RealLoop() = default;

Instant RealLoop::now() noexcept { return RealClock().now(); }
Instant RealLoop::about_now() noexcept { return RealClock().about_now(); }

void RealLoop::wake() noexcept {
  if (wake_.exchange(true, std::memory_order_seq_cst)) return;
  if (!blocked_.load(std::memory_order_seq_cst)) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(bell_.get(), &one, sizeof one);  // full only after 2^64 - 2 wakes
}

void RealLoop::begin_turn() noexcept {
  in_place_left_ = kInPlacePerTurn;
  ++turns_without_clock_;
  ++turns_without_kernel_;
}

bool RealLoop::look_and_wait(Instant until) {
  const bool may_block = until != Instant{};
  begin_turn();
  bool worked = take_wake();
  worked |= run_jobs();
  if (!worked || turns_without_clock_ >= kTurnsPerClockRead) worked |= run_timers();
  worked |= poll_flags();
  if (turns_without_kernel_ >= kTurnsPerKernelLook || !(worked || may_block)) worked |= look_at_kernel();
  if (!worked && may_block) {
    const Instant due = std::min(until, timers_.next());
    if (!wait_awake(due)) block(due);
    worked = true;
  }
  // What came may end what the caller waits for, who then needs no further look at flags, which may be a system call each.
  if (worked && !pollers_.empty()) run_jobs();
  return worked;
}

bool RealLoop::stay_awake() noexcept {
  begin_turn();
  if (run_jobs()) return true;
  if (wake_.load(std::memory_order_relaxed) || !wait_awake(timers_.next())) return false;
  run_jobs();
  return true;
}

// The kernel is asked for answers alone, as a rule, and timers are left to the full looks.
bool RealLoop::glance() {
  if (++glances_ % kGlancesPerLook == 0) return look();
  begin_turn();
  bool worked = take_wake();
  worked |= run_jobs();
  worked |= poll_flags();
  if (!worked && answering_ > 0) worked = look_for_answers();
  if (worked) run_jobs();
  return worked;
}

// --- awaiting events without driving ----------------------------------------------------------------------------------

// Like block(): wake() rings the bell from here to listened().
bool RealLoop::listen(Instant* due) {
  *due = timers_.next();
  blocked_.store(true, std::memory_order_seq_cst);
  if (!jobs_.empty() || wake_.load(std::memory_order_seq_cst)) {
    blocked_.store(false, std::memory_order_relaxed);
    return false;
  }
  if (arm_guards()) return true;
  listened();
  return false;
}

void RealLoop::listened() noexcept {
  guards_.for_each([](BlockGuard& guard) { guard.woke(); });
  blocked_.store(false, std::memory_order_relaxed);
}

// Takes no events: the driver collects them, whoever that is by then.
void RealLoop::await_event(Instant due) noexcept {
  pollfd wanted[] = {{epoll_.get(), POLLIN, 0}, {interrupt_.get(), POLLIN, 0}};
  const timespec limit = timespec_of(due == kNever ? Duration::zero() : due - now());
  if (ppoll(wanted, std::size(wanted), due == kNever ? nullptr : &limit, nullptr) <= 0) return;
  std::uint64_t count = 0;
  if ((wanted[1].revents & POLLIN) != 0) [[maybe_unused]]
    const ssize_t taken = ::read(interrupt_.get(), &count, sizeof count);
}

void RealLoop::interrupt() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(interrupt_.get(), &one, sizeof one);
}

bool RealLoop::take_wake() noexcept {
  if (!wake_.load(std::memory_order_relaxed)) return false;
  wake_.exchange(false, std::memory_order_seq_cst);
  run_remote_jobs();
  hooks_.for_each([](WakeHook& hook) { hook.woken(); });
  return true;
}

bool RealLoop::run_jobs() noexcept {
  int ran = 0;
  for (; ran < kJobsPerTurn; ++ran) {
    Job* job = jobs_.pop_front();
    if (job == nullptr) break;
    job->run();
  }
  return ran > 0;
}

bool RealLoop::run_timers() noexcept {
  turns_without_clock_ = 0;
  if (timers_.next() == kNever) return false;
  const Instant present = now();
  bool any = false;
  while (Timer* timer = timers_.pop_due(present)) {
    timer->expired();
    any = true;
  }
  return any;
}

bool RealLoop::poll_flags() noexcept {
  bool any = false;
  pollers_.for_each([&any](Poller& poller) { any |= poller.look_at_flags(); });
  return any;
}

Duration RealLoop::spin_time() noexcept {
  bool flags = false;
  pollers_.for_each([&flags](const Poller& poller) { flags |= !poller.looks_at_network(); });
  return flags ? spin_policy_.spin : kNetworkSpins * spin_policy_.spin;
}

// If ranks outnumber cores, the awaited peer may need this core, and spinning delays it: a barrier of 4 ranks on 2 busy
// cores took 24-44 us without spinning, 28-56 us with 2 us of it, 61-98 us with 5 us. So a loop whose spins fail spins
// less and less often, and one whose spins succeed always spins.
bool RealLoop::spin(Instant began, Instant due) noexcept {
  constexpr int kPollsPerClockRead = 16;
  const Instant give_up = after(began, spin_time());
  for (Instant present = began; present < give_up; present = now()) {
    for (int i = 0; i < kPollsPerClockRead; ++i) {
      if (poll_flags()) return true;
      cpu_relax();
    }
    if (wake_.load(std::memory_order_relaxed) || present >= due) return true;
  }
  return false;
}

// One or two streams are read directly: an answer then costs one system call, not two.
bool RealLoop::look_for_answers() noexcept {
  constexpr int kReadAtOnce = 2;
  if (answering_ > kReadAtOnce) return look_at_kernel();
  bool came = false;
  answerers_.for_each([&came](Answerer& stream) { came |= stream.look_for_answer(); });
  return came;
}

// Polls without yielding the core, because another process may keep it for milliseconds after a yield. It lasts several
// spins, because a message between hosts takes that much longer than one on a host.
bool RealLoop::poll_without_yield() noexcept {
  constexpr int kLooksPerClockRead = 8;
  if (look_for_answers()) return true;  // usually the answer is there already, and reading the clock is saved
  if (spin_policy_.spin <= Duration(0) || !busy_polls_.worthwhile()) return false;
  const Instant give_up = after(now(), kNetworkSpins * spin_policy_.spin);
  do {
    for (int i = 0; i < kLooksPerClockRead; ++i) {
      if (look_for_answers()) {
        busy_polls_.record(true);
        return true;
      }
      if (wake_.load(std::memory_order_relaxed)) return true;
    }
  } while (now() < give_up);
  busy_polls_.record(false);
  return false;
}

// Spins, then yields. True if something happened, false if it is time to block. Polls the kernel for streams: an
// allreduce of 8 B between two hosts on one machine (veth) took 17 us with loops that blocked, and 7 us with polling;
// between four hosts on two cores 42 us and 27 us (bench/hosts).
bool RealLoop::wait_awake(Instant due) noexcept {
  constexpr int kYieldsPerKernelLook = 16;
  const bool looks = answering_ > 0 && kernel_polls_.worthwhile();
  if (pollers_.empty() && !looks) return false;
  if (looks && pollers_.empty() && poll_without_yield()) {
    kernel_polls_.record(true);
    return true;
  }

  const Instant began = now();
  if (!pollers_.empty() && flag_polls_.worthwhile()) {
    const bool happened = spin(began, due);
    flag_polls_.record(happened);
    if (happened) return true;
  }
  if (spin_policy_.yield <= Duration(0)) return false;
  const Duration spins = pollers_.empty() ? spin_policy_.spin : spin_time();
  const Instant give_up = after(began, spins + spin_policy_.yield);
  for (int yields = 1;; ++yields) {
    if (looks && look_for_answers()) {
      kernel_polls_.record(true);
      return true;
    }
    sched_yield();
    if (poll_flags() || wake_.load(std::memory_order_relaxed)) return true;
    const Instant present = now();
    if (present >= due) return true;
    if (yields % kYieldsPerKernelLook == 0 && look_at_kernel()) return true;
    if (present >= give_up && yields >= spin_policy_.min_yields) {
      if (looks) kernel_polls_.record(false);
      return false;
    }
  }
}

void RealLoop::block(Instant due) noexcept {
  int events = 0;
  blocked_.store(true, std::memory_order_seq_cst);
  if (!wake_.load(std::memory_order_seq_cst)) {
    if (arm_guards()) {
      ++blocked_count_;
      events = collect(due);
    }
    guards_.for_each([](BlockGuard& guard) { guard.woke(); });
  }
  blocked_.store(false, std::memory_order_relaxed);
  dispatch(events);
}

// Calls all guards, also after one has returned false, because woke() is called for every one.
bool RealLoop::arm_guards() noexcept {
  bool may_block = true;
  guards_.for_each([&may_block](BlockGuard& guard) { may_block &= guard.about_to_block(); });
  return may_block;
}

bool RealLoop::look_at_kernel() noexcept {
  turns_without_kernel_ = 0;
  return dispatch(collect(Instant{}));
}

// Waits for events until `until`; does not wait if that is past. An interrupted wait returns no events.
int RealLoop::collect(Instant until) noexcept {
  const bool forever = until == kNever;
  const Duration span = forever || until == Instant{} ? Duration::zero() : until - now();
  if (has_pwait2_) {
    const timespec limit = timespec_of(span);
    const int events = epoll_pwait2(epoll_.get(), batch_.data(), kBatch, forever ? nullptr : &limit, nullptr);
    if (events >= 0) return events;
    if (errno != ENOSYS && errno != EPERM) return 0;
    has_pwait2_ = false;  // before Linux 5.11, or behind a seccomp filter: timers then have a resolution of 1 ms
  }
  return std::max(epoll_wait(epoll_.get(), batch_.data(), kBatch, forever ? -1 : milliseconds_up(span)), 0);
}

bool RealLoop::dispatch(int events) noexcept {
  constexpr std::uint32_t kBroken = EPOLLERR | EPOLLHUP;
  batch_size_ = events;
  for (batch_next_ = 0; batch_next_ < batch_size_;) {
    const epoll_event event = batch_[static_cast<std::size_t>(batch_next_++)];
    if (event.data.ptr == nullptr) continue;  // the bell, or a watch that was removed meanwhile
    const bool broken = (event.events & kBroken) != 0;
    const bool ended = broken || (event.events & EPOLLRDHUP) != 0;
    const bool readable = (event.events & (EPOLLIN | EPOLLPRI)) != 0;
    static_cast<Watch*>(event.data.ptr)->ready({readable || ended, (event.events & EPOLLOUT) != 0 || broken, ended});
  }
  batch_size_ = 0;
  return events > 0;
}

bool RealLoop::watch_edges(Watch& target, int descriptor, bool read, bool write) {
  return watch(target, descriptor, EPOLLET | (read ? EPOLLIN | EPOLLRDHUP : 0u) | (write ? EPOLLOUT : 0u));
}

bool RealLoop::watch_once(Watch& target, int descriptor, bool read, bool write) {
  return watch(target, descriptor, EPOLLONESHOT | (read ? EPOLLIN | EPOLLRDHUP : 0u) | (write ? EPOLLOUT : 0u));
}

bool RealLoop::watch(Watch& target, int descriptor, std::uint32_t events) {
  target.unwatch();
  epoll_event event{};
  event.events = events;
  event.data.ptr = &target;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0) {
    if (errno == EPERM) return false;
    throw system_error(fmt::format("cannot watch descriptor {}", descriptor), errno);
  }
  target.loop_ = this;
  target.descriptor_ = descriptor;
  target.events_ = events;
  return true;
}

void RealLoop::rearm(Watch& target) {
  epoll_event event{};
  event.events = target.events_;
  event.data.ptr = &target;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, target.descriptor_, &event) != 0) {
    throw system_error(fmt::format("cannot watch descriptor {} again", target.descriptor_), errno);
  }
}

void RealLoop::unwatch(Watch& target) noexcept {
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, target.descriptor_, nullptr);
  for (int i = batch_next_; i < batch_size_; ++i) {
    epoll_event& event = batch_[static_cast<std::size_t>(i)];
    if (event.data.ptr == &target) event.data.ptr = nullptr;
  }
  target.loop_ = nullptr;
  target.descriptor_ = -1;
}

}  // namespace aiacc::io
