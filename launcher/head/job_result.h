// JobResult: how a job ended, as aiaccrun's exit code and closing line. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/time.h"
#include "launcher/agent/exit_rules.h"

namespace aiacc::launcher {

// Why the job ends: the first of these to happen.
enum class Cause : std::uint8_t {
  kNone,
  kRank,
  kTimeout,
  kInterrupted,
  kReaderLeft,
  kOutputFailed,
  kNotStarted,
  kTooFew,
  kLost
};

struct JobResult {
  Cause cause = Cause::kNone;
  bool ranks_started = true;
  int stopped_ranks = 0;  // running when the job began to end
  // For kOutputFailed, kNotStarted, kTooFew and kLost; kNotStarted has its own id and exit code too.
  std::string sentence;
  MessageId id = MessageId::kInternal;
  int exit_code = kExitLauncher;
  std::optional<RankFailure> failure;  // for kRank
  std::string failed_host;
  int interrupted_by = 0;  // the signal, for kInterrupted
  std::string hosts;       // "host a", "3 hosts"
  Duration timeout{};
  Duration took{};
  std::uint64_t dropped_bytes = 0;
  std::vector<std::pair<std::string, std::uint64_t>> unauthenticated;  // peers that were refused, by host
};

struct ClosingLine {
  MessageId id;
  std::string sentence;
};
std::optional<ClosingLine> closing_line(const JobResult& result);
int exit_code(const JobResult& result);

}  // namespace aiacc::launcher
