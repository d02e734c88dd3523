// Reductions of 16-bit floats with one rounding. What travels before the last sum are partial sums in fp32 (recursive doubling,
// a binomial tree, a ring), what travels after it are results in 16 bits: a long allreduce moves 3(n−1)/n·S bytes a rank for S
// bytes of payload, where a ring of 16-bit sums moves 2(n−1)/n·S and rounds n−1 times.
//
// These take partial sums (Partial::kOperands), as the phases on hosts leave them: op.send is in fp32 and is overwritten.
#pragma once

#include "collectives/operation.h"

namespace aiacc::net {

Task<void> partial_allreduce(Operation& op);
Task<void> partial_reduce(Operation& op);
Task<void> partial_reduce_scatter(Operation& op);

// The same for ranks whose inputs are in 16 bits, of an allreduce or reduce: log n messages a rank.
Task<void> widened_reduce(Operation& op);

}  // namespace aiacc::net
