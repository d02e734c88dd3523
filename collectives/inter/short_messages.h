// ShortMessages: what a rank sends and receives in each round of a short call (short_call.h). These are the messages of the
// algorithm that serves such a call as an operation.
//
//   barrier          dissemination
//   allreduce        recursive doubling, of a power of two of ranks
//   broadcast        binomial tree
//   reduce           binomial tree
//   allgather        recursive doubling where it applies, or a ring; of two ranks one swap
//   reduce-scatter   recursive halving where it applies, or a ring; of two ranks one swap
//   gather, scatter  one message between the root and each other rank
//   alltoall         of two ranks one swap
#pragma once

#include "collectives/operation.h"
#include "transports/message.h"

namespace aiacc::inter {

struct AlgorithmInfo;

// The algorithm whose messages these are; null: such a call has no short form.
const AlgorithmInfo* short_algorithm(const Call& call, int ranks) noexcept;

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
      : call_(call), rank_(rank), ranks_(ranks), doubles_(doubles(call, ranks)), send_(send), recv_(recv) {}
  // Bytes.
  static std::size_t longest(const Call& call, int ranks) noexcept {
    return doubles(call, ranks) ? static_cast<std::size_t>(ranks / 2) * call.bytes() : call.bytes();
  }

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
    Buffer result;  // no bytes: there is none
    Buffer operands[2];
    bool last = false;
  };
  Sum sum(int number) const noexcept;

 private:
  // Messages of several blocks.
  static bool doubles(const Call& call, int ranks) noexcept;
  bool is_root() const noexcept { return rank_ == call_.root; }
  int neighbour(int distance) const noexcept { return (rank_ + distance + ranks_) % ranks_; }
  // One rank's part of a buffer with one for each.
  Buffer block(const Buffer& all, int rank) const noexcept { return blocks(all, rank, 1); }
  Buffer blocks(const Buffer& all, int first, int count) const noexcept {
    return all.slice(static_cast<std::size_t>(first) * call_.bytes(), static_cast<std::size_t>(count) * call_.bytes());
  }
  // In a tree, counted from the root.
  int position() const noexcept { return (rank_ - call_.root + ranks_) % ranks_; }
  bool is_leaf() const noexcept { return position() % 2 == 1 || position() + 1 == ranks_; }
  // What arrives to be added; in a ring the one before it is sent on meanwhile.
  Buffer arriving(int round) const noexcept;
  // The sum of a reduce, of all that has arrived.
  Buffer partial() const noexcept { return is_root() ? recv_ : Buffer{scratch_ + call_.bytes(), call_.bytes()}; }
  Round tree_round(int number) const noexcept;
  Round ring_round(int number) const noexcept;
  int distance(int number) const noexcept;  // to the partner of a doubling or halving
  // Blocks of what this rank has summed in a halving, and of what it has at the beginning of a round.
  Buffer summed(int first, int count) const noexcept;
  Buffer halved(int number, int first, int count) const noexcept {
    return number == 0 ? blocks(send_, first, count) : summed(first, count);
  }
  Round doubling_round(int number) const noexcept;
  Round rooted_round(int number) const noexcept;

  const Call& call_;
  const int rank_;
  const int ranks_;
  const bool doubles_;
  const Buffer send_;
  const Buffer recv_;
  std::byte* scratch_ = nullptr;
};

}  // namespace aiacc::inter
