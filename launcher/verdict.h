// How a job ended, in aiaccrun's exit code and closing line. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/time.h"
#include "launcher/exit_rules.h"

namespace aiacc::launcher {

// Why the job ends: the first of these in time.
enum class Cause : std::uint8_t {
  kNone,
  kRank,
  kTimeout,
  kInterrupted,
  kReaderLeft,
  kOutputFailed,
  kNotStarted,
  kLost
};

struct Verdict {
  Cause cause = Cause::kNone;
  bool ranks_started = true;
  int stopped_ranks = 0;  // running when the job began to end
  // Of kOutputFailed, kNotStarted and kLost; with kNotStarted also its own id and exit code.
  std::string sentence;
  MessageId id = MessageId::kInternal;
  int exit_code = kExitLauncher;
  std::optional<RankFailure> failure;  // of kRank
  std::string failed_host;
  int interrupted_by = 0;  // the signal, of kInterrupted
  std::string hosts;       // "host a", "3 hosts"
  Duration timeout{};
  Duration took{};
  std::uint64_t dropped_bytes = 0;
  std::vector<std::pair<std::string, std::uint64_t>> strangers;  // that were turned away, by host
};

struct ClosingLine {
  MessageId id;
  std::string sentence;
};
std::optional<ClosingLine> closing_line(const Verdict& verdict);
int exit_code(const Verdict& verdict);

}  // namespace aiacc::launcher
