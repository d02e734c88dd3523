// The timers of a loop in order of time, then of arming. Arming and disarming cost O(log n).
#pragma once

#include <map>
#include <utility>

#include "base/task/loop.h"

namespace aiacc {

class TimerQueue {
 public:
  void add(Timer& timer, Instant when) {
    timer.key_ = next_key_++;
    timers_.emplace(std::pair(when, timer.key_), &timer);
  }
  void remove(Timer& timer) noexcept { timers_.erase(std::pair(timer.when_, timer.key_)); }

  Instant next() const noexcept { return timers_.empty() ? kNever : timers_.begin()->first.first; }

  // Disarms and returns the first timer that is due at `now`; null if there is none.
  Timer* pop_due(Instant now) noexcept {
    if (timers_.empty() || timers_.begin()->first.first > now) return nullptr;
    Timer* timer = timers_.begin()->second;
    timers_.erase(timers_.begin());
    timer->loop_ = nullptr;
    return timer;
  }

 private:
  std::map<std::pair<Instant, std::uint64_t>, Timer*> timers_;
  std::uint64_t next_key_ = 0;
};

}  // namespace aiacc
