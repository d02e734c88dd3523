// Allreduce by recursive halving and doubling (Rabenseifner, "Optimization of collective reduction operations", ICCS 2004;
// Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", IJHPCA 2005): a
// reduce-scatter in which ranks at distance 2^k swap halves of what they have left, then an all-gather in which the same
// partners, the last first, swap what they have complete.
//
//   2·log₂(n)·α + 2(n−1)/n·Sβ + (n−1)/n·Sγ
//
// As many bytes as a ring in fewer steps: for messages of middle length, on a power of two of ranks. (Others would have to
// fold ranks first, which moves S once more.) The sum of each element ends at one owner and is copied after, so all ranks
// have the same bits; it is made in the tree of recursive doubling, so that a sum's bits do not depend on which of the two
// served it. Partial sums travel in the element type.
#pragma once

#include "collectives/operation.h"

namespace aiacc::net {

// A power of two; of two ranks, a ring takes the same two steps.
bool halving_serves(int ranks) noexcept;

// Of a power of two of ranks.
Task<void> halving_doubling_allreduce(Operation& op);

}  // namespace aiacc::net
