// Reductions by an operator that does not commute, of ranks that are not numbered host by host: what a host reduces among its
// own ranks would have to change places with others'. So every rank gets its shard of all inputs, through memory or messages,
// and reduces it in the order of ranks; the results are gathered. (n−1)/n·S bytes a rank instead of S/members, between hosts.
#pragma once

#include "collectives/hosts/hosts_call.h"

namespace aiacc::hosts {

// Whether phases on the hosts would change the order of what is reduced.
bool needs_ordered_reduce(const HostsCall& call) noexcept;
// An allreduce, reduce or reduce-scatter.
Task<void> ordered_reduce(HostsCall& call);

}  // namespace aiacc::hosts
