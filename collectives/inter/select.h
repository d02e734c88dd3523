// Runs a call over messages by the algorithm that is chosen for it (algorithms.h): by the number of ranks and bytes, with the
// limits below, and among those that the user permits.
#pragma once

#include "collectives/operation.h"

namespace aiacc::inter {

// Up to this size recursive doubling is faster than the ring. Its ⌈log₂ n⌉ rounds move S each, while the ring's 2(n−1)
// steps move 2S in total: at α = 5 µs and 100 Gb/s they meet near 100 KiB for 8 ranks and later for more.
inline constexpr std::size_t kRecursiveDoublingBytes = 64 << 10;

// Between that size and this one, halving and doubling is used for powers of two of ranks. Ring and halving both move
// 2(n−1)/n·S, in 2(n−1) and 2·log₂ n steps. Between hosts that share two cores halving was faster from 256 KiB to 64
// MiB: with four ranks by 10 to 20 %, with eight by up to a quarter; at 1 Gbit/s the two were equal. Above this size
// the number of steps no longer matters, and a ring sends to neighbours only, whereas all messages of a halving step
// cross the middle of the network at once.
inline constexpr std::size_t kHalvingDoublingBytes = 64 << 20;

// These limits were measured with up to so many ranks. Among more, two trees (double_tree.h) are used where they are predicted to take
// clearly less time.
inline constexpr int kMeasuredRanks = 8;

// For 16-bit inputs. With more ranks, n−1 messages in one round (1.5 µs of a core to send and as much to receive each) take
// longer than ⌈log₂ n⌉ rounds with 5 µs of latency and two messages.
inline constexpr int kRanksInOneRound = 8;

Task<void> run(Operation& op);

}  // namespace aiacc::inter
