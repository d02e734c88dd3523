// Recursive doubling allreduce (Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in
// MPICH", IJHPCA 2005): in round k, ranks at distance 2^k exchange their whole partial sums.
//
//   ⌈log₂ n⌉(α + Sβ + Sγ); if n is no power of two, 2α + 2Sβ + Sγ more
//
// For short messages. Both partners of a round add the same two inputs in the same order, the lower ranks' partial sum
// first, so all ranks have the same bits. With n = 2^m + x, the first 2x ranks first reduce in pairs and one of each
// pair continues.
#pragma once

#include "collectives/inter/algorithm_info.h"
#include "collectives/operation.h"

namespace aiacc::inter {

Task<void> recursive_doubling_allreduce(Operation& op);
extern const AlgorithmInfo kRecursiveDoublingAllreduceInfo;

}  // namespace aiacc::inter
