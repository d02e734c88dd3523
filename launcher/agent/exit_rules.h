// ExitRules: decides which exits of ranks are failures, and which failure is the job's. Pure: the input is the events
// in order of time.
//
//   spawned → connected (hello) → initialised (welcome) → finalized (gone) → exited
//                 ↑___________________________________________|     a second program of the same rank
//
//   a status other than 0, or a signal, in any state       the job ends
//   0 while connected or initialised                       the job ends with 1: it left without finalize
//   0 after fewer hellos than another rank has said        the job ends with 1: the others would wait forever
//   0 otherwise, also of ranks that never said hello       fine
//
// The first failure in time is the job's; among several reported at once, the lowest rank's comes first. If a rank had
// already lost a peer when it failed, its failure is a consequence: it counts only if no other failure is found,
// because with several hosts the report of a death may reach aiaccrun after those of its consequences. Exits after the
// launcher has begun to end the job never count.
//
// With --min-np N the job survives failures as long as N ranks have not failed. The one that leaves fewer ends it, and the
// first failure in time is the job's then, too. A rank that others wait for in aiacc_init ends it in any case.
//
// In an elastic job (--max-np) a failed rank may be replaced, or left out of the next world; then nobody waits for it. A
// replacement counts as failed until it is initialised, and its own failure before that counts nothing: a program that
// always fails ends the job as soon as fewer than N ranks have been initialised and live. The same is true of ranks that are
// added to the job. Once there are as many ranks again as before the first failure, whatever their numbers, it is repaired: the
// first failure after that is the job's. Nobody waits for a rank that has finished: who asks for a further world is refused, and
// what that rank does then decides.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/io/host.h"
#include "base/time.h"
#include "launcher/cli/failure.h"

namespace aiacc::launcher {

enum class RankPhase : std::uint8_t { kSpawned, kConnected, kInitialised, kFinalized, kExited };

// How a rank's process ended, as its agent saw it.
struct RankEnd {
  io::ExitStatus status;
  bool by_memory = false;   // the kernel's counter of memory kills has increased
  Duration after{};         // since the ranks were started
  int lost_peer = -1;       // the rank that it had lost before
  std::string lost_path{};  // its report of a broken path
};

struct RankFailure {
  int rank = 0;
  MessageId id = MessageId::kRankExit;
  int exit_code = 1;
  std::string what;  // "exited with status 3", "was killed by signal 9 (Killed)", …
  Duration after{};
  int lost_peer = -1;       // of a consequence
  std::string lost_path{};  // for a failure caused by the network
};

class ExitRules {
 public:
  // `least`: as many ranks as must not fail. `elastic`: see above.
  ExitRules(int ranks, int least, bool elastic = false);
  explicit ExitRules(int ranks) : ExitRules(ranks, ranks) {}

  // Each returns a failure if this event is the job's first one.
  std::optional<RankFailure> connected(int rank, Duration after);
  // `world`, of an elastic job: how many worlds aiaccrun has opened, with this one. It is more than the rank has said hellos if
  // the rank came later, or if a world was void on its host.
  void initialised(int rank, int world = 0);
  void finalized(int rank);
  std::optional<RankFailure> exited(int rank, const RankEnd& end);
  // A consequence is known, but not its cause.
  bool undecided() const noexcept { return consequence_ && !failure_ && counting_ && over_; }
  // The last failure, once, if the job survives it.
  bool survives() const noexcept { return survived_.has_value(); }
  std::optional<RankFailure> take_survived() noexcept { return std::exchange(survived_, std::nullopt); }
  int not_failed() const noexcept { return static_cast<int>(ranks_.size()) - failed_; }
  // No report of an earlier event is outstanding: a pending first consequence is now the job's failure and is returned.
  std::optional<RankFailure> decide();
  // There will be no further report of this rank: its host is lost, or could not start it. That is not the rank's own
  // failure.
  void lost(int rank);
  // As lost(), of ranks whose failure the job survives. False: it does not, and nothing has changed.
  bool survive_losing(const std::vector<int>& ranks);

  // The failed rank runs again.
  void replaced(int rank);
  // A further rank runs, whose number is returned. It counts as failed until it is initialised, as a replacement does.
  int add();
  // The rank takes no part any more, by no fault of its own: how it exits counts nothing, and nobody waits for it.
  void dismiss(int rank);
  bool dismissed(int rank) const noexcept { return ranks_[static_cast<std::size_t>(rank)].dismissed; }
  // The failed rank is waited for by nobody.
  void leave_out(int rank) { ranks_[static_cast<std::size_t>(rank)].left_out = true; }
  bool left_out(int rank) const noexcept { return ranks_[static_cast<std::size_t>(rank)].left_out; }
  // It was started in the place of another, and has not been initialised yet.
  bool joining(int rank) const noexcept { return ranks_[static_cast<std::size_t>(rank)].joining; }
  // It has ended in that state, where other ranks have initialised: what it did is not what the job does.
  bool left_early(int rank) const noexcept { return joining(rank) && most_hellos_ > 0; }
  // From now on the job survives no failure.
  void survive_no_more() noexcept { survives_no_more_ = true; }

  // The launcher ends the job: later exits are caused by that and do not count.
  void stop_counting() noexcept { counting_ = false; }

  int running() const noexcept { return running_; }
  bool all_exited() const noexcept { return running_ == 0; }
  RankPhase phase(int rank) const noexcept { return ranks_[static_cast<std::size_t>(rank)].phase; }
  const std::optional<RankFailure>& first_failure() const noexcept { return failure_; }

 private:
  struct Rank {
    RankPhase phase = RankPhase::kSpawned;
    int hellos = 0;  // said; of an elastic job, what would have been said if each world had been entered
    bool joining = false;
    bool left_out = false;
    bool dismissed = false;
  };
  std::optional<RankFailure> fail(RankFailure failure);
  std::optional<RankFailure> missing(int rank, int waiting, Duration after);

  // It has left a world in order, and those that ask for the next one are refused.
  bool finished(const Rank& rank) const noexcept { return elastic_ && rank.hellos > 0; }

  std::vector<Rank> ranks_;
  int running_;
  bool elastic_;
  int spare_;       // failures that the job survives
  int failed_ = 0;  // ranks
  int whole_ = 0;   // how many had not failed before the failures that are not repaired
  int most_hellos_ = 0;
  int rank_with_most_hellos_ = -1;  // the first rank to have said the most hellos
  bool survives_no_more_ = false;
  bool over_ = false;  // a failure was not survived
  bool counting_ = true;
  std::optional<RankFailure> failure_;
  std::optional<RankFailure> cause_;        // the first failure that is no consequence
  std::optional<RankFailure> consequence_;  // the first one
  std::optional<RankFailure> survived_;
};

// "was killed by signal 9 (Killed)", "exited with status 3".
std::string describe_status(const io::ExitStatus& status);

// The closing line of a job that failed: "rank 7 on host c03 exited with status 3 after 12.4 s (first failure; 15
// others stopped by aiaccrun)"; for a consequence "(first failure; it had lost rank 2; …". After a broken network the
// line names the path first: "the path between rank 0 on host a … was broken …; rank 0 on host a exited …". `stopped`
// is the number of ranks that were still running.
std::string closing_sentence(const RankFailure& failure, const std::string& host, int stopped);

}  // namespace aiacc::launcher
