#include "base/sim/sim_loop.h"

namespace aiacc::sim {

void SimLoop::post(Job& job) noexcept {
  jobs_.push_back(job);
  if (!turn_.scheduled()) world_.schedule(turn_, world_.now(), node_);
}

void SimLoop::run_one_job() noexcept {
  // Schedules the remaining jobs first: this job may destroy the loop's last user, and others may run in between.
  Job* job = jobs_.pop_front();
  if (!jobs_.empty()) world_.schedule(turn_, world_.now(), node_);
  if (job != nullptr) job->run();
}

void SimLoop::run_one_timer() noexcept {
  Timer* timer = timers_.pop_due(world_.now());
  set_alarm();
  if (timer != nullptr) timer->expired();
}

void SimLoop::do_arm(Timer& timer) {
  timers_.add(timer, when(timer));
  set_alarm();
}

void SimLoop::do_disarm(Timer& timer) noexcept {
  timers_.remove(timer);
  set_alarm();
}

void SimLoop::set_alarm() noexcept {
  const Instant next = timers_.next();
  if (next == kNever) {
    alarm_.cancel();
  } else if (!alarm_.scheduled() || alarm_.when() != next) {
    world_.schedule(alarm_, next, node_);
  }
}

void SimLoop::bury() noexcept {
  for (;;) {
    if (Job* job = jobs_.pop_front()) {
      job->run();
    } else if (const Instant next = timers_.next(); Timer* timer = timers_.pop_due(kNever)) {
      buried_at_ = next;  // what it arms again comes behind the others
      timer->expired();
    } else {
      break;
    }
  }
  turn_.cancel();
  alarm_.cancel();
}

void SimEntropy::fill(std::span<std::byte> bytes) {
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i % 8 == 0) word = random_.next();
    bytes[i] = static_cast<std::byte>(word >> (i % 8 * 8));
  }
}

}  // namespace aiacc::sim
