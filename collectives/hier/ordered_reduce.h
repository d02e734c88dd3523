// Reductions with an operator that does not commute, for ranks that are not numbered host by host: reducing first on
// each host would change the order of operands. So every rank gets its shard of all inputs, through memory or messages,
// and reduces it in rank order; the results are gathered. (n−1)/n·S bytes a rank instead of S/members, between hosts.
#pragma once

#include "collectives/hier/hier_call.h"

namespace aiacc::hier {

// Whether phases on the hosts would change the order of operands and the operator depends on it.
bool needs_ordered_reduce(const HierCall& call) noexcept;
// An allreduce, reduce or reduce-scatter.
Task<void> ordered_reduce(HierCall& call);

}  // namespace aiacc::hier
