// How a job is ended, step by step: what each signal to aiaccrun, a time-out, a failed rank and a lost process lead to. Pure.
//
//   first INT, TERM or HUP      that very signal to every rank, KILL after the grace; one line with the countdown
//   INT while the job ends      TERM now, KILL 2 s later
//   INT again                   KILL now
//   TERM or HUP again           passed on once more: managers send those twice without meaning more
//   a rank failed, time-out     TERM, KILL after the grace
//   connection or process lost  TERM, KILL after 2 s
//
// TERM and every other signal that is to end a rank are followed by CONT: a stopped rank would not hear of them.
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

  // INT, TERM or HUP came to aiaccrun. `ranks` of them are running.
  Step user_signal(int number, int ranks);
  // A rank failed or time is up: the sentence about that is the caller's.
  Step end_job();
  // Whoever could still control the ranks is gone.
  Step lost();

  bool ending() const noexcept { return level_ != Level::kRunning; }
  // What is unread is waited for so long when all ranks have ended.
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
