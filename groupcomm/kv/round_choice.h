// RoundChoice: who sums the rounds of one key of a sync store: its servers, or the workers themselves with an allreduce. Pure, as
// Part.
//
// A worker says of each push of a long value, before it makes it, that it is ready for an allreduce, or that it sends its gradient to
// the servers, as it must if it pulls nothing or pushes rows. If all are ready, all are told so, at once. The first that sends decides
// the round for the others: who is ready, or gets ready later, is told to send too. One server decides for all keys of a store, so
// each worker hears of the rounds of all keys in the same order, in which it begins their allreduces.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "groupcomm/kv/part.h"

namespace aiacc::kv {

class RoundChoice {
 public:
  explicit RoundChoice(int workers) : workers_(static_cast<std::size_t>(workers)) {}

  // Answered when the round is decided: Answer::together.
  void ready(int worker, std::uint64_t id, std::vector<Answer>& answers);
  void sends(int worker, std::vector<Answer>& answers);
  // It is ready no more, if the round is not decided: its push has ended by a deadline.
  void withdraw(int worker, std::vector<Answer>& answers);
  // From now on all send, so that parts of the value name the lost worker.
  void lost(std::vector<Answer>& answers);

 private:
  // What a worker has said of one of its pushes.
  struct Word {
    bool ready;
    std::uint64_t id;  // of its request, if it is ready and has no answer
    bool answered;
  };
  std::deque<Word>& words(int worker) noexcept { return workers_[static_cast<std::size_t>(worker)]; }
  void decide(std::vector<Answer>& answers);
  void answer_ready(bool together, std::vector<Answer>& answers);

  std::vector<std::deque<Word>> workers_;  // of the present round and those after it, of which some workers are ahead
  bool lost_ = false;
};

}  // namespace aiacc::kv
