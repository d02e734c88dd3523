// Reduce-scatter: the members of each host reduce shards of every host's part of the input, rings of the members that own a
// shard reduce-scatter the parts, and each host's members take their blocks out of their host's part.
//
// As with allgather the parts are those of the ranks host by host; where that is not the order of the ranks, the input is
// brought into it first. Where the hosts have equally many members, a shard of the host's part is its owner's very block.
#pragma once

#include "collectives/hosts/hosts_call.h"

namespace aiacc::hosts {

Task<void> reduce_scatter(HostsCall& call);

}  // namespace aiacc::hosts
