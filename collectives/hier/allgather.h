// Allgather in three phases: the members of each host gather their blocks; rings of the members that own the same shard
// all-gather shards of the hosts' parts; the members of each host exchange what arrived.
//
// Long ones go in slices: the members exchange one while the next are between hosts. Where each member's block is its shard, as
// on hosts with equally many members, the rings do not wait for the first phase.
//
// The parts are ordered host by host. If the group's ranks are not numbered in that order, the result is assembled in
// scratch memory and copied: S more bytes through a core for S bytes of result.
#pragma once

#include "collectives/hier/hier_call.h"

namespace aiacc::hier {

Task<void> allgather(HierCall& call);

}  // namespace aiacc::hier
