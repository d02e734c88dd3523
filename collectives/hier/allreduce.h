// Allreduce: reduce-scatter on each host, allreduce of each shard among the members that own it, all-gather on each
// host. With S bytes, h hosts and s shards each rank sends 2(h−1)/h·S/s between hosts, side by side with the others of
// its host.
//
// A small payload is a single shard: each host reduces to its leader, the leaders run an allreduce, and each broadcasts
// the result on its host.
//
// 16-bit floats leave the phase on the hosts as fp32 sums and are rounded once, after the last sum between hosts
// (inter/partial_reduce.h).
//
// Every rank has the same bits: each shard is reduced once on each host, the algorithm between hosts gives equal bits
// to all members that own it, and the rest is copied.
#pragma once

#include "collectives/hier/hier_call.h"

namespace aiacc::hier {

Task<void> allreduce(HierCall& call);

}  // namespace aiacc::hier
