#include "launcher/verdict.h"

#include <fmt/format.h>
#include <string.h>

namespace aiacc::launcher {

namespace {

// What became of the ranks, `with` being what is said of those that were running.
std::string ranks_text(const Verdict& verdict, const std::string& with) {
  if (!verdict.ranks_started) return "no rank had been started";
  if (verdict.stopped_ranks == 0) return "no rank was running any more";
  return fmt::format("{} rank{} {}", verdict.stopped_ranks, verdict.stopped_ranks == 1 ? "" : "s", with);
}

ClosingLine without_dropped(const Verdict& verdict) {
  const double took = seconds(verdict.took);
  const std::string stopped = fmt::format("{} after {:.1f} s", ranks_text(verdict, "stopped by aiaccrun"), took);
  switch (verdict.cause) {
    case Cause::kNone:
    case Cause::kReaderLeft: break;
    case Cause::kRank:
      return {verdict.failure->id, closing_sentence(*verdict.failure, verdict.failed_host, verdict.stopped_ranks)};
    case Cause::kTimeout:
      return {MessageId::kTimeout,
              fmt::format("the job did not end within {:g} s (--timeout); {}", seconds(verdict.timeout), stopped)};
    case Cause::kInterrupted:
      return {MessageId::kInterrupted,
              fmt::format("the job was ended by SIG{} after {:.1f} s; {}", ::sigabbrev_np(verdict.interrupted_by), took,
                          ranks_text(verdict, fmt::format("on {} ended with it", verdict.hosts)))};
    case Cause::kOutputFailed: return {MessageId::kOutputLost, fmt::format("{}; {}", verdict.sentence, stopped)};
    case Cause::kNotStarted: return {verdict.id, verdict.sentence};
    case Cause::kLost:
      return {verdict.id, fmt::format("{}; {} after {:.1f} s", verdict.sentence, ranks_text(verdict, "stopped"), took)};
  }
  return {MessageId::kInternal, ""};
}

// "3 strangers were turned away on h1", "12 strangers were turned away (10 on h1, 2 on h2)".
std::string strangers_text(const std::vector<std::pair<std::string, std::uint64_t>>& hosts) {
  constexpr std::size_t kMostNamed = 8;
  std::uint64_t all = 0;
  std::string each;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    all += hosts[i].second;
    if (i < kMostNamed) each += fmt::format("{}{} on {}", i == 0 ? "" : ", ", hosts[i].second, hosts[i].first);
  }
  if (hosts.size() > kMostNamed) each += fmt::format(" and more on {} hosts", hosts.size() - kMostNamed);
  const std::string turned = fmt::format("{} stranger{} turned away", all, all == 1 ? " was" : "s were");
  return hosts.size() == 1 ? fmt::format("{} on {}", turned, hosts[0].first) : fmt::format("{} ({})", turned, each);
}

}  // namespace

std::optional<ClosingLine> closing_line(const Verdict& verdict) {
  if (verdict.cause == Cause::kReaderLeft) return std::nullopt;
  ClosingLine line = without_dropped(verdict);
  if (verdict.dropped_bytes > 0) {
    if (line.sentence.empty()) line = {MessageId::kOutputLost, "all ranks have ended"};
    line.sentence += fmt::format("; {} bytes of output that nobody read were dropped", verdict.dropped_bytes);
  }
  if (!verdict.strangers.empty()) {
    if (line.sentence.empty()) line = {MessageId::kStrangers, "all ranks have ended"};
    line.sentence += "; " + strangers_text(verdict.strangers);
  }
  if (line.sentence.empty()) return std::nullopt;
  return line;
}

int exit_code(const Verdict& verdict) {
  switch (verdict.cause) {
    case Cause::kNone: return kExitOk;
    case Cause::kRank: return verdict.failure->exit_code;
    case Cause::kTimeout: return kExitTimeout;
    case Cause::kInterrupted: return 128 + verdict.interrupted_by;
    case Cause::kReaderLeft: return kExitReaderLeft;
    case Cause::kNotStarted: return verdict.exit_code;
    case Cause::kOutputFailed:
    case Cause::kLost: return kExitLauncher;
  }
  return kExitLauncher;
}

}  // namespace aiacc::launcher
