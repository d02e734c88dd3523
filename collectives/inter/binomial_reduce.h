// Binomial reduce (Thakur, Rabenseifner, Gropp 2005): partial sums travel up a binomial tree to the root. Each rank
// adds its children's sums to its own in a fixed order of positions, so the order of operands is always the same. Long
// messages go in chunks, several of them in flight.
//
//   ⌈log₂ n⌉(α + Sβ + Sγ)
#pragma once

#include "collectives/inter/algorithm_info.h"
#include "collectives/operation.h"

namespace aiacc::inter {

// The result is op.recv on the root; elsewhere op.recv is not touched.
Task<void> binomial_reduce(Operation& op);
extern const AlgorithmInfo kBinomialReduceInfo;

}  // namespace aiacc::inter
