#include "transports/stall_times.h"

#include <algorithm>

namespace aiacc {

Instant StallTimes::next(Instant now) noexcept {
  Instant next = std::min(after(now, interval_), deadline_);
  if (deadline_ != kNever) {
    const Instant last = last_look(began_, deadline_);
    next = now < last ? std::min(next, last) : deadline_;
  }
  interval_ *= 2;
  return next;
}

}  // namespace aiacc
