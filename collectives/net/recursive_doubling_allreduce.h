// Recursive doubling allreduce (Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in
// MPICH", IJHPCA 2005): in round k, ranks at distance 2^k exchange all they have.
//
//   ⌈log₂ n⌉(α + Sβ + Sγ); if n is no power of two, 2α + 2Sβ + Sγ more
//
// For short messages. Both partners of a round add lower ranks' partial sum to higher ranks' in that order, with equal
// inputs, so all ranks have the same bits. With n = 2^m + x, the first 2x ranks first meet in pairs and one of each pair
// goes on.
#pragma once

#include "collectives/operation.h"

namespace aiacc::net {

Task<void> recursive_doubling_allreduce(Operation& op);

}  // namespace aiacc::net
