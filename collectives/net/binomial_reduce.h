// Binomial reduce (Thakur, Rabenseifner, Gropp 2005): partial sums travel up a binomial tree to the root. Each rank adds
// its children's sums to its own in the order of their places, so the order of operands is always the same. Long messages
// go in chunks, several of them under way.
//
//   ⌈log₂ n⌉(α + Sβ + Sγ)
#pragma once

#include "collectives/operation.h"

namespace aiacc::net {

// The result is op.recv on the root; elsewhere op.recv is not touched.
Task<void> binomial_reduce(Operation& op);

}  // namespace aiacc::net
