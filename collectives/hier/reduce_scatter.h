// Reduce-scatter: the members of each host reduce shards of every host's part of the input, rings of the members that
// own a shard reduce-scatter the parts, and each host's members copy their blocks from their host's part. Long ones go in
// slices: one is reduced on the hosts while others are between them.
//
// As in allgather the parts are ordered host by host; if the ranks are not numbered in that order, the input is
// reordered first. If all hosts have the same number of members, a shard of the host's part is exactly its owner's
// block.
#pragma once

#include "collectives/hier/hier_call.h"

namespace aiacc::hier {

Task<void> reduce_scatter(HierCall& call);

}  // namespace aiacc::hier
