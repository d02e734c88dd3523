// Allreduce by recursive halving and doubling (Rabenseifner, "Optimization of collective reduction operations", ICCS
// 2004; Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", IJHPCA 2005): a
// reduce-scatter in which ranks at distance 2^k exchange halves of their remaining range, then an all-gather in which
// the same partners, in reverse order, exchange the results.
//
//   2·log₂(n)·α + 2(n−1)/n·Sβ + (n−1)/n·Sγ
//
// It moves as many bytes as a ring in fewer steps: for medium messages, on a power of two of ranks. (Other numbers
// would have to fold ranks first, which moves S once more.) The sum of each element is completed at one owner and
// copied from there, so all ranks have the same bits. The order of additions is that of recursive doubling, so the bits
// do not depend on which of the two algorithms is used. Partial sums travel in the element type.
#pragma once

#include "collectives/inter/algorithm_info.h"
#include "collectives/operation.h"

namespace aiacc::inter {

// True for powers of two above two; with two ranks a ring takes the same two steps.
bool halving_doubling_applies(int ranks) noexcept;

// Requires halving_doubling_applies().
Task<void> halving_doubling_allreduce(Operation& op);
extern const AlgorithmInfo kHalvingDoublingAllreduceInfo;

}  // namespace aiacc::inter
