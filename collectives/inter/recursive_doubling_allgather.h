// All-gather by recursive doubling (Thakur, Rabenseifner, Gropp 2005): in step k ranks at distance 2^k exchange all blocks that they
// have, which are 2^k each.
//
//   log₂(n)·α + (n−1)/n·Sβ, S the bytes of all blocks
//
// It moves as many bytes as a ring in fewer steps: for short blocks, on a power of two of ranks.
#pragma once

#include "collectives/inter/algorithm_info.h"
#include "collectives/operation.h"

namespace aiacc::inter {

// For equal blocks of which half of all fit into a message without an RTS, among a power of two of ranks, at least four. Recursive
// halving of a reduce-scatter has the same messages in reverse order.
bool recursive_doubling_applies(int ranks, std::size_t block_bytes) noexcept;
// Why it does not, as a clause; empty: it does.
std::string_view recursive_doubling_obstacle(const Shape& shape) noexcept;

// Requires recursive_doubling_applies(). The buffers are those of ring_allgather.h.
Task<void> recursive_doubling_allgather(Operation& op);
extern const AlgorithmInfo kRecursiveDoublingAllgatherInfo;

}  // namespace aiacc::inter
