// AlgorithmInfo: an algorithm between hosts as selection sees it. Each is defined beside its code, and algorithms.cc lists all.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <string_view>

#include "collectives/operation.h"
#include "transports/mailbox.h"

namespace aiacc::inter {

struct AlgorithmInfo;

// What the choice of an algorithm depends on: the same on all ranks that take part in a call.
struct Shape {
  Collective kind = Collective::kBarrier;
  int ranks = 1;
  // Of the payload; of one block in allgather, reduce-scatter, alltoall, gather and scatter.
  std::size_t bytes = 0;
  std::size_t wide_bytes = 0;   // the same in the type in which sums are made
  bool narrows = false;         // a partial sum in the element type would lose digits (16-bit floats)
  bool ordered = false;         // the operator does not commute
  bool takes_partials = false;  // the inputs are hosts' partial sums, in the type in which sums are made
  bool uneven = false;
  bool among_some = false;  // part of a call: some ranks, or all of them without the blocks within a host
  bool skips_host = false;  // such blocks are left out
  // The ranks stand for their hosts, and each block is made of so many, which have at most so many bytes each.
  std::size_t combined = 1;
  std::size_t longest_of_combined = 0;
  const AlgorithmInfo* preferred = nullptr;  // by the caller (Call::preferred)
};

Shape shape_of(const Operation& op) noexcept;
// Of a call of all ranks that is no part of another one.
Shape shape_of(const Call& call, int ranks) noexcept;

// What a call takes in the model of Hockney with sums (α, β, γ), as Thakur, Rabenseifner and Gropp (2005) use it, and with the
// processor's time for each message, as LogGP has it. Of the rank, or the link, that takes longest.
struct Cost {
  double latencies = 0;   // of the network, one after another
  double messages = 0;    // that one rank sends and receives
  double bytes = 0;       // over one link in one direction
  double touched = 0;     // bytes that one rank reads and writes in sums and copies
  bool overlaps = false;  // sums are made while other parts of the payload travel
  // Besides: what moves, and what is summed, before a pipeline is full, when nothing overlaps.
  double first_bytes = 0;
  double first_touched = 0;
};

// A network and its hosts. By default 100 Gbit/s with 5 µs; a core takes 1.5 µs to send or to receive a message over TCP.
struct NetworkModel {
  double latency_us = 5;
  double message_us = 1.5;
  double bytes_per_us = 12'500;
  double touched_per_us = 10'000;

  double time_us(const Cost& cost) const noexcept {
    const double travels = cost.bytes / bytes_per_us, sums = cost.touched / touched_per_us;
    const double both = cost.overlaps ? std::max(travels, sums) : travels + sums;
    const double filling = cost.first_bytes / bytes_per_us + cost.first_touched / touched_per_us;
    return cost.latencies * latency_us + cost.messages * message_us + both + filling;
  }
};

// Latencies until a message of that length has arrived: an eager one, and one with an RTS and a CTS, of which the first may have
// been sent one step early.
inline double latencies_of(double bytes) noexcept { return bytes <= Mailbox::kEagerBytes ? 1 : 3; }
inline double latencies_after_early_rts(double bytes) noexcept { return bytes <= Mailbox::kEagerBytes ? 1 : 2; }
// The same where both ranks send each other something.
inline bool is_eager_swap(double bytes, const Shape& of) noexcept {
  return bytes <= (of.bytes <= Peer::kSwapCreditBytes ? Mailbox::kLongSwapBytes : Mailbox::kSwappedEagerBytes);
}
inline double latencies_of_swap(double bytes, const Shape& of) noexcept { return is_eager_swap(bytes, of) ? 1 : 3; }
inline double latencies_of_swap_after_early_rts(double bytes, const Shape& of) noexcept {
  return is_eager_swap(bytes, of) ? 1 : 2;
}
// Of `steps` messages of that length one after the other, each to the next rank. Of two ranks each is the other's neighbour.
inline double latencies_in_ring(const Shape& shape, double bytes, double steps) noexcept {
  if (shape.ranks > 2) return latencies_of(bytes) + (steps - 1) * latencies_after_early_rts(bytes);
  return latencies_of_swap(bytes, shape) + (steps - 1) * latencies_of_swap_after_early_rts(bytes, shape);
}
// ⌈log₂ n⌉
inline double rounds_among(int ranks) noexcept { return std::bit_width(static_cast<unsigned>(ranks - 1)); }

struct AlgorithmInfo {
  Collective kind;
  std::string_view name;  // as users write it
  // Why it cannot serve such a call, as a clause; empty: it can.
  std::string_view (*obstacle)(const Shape& shape) noexcept;
  Cost (*cost)(const Shape& shape) noexcept;
  Task<void> (*run)(Operation& op);
};

// Clauses that several algorithms share.
inline constexpr std::string_view kRoundsPartialSums = "it would round partial sums of 16-bit floats";
inline constexpr std::string_view kReordersOperands = "it combines operands in another order than that of the ranks";
inline constexpr std::string_view kTakesNoPartials = "it does not take the partial sums of hosts";

inline std::string_view no_obstacle(const Shape&) noexcept { return {}; }

}  // namespace aiacc::inter
