// Reductions whose partial sums must not be rounded, or whose operands must not change places: every rank gets its shard of all
// inputs, reduces it in one pass in the order of ranks, and gives the result to whoever needs it. All-to-all and all-gather
// move 2(n−1)/n·S bytes a rank, as a ring does, in messages of S/n bytes instead of neighbours' segments; scratch memory is
// bounded by going in segments.
//
// For 16-bit floats (one rounding, like on one host) and operators that do not commute.
#pragma once

#include "collectives/operation.h"

namespace aiacc::net {

Task<void> ordered_reduce_scatter(Operation& op);
Task<void> ordered_allreduce(Operation& op);
Task<void> ordered_reduce(Operation& op);

}  // namespace aiacc::net
