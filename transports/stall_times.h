// StallTimes: when an operation over messages runs the straggler diagnosis, so that the timeout's error names the
// straggler and not merely the rank that it waits for directly.
#pragma once

#include <algorithm>

#include "base/time.h"

namespace aiacc {

// When to ask: 250 ms after the beginning, then after twice as long each time, and once more shortly before the deadline.
class StallTimes {
 public:
  static constexpr Duration kFirstLook = std::chrono::milliseconds(250);
  static constexpr Duration kLastLook = std::chrono::seconds(1);  // before the deadline

  StallTimes(Instant began, Instant deadline) noexcept : began_(began), deadline_(deadline) {}

  // When to ask for the last time.
  static Instant last_look(Instant began, Instant deadline) noexcept {
    return deadline == kNever ? kNever : deadline - std::min(kLastLook, (deadline - began) / 2);
  }
  // The next time after `now`; the deadline when there is nothing to ask before.
  Instant next(Instant now) noexcept;

 private:
  Instant began_;
  Instant deadline_;
  Duration interval_ = kFirstLook;
};

}  // namespace aiacc
