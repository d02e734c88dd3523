#include "launcher/agent/exit_rules.h"

#include <fmt/format.h>
#include <string.h>

#include <algorithm>
#include <utility>

namespace aiacc::launcher {

std::string describe_status(const io::ExitStatus& status) {
  if (status.signal == 0) return fmt::format("exited with status {}", status.code);
  const char* name = ::sigdescr_np(status.signal);
  return name == nullptr ? fmt::format("was killed by signal {}", status.signal)
                         : fmt::format("was killed by signal {} ({})", status.signal, name);
}

std::string closing_sentence(const RankFailure& failure, const std::string& host, int stopped) {
  std::string others = stopped == 0   ? std::string("no other rank was running")
                       : stopped == 1 ? std::string("1 other stopped by aiaccrun")
                                      : fmt::format("{} others stopped by aiaccrun", stopped);
  const std::string lost = failure.lost_peer < 0 ? "" : fmt::format("it had lost rank {}; ", failure.lost_peer);
  const std::string path = failure.lost_path.empty() ? "" : failure.lost_path + "; ";
  return fmt::format("{}rank {} on host {} {} after {:.1f} s (first failure; {}{})", path, failure.rank, host,
                     failure.what, seconds(failure.after), lost, others);
}

ExitRules::ExitRules(int ranks, int least, bool elastic)
    : ranks_(static_cast<std::size_t>(ranks)), running_(ranks), elastic_(elastic), spare_(ranks - least) {}

std::optional<RankFailure> ExitRules::fail(RankFailure failure) {
  if (!counting_ || failure_) return std::nullopt;
  if (joining(failure.rank)) {
    survived_ = std::move(failure);  // it is counted already
    return std::nullopt;
  }
  if (!cause_ && !consequence_) whole_ = not_failed();
  std::optional<RankFailure>& first = failure.lost_peer >= 0 ? consequence_ : cause_;
  if (!first) first = failure;
  if (++failed_ <= spare_ && !survives_no_more_) {
    survived_ = std::move(failure);
    return std::nullopt;
  }
  over_ = true;
  failure_ = cause_;
  return failure_;
}

std::optional<RankFailure> ExitRules::decide() {
  if (!undecided()) return std::nullopt;
  failure_ = consequence_;
  return failure_;
}

std::optional<RankFailure> ExitRules::missing(int rank, int waiting, Duration after) {
  const char* what = ranks_[static_cast<std::size_t>(rank)].hellos == 0
                         ? "exited with status 0 and never initialised, while rank {} did,"
                         : "exited with status 0, while rank {} initialises once more and waits for it,";
  failed_ = std::max(failed_, spare_);
  return fail({rank, MessageId::kRankState, kExitWrongState, fmt::format(fmt::runtime(what), waiting), after, -1, {}});
}

std::optional<RankFailure> ExitRules::connected(int rank, Duration after) {
  Rank& self = ranks_[static_cast<std::size_t>(rank)];
  // A process that has not been initialised may be followed by another one of its rank.
  if (std::exchange(self.phase, RankPhase::kConnected) == RankPhase::kConnected) return std::nullopt;
  // A rank that was in no world yet does not say with its hello that there must be another one: the others may be about to finish.
  if (self.dismissed || self.joining) return std::nullopt;
  if (++self.hellos <= most_hellos_) return std::nullopt;
  most_hellos_ = self.hellos;
  rank_with_most_hellos_ = rank;
  for (int other = 0; other < static_cast<int>(ranks_.size()); ++other) {
    const Rank& one = ranks_[static_cast<std::size_t>(other)];
    if (one.phase == RankPhase::kExited && !one.left_out && !one.joining && !finished(one))
      return missing(other, rank, after);
  }
  return std::nullopt;
}

void ExitRules::initialised(int rank, int world) {
  Rank& self = ranks_[static_cast<std::size_t>(rank)];
  self.phase = RankPhase::kInitialised;
  self.hellos = std::max(self.hellos, world);
  if (self.hellos > most_hellos_) {
    most_hellos_ = self.hellos;
    rank_with_most_hellos_ = rank;
  }
  if (!std::exchange(self.joining, false)) return;
  --failed_;
  if (!over_ && not_failed() >= whole_) cause_ = consequence_ = std::nullopt;  // what happened so far is repaired
}

void ExitRules::replaced(int rank) {
  ranks_[static_cast<std::size_t>(rank)] = {RankPhase::kSpawned, 0, true, false, false};
  ++running_;
}

int ExitRules::add() {
  ranks_.push_back({RankPhase::kSpawned, 0, true, false, false});
  ++running_;
  ++failed_;
  ++spare_;
  return static_cast<int>(ranks_.size()) - 1;
}

void ExitRules::dismiss(int rank) {
  Rank& self = ranks_[static_cast<std::size_t>(rank)];
  if (std::exchange(self.dismissed, true)) return;
  self.left_out = true;
  if (std::exchange(self.joining, false)) return;
  ++failed_;
  if (cause_ || consequence_) --whole_;
}

void ExitRules::finalized(int rank) { ranks_[static_cast<std::size_t>(rank)].phase = RankPhase::kFinalized; }

void ExitRules::lost(int rank) {
  Rank& self = ranks_[static_cast<std::size_t>(rank)];
  if (std::exchange(self.phase, RankPhase::kExited) != RankPhase::kExited) --running_;
}

bool ExitRules::survive_losing(const std::vector<int>& ranks) {
  const int failing = static_cast<int>(std::count_if(ranks.begin(), ranks.end(), [this](int rank) {
    return phase(rank) != RankPhase::kExited && !joining(rank) && !dismissed(rank);
  }));
  if (!counting_ || failure_ || survives_no_more_ || failed_ + failing > spare_) return false;
  failed_ += failing;
  for (const int rank : ranks) lost(rank);
  return true;
}

std::optional<RankFailure> ExitRules::exited(int rank, const RankEnd& end) {
  Rank& self = ranks_[static_cast<std::size_t>(rank)];
  if (self.phase == RankPhase::kExited) return std::nullopt;
  const RankPhase phase = std::exchange(self.phase, RankPhase::kExited);
  --running_;
  if (self.dismissed) return std::nullopt;

  if (!end.status.ok()) {
    MessageId id = end.status.signal == 0 ? MessageId::kRankExit : MessageId::kRankSignal;
    std::string what = describe_status(end.status);
    if (end.by_memory) {
      id = MessageId::kRankMemory;
      what = "was killed by the kernel because its memory limit was reached";
    } else if (!end.lost_path.empty()) {
      id = MessageId::kPathLost;
    }
    return fail({rank, id, end.status.shell_code(), std::move(what), end.after, end.lost_peer, end.lost_path});
  }
  if (phase == RankPhase::kInitialised) {
    return fail({rank, MessageId::kRankState, kExitWrongState, "exited with status 0 without finalize", end.after,
                 end.lost_peer, end.lost_path});
  }
  if (phase == RankPhase::kConnected) {
    return fail({rank, MessageId::kRankState, kExitWrongState, "exited with status 0 while it was joining the job",
                 end.after, end.lost_peer, end.lost_path});
  }
  if (left_early(rank)) {
    return fail({rank, MessageId::kRankState, kExitWrongState, "exited with status 0 before it had initialised",
                 end.after, end.lost_peer, end.lost_path});
  }
  if (self.hellos < most_hellos_ && !finished(self)) return missing(rank, rank_with_most_hellos_, end.after);
  return std::nullopt;
}

}  // namespace aiacc::launcher
