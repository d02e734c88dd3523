// Escalation: how a job is ended step by step after a signal to aiaccrun, a time-out, a failed rank or a lost process.
// Pure: no I/O.
//
//   first INT, TERM or HUP      the same signal to every rank, KILL after the grace; one line with the countdown
//   INT while the job ends      TERM now, KILL 2 s later
//   INT again                   KILL now
//   TERM or HUP again           forwarded again: job managers send these twice without meaning more
//   a rank failed, time-out     TERM, KILL after the grace
//   connection or process lost  TERM, KILL after 2 s
//
// TERM and every other terminating signal are followed by CONT, because a stopped rank would not receive them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/time.h"

namespace aiacc::launcher {

inline constexpr Duration kShortGrace = std::chrono::seconds(2);

class Escalation {
 public:
  struct Step {
    std::vector<int> signals;               // to every rank's group, in this order
    Duration kill_after = Duration::max();  // from now; max: no change
    std::string sentence;                   // for the user; empty: nothing to say
    bool nothing() const noexcept { return signals.empty() && kill_after == Duration::max(); }
  };

  explicit Escalation(Duration grace) : grace_(grace) {}

  // aiaccrun received INT, TERM or HUP while `ranks` ranks were running.
  Step user_signal(int number, int ranks);
  // A rank failed or the time limit passed; the caller prints the sentence about it.
  Step end_job();
  // The processes that control the ranks are lost.
  Step lost();

  bool ending() const noexcept { return level_ != Level::kRunning; }
  // How long to wait for unread output after all ranks have ended.
  Duration flush_grace() const noexcept;
  // The first signal by which the user asked for the end, if that is why the job ends; 0 otherwise.
  int interrupted_by() const noexcept { return interrupted_by_; }

 private:
  enum class Level : std::uint8_t { kRunning, kAsked, kTerminated, kKilled };
  Duration grace_;
  Level level_ = Level::kRunning;
  int interrupted_by_ = 0;
};

}  // namespace aiacc::launcher
