// Lease: how long the other end of a channel may be silent. It counts heartbeats instead of time, so that a process
// that was itself stopped or starved does not mistake its own pause for the loss of its peer.
#pragma once

#include <algorithm>

#include "base/time.h"

namespace aiacc::launcher {

class Lease {
 public:
  explicit Lease(Duration span) noexcept
      : interval_(std::min<Duration>(span / 4, std::chrono::seconds(2))), span_(span) {}

  // A beat is sent, and tick() called, once an interval.
  Duration interval() const noexcept { return interval_; }
  void renew() noexcept { silent_ = Duration::zero(); }
  // An interval has passed. True when the lease is over.
  bool tick() noexcept {
    silent_ += interval_;
    return silent_ > span_;
  }

 private:
  Duration interval_;
  Duration span_;
  Duration silent_{};
};

}  // namespace aiacc::launcher
