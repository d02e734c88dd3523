// LeaveDeadline: the one time limit on a rank's leaving, shared by its steps: messages, connections, and rank 0 or the
// agent. It starts at once after an error; in an orderly shutdown, when all members leave, because waiting for them has
// no limit. Each step ends a little before the next one, so that a peer that does not answer in one step does not cost
// other peers their last messages.
#pragma once

#include <algorithm>

#include "base/task/loop.h"

namespace aiacc {

class LeaveDeadline {
 public:
  static constexpr Duration kLimit = std::chrono::seconds(1);  // for all steps together

  explicit LeaveDeadline(Loop& loop) noexcept : loop_(loop) {}

  void start() noexcept {
    if (end_ == kNever) end_ = after(loop_.now(), kLimit);
  }
  // The ends of the steps; valid after the start.
  Instant of_messages() const noexcept { return end_ - 2 * kLastWords; }
  Instant of_connections() const noexcept { return end_ - kLastWords; }
  Instant of_job() const noexcept { return end_; }

 private:
  static constexpr Duration kLastWords = std::chrono::milliseconds(100);

  Loop& loop_;
  Instant end_ = kNever;
};

}  // namespace aiacc
