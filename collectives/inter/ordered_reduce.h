// Reductions whose partial sums must not be rounded, or whose operands must stay in rank order: every rank receives its
// shard of all inputs, reduces it in one pass in rank order, and sends the result to the ranks that need it. All-to-all
// and all-gather move 2(n−1)/n·S bytes a rank, as a ring does, in messages of S/n bytes to all ranks instead of
// segments to neighbours; working in segments bounds the scratch memory.
//
// For 16-bit floats (one rounding, as on one host) and operators that do not commute.
#pragma once

#include "collectives/inter/algorithm_info.h"
#include "collectives/operation.h"

namespace aiacc::inter {

Task<void> ordered_reduce_scatter(Operation& op);
Task<void> ordered_allreduce(Operation& op);
Task<void> ordered_reduce(Operation& op);
extern const AlgorithmInfo kOrderedAllreduceInfo;
extern const AlgorithmInfo kOrderedReduceInfo;
extern const AlgorithmInfo kOrderedReduceScatterInfo;

}  // namespace aiacc::inter
