// Allreduce of private buffers if the kernel lets members read each other's memory (process_vm_readv): member m reads
// slice m of every input piece by piece into its cache, reduces it into its own result, and then reads the other slices
// from the members that have reduced them. Each byte crosses between cores once in each direction, whereas the cache
// lines of staging slots also travel back to be refilled. No member stores into another's memory, so no fence is
// needed: what a reader gets after its peer has given up is discarded. For copying through the kernel in collectives
// see Chakraborty, Subramoni, Panda, "Contention-aware kernel-assisted MPI collectives for multi/many-core systems",
// CLUSTER 2017.
#pragma once

#include "collectives/intra/arrive.h"

namespace aiacc::intra {

// Whether all members can use it. All members reach the same decision from the arrivals.
bool can_pull_reduce(const IntraCall& call);
Task<void> pull_reduce(IntraCall call);

}  // namespace aiacc::intra
