// ShortMessages: what a rank sends and receives in each round of a short call (short_call.h). These are the messages of the
// algorithm that serves such a call as an operation.
//
//   barrier          dissemination
//   allreduce        recursive doubling, of a power of two of ranks
//   broadcast        binomial tree
//   allgather        ring; of two ranks one swap
//   reduce-scatter   ring; of two ranks one swap
//   gather, scatter  one message between the root and each other rank
#pragma once

#include "collectives/operation.h"
#include "transports/message.h"

namespace aiacc::inter {

struct AlgorithmInfo;

// The algorithm whose messages these are; null: a call of this kind has no short form.
const AlgorithmInfo* short_algorithm(Collective kind, int ranks) noexcept;

class ShortMessages {
 public:
  static constexpr int kNobody = -1;
  struct Round {
    Tag tag;
    int to = kNobody;
    Buffer sent;
    int from = kNobody;
    Buffer arrived;

    bool empty() const noexcept { return to == kNobody && from == kNobody; }
  };
  // One copy or sum of this rank. `to` has no bytes: there is none.
  struct Copy {
    Buffer to;
    Buffer from;
  };

  // `call` outlives it. `scratch` has scratch_bytes().
  ShortMessages(const Call& call, int rank, int ranks, Buffer send, Buffer recv) noexcept
      : call_(call), rank_(rank), ranks_(ranks), send_(send), recv_(recv) {}

  int rounds() const noexcept;
  std::size_t scratch_bytes() const noexcept;
  void set_scratch(std::byte* scratch) noexcept { scratch_ = scratch; }

  // Of what this rank gives, before the first round.
  Copy first() const noexcept;
  // Of its own block, which no message concerns.
  Copy own() const noexcept;
  Round round(int number) const noexcept;
  // The sum that follows a round.
  struct Sum {
    Buffer result;
    Buffer operands[2];
    bool last;
  };
  bool sums() const noexcept {
    return call_.kind == Collective::kAllreduce || call_.kind == Collective::kReduceScatter;
  }
  Sum sum(int number) const noexcept;

 private:
  bool is_root() const noexcept { return rank_ == call_.root; }
  int neighbour(int distance) const noexcept { return (rank_ + distance + ranks_) % ranks_; }
  // One rank's part of a buffer with one for each.
  Buffer block(const Buffer& all, int rank) const noexcept {
    return all.slice(static_cast<std::size_t>(rank) * call_.bytes(), call_.bytes());
  }
  // What arrives to be added; in a ring the one before it is sent on meanwhile.
  Buffer arriving(int round) const noexcept;
  Round broadcast_round(int number) const noexcept;
  Round ring_round(int number) const noexcept;
  Round rooted_round(int number) const noexcept;

  const Call& call_;
  const int rank_;
  const int ranks_;
  const Buffer send_;
  const Buffer recv_;
  std::byte* scratch_ = nullptr;
};

}  // namespace aiacc::inter
