// Allreduce: reduce-scatter on each host, allreduce of each shard among the members that have it, all-gather on each host.
// With S bytes, h hosts and s shards each rank sends 2(h−1)/h·S/s between hosts, side by side with the others of its host.
//
// A small payload is one shard: reduced to the host's leader, exchanged among the leaders, given out by them.
//
// 16-bit floats leave the hosts' phase as sums in fp32 and are rounded once, after the last sum between hosts
// (net/partial_reduce.h).
//
// Every rank has the same bits: each shard is reduced once on each host, the algorithm between hosts gives equal bits to all
// who have it, and the rest is copied.
#pragma once

#include "collectives/hosts/hosts_call.h"

namespace aiacc::hosts {

Task<void> allreduce(HostsCall& call);

}  // namespace aiacc::hosts
