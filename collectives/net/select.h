// Which algorithm over messages serves a call. Thin on purpose: a choice measured on the machine comes later.
#pragma once

#include "collectives/operation.h"

namespace aiacc::net {

// Up to here recursive doubling is faster than the ring. Its ⌈log₂ n⌉ rounds move S each, the ring's 2(n−1) steps move 2S in
// all: at α = 5 µs and 100 Gb/s they meet near 100 KiB for 8 ranks and later for more.
inline constexpr std::size_t kRecursiveDoublingBytes = 64 << 10;

// From there up to here halving and doubling serves a power of two of ranks. Ring and halving move 2(n−1)/n·S both, in 2(n−1)
// steps and in 2·log₂ n. Between hosts that share two cores it was ahead from 256 KiB to 64 MiB, with four by 10 to 20 %, with
// eight by up to a quarter, and at 1 Gbit/s level. Above, no step counts any more, and a ring's messages go to neighbours only,
// where those of halving cross the middle of the network all at once.
inline constexpr std::size_t kHalvingDoublingBytes = 64 << 20;

Task<void> run(Operation& op);

}  // namespace aiacc::net
