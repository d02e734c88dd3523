// Which algorithm over messages serves a call. Thin on purpose: a choice measured on the machine comes later.
#pragma once

#include "collectives/operation.h"

namespace aiacc::net {

// Up to here recursive doubling is faster than the ring. Its ⌈log₂ n⌉ rounds move S each, the ring's 2(n−1) steps move 2S in
// all: at α = 5 µs and 100 Gb/s they meet near 100 KiB for 8 ranks and later for more.
inline constexpr std::size_t kRecursiveDoublingBytes = 64 << 10;

// From there up to here halving and doubling serves a power of two of ranks. Ring and halving move 2(n−1)/n·S both, in 2(n−1)
// steps and in 2·log₂ n: what four ranks save are 2 steps of 5 µs, what eight save 8, of the 500 and 590 µs that 4 MiB take
// at 100 Gb/s. Above that little is left to save, and a ring's messages go to neighbours only, where those of halving cross
// the middle of the network all at once.
inline constexpr std::size_t kHalvingDoublingBytes = 4 << 20;

Task<void> run(Operation& op);

}  // namespace aiacc::net
