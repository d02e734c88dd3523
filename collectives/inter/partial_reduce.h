// Reductions of 16-bit floats with one rounding. Messages carry fp32 partial sums before the last addition (recursive
// doubling, a binomial tree, a ring) and 16-bit results after it: a long allreduce moves 3(n−1)/n·S bytes a rank for S
// bytes of payload, where a ring of 16-bit sums moves 2(n−1)/n·S and rounds n−1 times.
//
// These algorithms take partial sums (Reduction::takes_partials) as the phases on hosts leave them: op.send is in fp32
// and is overwritten.
#pragma once

#include "collectives/operation.h"

namespace aiacc::inter {

// Among all ranks the whole of it, and by shards.
Task<void> partial_doubling_allreduce(Operation& op);
Task<void> partial_ring_allreduce(Operation& op);
Task<void> partial_reduce(Operation& op);
Task<void> partial_reduce_scatter(Operation& op);

// Allreduce or reduce of 16-bit inputs, which are widened first: log n messages a rank. Not for long ones, because all of it
// is in memory in fp32.
Task<void> widened_reduce(Operation& op);

}  // namespace aiacc::inter
