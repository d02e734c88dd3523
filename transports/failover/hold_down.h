// HoldDown: when a path that has broken may be tried again. The time doubles with each break and each trial that fails, and is the first
// one again after the path has worked for as long as the longest.
#pragma once

#include <algorithm>
#include <optional>

#include "base/time.h"

namespace aiacc::failover {

class HoldDown {
 public:
  static constexpr int kLongest = 64;  // times the first

  explicit HoldDown(Duration first) noexcept : first_(first), next_(first) {}

  void works(Instant now) noexcept { works_since_ = now; }
  // Returns when to try it.
  Instant broke(Instant now) noexcept {
    if (works_since_ && now - *works_since_ >= kLongest * first_) next_ = first_;
    works_since_.reset();
    const Duration wait = next_;
    next_ = std::min(2 * next_, kLongest * first_);
    return after(now, wait);
  }

 private:
  const Duration first_;
  Duration next_;
  std::optional<Instant> works_since_;
};

}  // namespace aiacc::failover
