#include "launcher/head/job_result.h"

#include <fmt/format.h>
#include <string.h>

namespace aiacc::launcher {

namespace {

// What happened to the ranks; `with` is the text about those that were running.
std::string ranks_text(const JobResult& result, const std::string& with) {
  if (!result.ranks_started) return "no rank had been started";
  if (result.stopped_ranks == 0) return "no rank was running any more";
  return fmt::format("{} rank{} {}", result.stopped_ranks, result.stopped_ranks == 1 ? "" : "s", with);
}

ClosingLine without_dropped(const JobResult& result) {
  const double took = seconds(result.took);
  const std::string stopped = fmt::format("{} after {:.1f} s", ranks_text(result, "stopped by aiaccrun"), took);
  switch (result.cause) {
    case Cause::kNone:
    case Cause::kReaderLeft: break;
    case Cause::kRank:
      return {result.failure->id, closing_sentence(*result.failure, result.failed_host, result.stopped_ranks)};
    case Cause::kTimeout:
      return {MessageId::kTimeout,
              fmt::format("the job did not end within {:g} s (--timeout); {}", seconds(result.timeout), stopped)};
    case Cause::kInterrupted:
      return {MessageId::kInterrupted,
              fmt::format("the job was ended by SIG{} after {:.1f} s; {}", ::sigabbrev_np(result.interrupted_by), took,
                          ranks_text(result, fmt::format("on {} ended with it", result.hosts)))};
    case Cause::kOutputFailed: return {MessageId::kOutputLost, fmt::format("{}; {}", result.sentence, stopped)};
    case Cause::kNotStarted: return {result.id, result.sentence};
    case Cause::kTooFew: return {MessageId::kElastic, fmt::format("{}; {}", result.sentence, stopped)};
    case Cause::kLost:
      return {result.id, fmt::format("{}; {} after {:.1f} s", result.sentence, ranks_text(result, "stopped"), took)};
  }
  return {MessageId::kInternal, ""};
}

// "3 unauthenticated peers were turned away on h1", "12 unauthenticated peers were turned away (10 on h1, 2 on h2)".
std::string unauthenticated_text(const std::vector<std::pair<std::string, std::uint64_t>>& hosts) {
  constexpr std::size_t kMostNamed = 8;
  std::uint64_t all = 0;
  std::string each;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    all += hosts[i].second;
    if (i < kMostNamed) each += fmt::format("{}{} on {}", i == 0 ? "" : ", ", hosts[i].second, hosts[i].first);
  }
  if (hosts.size() > kMostNamed) each += fmt::format(" and more on {} hosts", hosts.size() - kMostNamed);
  const std::string turned = fmt::format("{} unauthenticated peer{} turned away", all, all == 1 ? " was" : "s were");
  return hosts.size() == 1 ? fmt::format("{} on {}", turned, hosts[0].first) : fmt::format("{} ({})", turned, each);
}

}  // namespace

std::optional<ClosingLine> closing_line(const JobResult& result) {
  if (result.cause == Cause::kReaderLeft) return std::nullopt;
  ClosingLine line = without_dropped(result);
  if (result.dropped_bytes > 0) {
    if (line.sentence.empty()) line = {MessageId::kOutputLost, "all ranks have ended"};
    line.sentence += fmt::format("; {} bytes of output that nobody read were dropped", result.dropped_bytes);
  }
  if (!result.unauthenticated.empty()) {
    if (line.sentence.empty()) line = {MessageId::kStrangers, "all ranks have ended"};
    line.sentence += "; " + unauthenticated_text(result.unauthenticated);
  }
  if (line.sentence.empty()) return std::nullopt;
  return line;
}

int exit_code(const JobResult& result) {
  switch (result.cause) {
    case Cause::kNone: return kExitOk;
    case Cause::kRank: return result.failure->exit_code;
    case Cause::kTimeout:
    case Cause::kTooFew: return kExitTimeout;
    case Cause::kInterrupted: return 128 + result.interrupted_by;
    case Cause::kReaderLeft: return kExitReaderLeft;
    case Cause::kNotStarted: return result.exit_code;
    case Cause::kOutputFailed:
    case Cause::kLost: return kExitLauncher;
  }
  return kExitLauncher;
}

}  // namespace aiacc::launcher
