// Allgather in three phases: the members of each host gather their blocks; rings of the members that own the same shard
// all-gather shards of the hosts' parts; the members of each host exchange what arrived.
//
// The parts are ordered host by host. If the group's ranks are not numbered in that order, the result is assembled in
// scratch memory and copied: S more bytes through a core for S bytes of result.
#pragma once

#include "collectives/hier/hier_call.h"

namespace aiacc::hier {

Task<void> allgather(HierCall& call);

}  // namespace aiacc::hier
