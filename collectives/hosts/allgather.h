// Allgather: the members of each host gather their blocks, shards of the hosts' parts go round rings of the members that own
// them, and each host's members give each other what came.
//
// The parts are those of the group's ranks host by host. Where that is not the order of the ranks, the result is put
// together in memory of its own and copied: S bytes more through a core, for S bytes of result.
#pragma once

#include "collectives/hosts/hosts_call.h"

namespace aiacc::hosts {

Task<void> allgather(HostsCall& call);

}  // namespace aiacc::hosts
