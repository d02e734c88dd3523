#include "launcher/head/escalation.h"

#include <fmt/format.h>
#include <string.h>

#include <algorithm>
#include <csignal>

namespace aiacc::launcher {

namespace {

std::string signal_name(int number) { return fmt::format("SIG{}", ::sigabbrev_np(number)); }

}  // namespace

Escalation::Step Escalation::user_signal(int number, int ranks) {
  if (level_ == Level::kRunning) {
    level_ = Level::kAsked;
    interrupted_by_ = number;
    return {
        {number, SIGCONT},
        grace_,
        fmt::format("{} received and forwarded to {} rank{}; SIGKILL follows in {:g} s (press Ctrl-C for SIGTERM now)",
                    signal_name(number), ranks, ranks == 1 ? "" : "s", seconds(grace_))};
  }
  if (number != SIGINT) return {{number, SIGCONT}, Duration::max(), {}};
  if (level_ == Level::kAsked) {
    level_ = Level::kTerminated;
    return {{SIGTERM, SIGCONT},
            std::min(kShortGrace, grace_),
            fmt::format("SIGTERM sent to {} rank{}; SIGKILL follows in {:g} s (press Ctrl-C for SIGKILL now)", ranks,
                        ranks == 1 ? "" : "s", seconds(std::min(kShortGrace, grace_)))};
  }
  if (level_ == Level::kKilled) return {};
  level_ = Level::kKilled;
  return {{}, Duration::zero(), fmt::format("SIGKILL sent to {} rank{}", ranks, ranks == 1 ? "" : "s")};
}

Escalation::Step Escalation::end_job() {
  if (level_ != Level::kRunning) return {};
  level_ = Level::kAsked;
  return {{SIGTERM, SIGCONT}, grace_, {}};
}

Escalation::Step Escalation::lost() {
  if (level_ == Level::kKilled) return {};
  level_ = Level::kTerminated;
  return {{SIGTERM, SIGCONT}, kShortGrace, {}};
}

Duration Escalation::flush_grace() const noexcept {
  switch (level_) {
    case Level::kRunning:
    case Level::kAsked: return grace_;
    case Level::kTerminated: return std::min(kShortGrace, grace_);
    case Level::kKilled: break;
  }
  return Duration::zero();
}

}  // namespace aiacc::launcher
