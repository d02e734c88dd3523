// Allreduce of private buffers where the kernel lets members read each other's memory (process_vm_readv): member m reads
// slice m of every input piece by piece into its cache, reduces it into its own result, and then reads the other slices
// from the members that have reduced them. Each byte crosses between cores once each way, where the lines of staging slots
// also come back to be filled again; and nobody ever stores into another's memory, so that no fence is needed: what a reader
// finds after its peer gave up goes nowhere. For copying through the kernel in collectives see Chakraborty, Subramoni, Panda,
// "Contention-aware kernel-assisted MPI collectives for multi/many-core systems", CLUSTER 2017.
#pragma once

#include "collectives/host/meet.h"

namespace aiacc::host {

// Whether all members can: known to all from the arrivals.
bool can_pull_reduce(const HostCall& call);
Task<void> pull_reduce(HostCall call);

}  // namespace aiacc::host
