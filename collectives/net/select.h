// Which algorithm over messages serves a call. Thin on purpose: a choice measured on the machine comes later.
#pragma once

#include "collectives/operation.h"

namespace aiacc::net {

// Up to here recursive doubling is faster than the ring. Its ⌈log₂ n⌉ rounds move S each, the ring's 2(n−1) steps move 2S in
// all: at α = 5 µs and 100 Gb/s they meet near 100 KiB for 8 ranks and later for more.
inline constexpr std::size_t kRecursiveDoublingBytes = 64 << 10;

Task<void> run(Operation& op);

}  // namespace aiacc::net
