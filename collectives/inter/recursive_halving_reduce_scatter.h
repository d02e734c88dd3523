// Reduce-scatter by recursive halving (Thakur, Rabenseifner, Gropp 2005): ranks at distance n/2, n/4, … 1 exchange the half of their
// sums that is the other one's, and add what they get.
//
//   log₂(n)·α + (n−1)/n·S(β + γ), S the bytes of all blocks
//
// It moves as many bytes as a ring in fewer steps: for short blocks, where recursive_doubling_applies(). Partial sums travel in the
// element type.
#pragma once

#include "collectives/inter/algorithm_info.h"
#include "collectives/operation.h"

namespace aiacc::inter {

// Requires recursive_doubling_applies(). The buffers are those of ring_reduce_scatter.h.
Task<void> recursive_halving_reduce_scatter(Operation& op);
extern const AlgorithmInfo kRecursiveHalvingReduceScatterInfo;

}  // namespace aiacc::inter
