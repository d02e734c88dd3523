// Which ends of ranks are failures, and which failure counts. Pure: fed with what happened, in the order of time.
//
//   spawned → connected (hello) → initialised (welcome) → finalized (gone) → exited
//                 ↑___________________________________________|     a second program of the same rank
//
//   a status other than 0, or a signal, in any state       the job ends
//   0 while connected or initialised                       the job ends with 1: it left without finalize
//   0 after fewer hellos than another rank has said        the job ends with 1: the others wait for it for ever
//   0 otherwise, also of ranks that never said hello       fine
//
// The first failure in time is the job's; of several that are told at once, the lowest rank's is told first. A rank that had
// lost another one when it failed is a consequence: its failure counts only if nothing else turns out to have failed, because
// over several hosts the news of a death may reach aiaccrun after that of its consequences.
// What ranks do after the launcher has begun to end the job never counts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/io/host.h"
#include "base/time.h"
#include "launcher/failure.h"

namespace aiacc::launcher {

enum class RankPhase : std::uint8_t { kSpawned, kConnected, kInitialised, kFinalized, kExited };

// How a rank's process ended, as its agent saw it.
struct RankEnd {
  io::ExitStatus status;
  bool by_memory = false;  // the kernel's counter of memory kills moved
  Duration after{};        // since the ranks were started
  int lost_peer = -1;      // whom it had lost before
};

struct RankFailure {
  int rank = 0;
  MessageId id = MessageId::kRankExit;
  int exit_code = 1;
  std::string what;  // "exited with status 3", "was killed by signal 9 (Killed)", …
  Duration after{};
  int lost_peer = -1;  // of a consequence
};

class ExitRules {
 public:
  explicit ExitRules(int ranks);

  // Each returns the failure that this event is, if it is the first one.
  std::optional<RankFailure> connected(int rank, Duration after);
  void initialised(int rank);
  void finalized(int rank);
  std::optional<RankFailure> exited(int rank, const RankEnd& end);
  // A consequence is known, and not of what.
  bool undecided() const noexcept { return consequence_ && !failure_ && counting_; }
  // Nobody has anything to tell that happened before the first consequence: it is the job's failure itself, and returned if
  // there is one.
  std::optional<RankFailure> decide();
  // Nothing more will be heard of it: its host is gone, or could not start it. No failure of the rank's own.
  void lost(int rank);

  // The launcher ends the job now: whatever ranks do from here on is its own doing.
  void stop_counting() noexcept { counting_ = false; }

  int running() const noexcept { return running_; }
  bool all_exited() const noexcept { return running_ == 0; }
  RankPhase phase(int rank) const noexcept { return ranks_[static_cast<std::size_t>(rank)].phase; }
  const std::optional<RankFailure>& first_failure() const noexcept { return failure_; }

 private:
  struct Rank {
    RankPhase phase = RankPhase::kSpawned;
    int hellos = 0;
  };
  std::optional<RankFailure> fail(RankFailure failure);
  std::optional<RankFailure> missing(int rank, int waiting, Duration after);

  std::vector<Rank> ranks_;
  int running_;
  int most_hellos_ = 0;
  int says_most_ = -1;  // the rank that said the most hellos first
  bool counting_ = true;
  std::optional<RankFailure> failure_;
  std::optional<RankFailure> consequence_;  // the first one
};

// "was killed by signal 9 (Killed)", "exited with status 3".
std::string describe_status(const io::ExitStatus& status);

// The closing line of a job that failed: "rank 7 on host c03 exited with status 3 after 12.4 s (first failure; 15 others
// stopped by aiaccrun)"; of a consequence also "(first failure; it had lost rank 2; …". `stopped` counts the ranks that were
// still running.
std::string closing_sentence(const RankFailure& failure, const std::string& host, int stopped);

}  // namespace aiacc::launcher
