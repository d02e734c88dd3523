// Allreduce of private buffers where the kernel lets members read each other's memory (process_vm_readv): member m reads
// slice m of every input piece by piece into its cache, reduces it into its own result, and then reads the other slices
// from the members that have reduced them. Each core moves 4S, against 7S through staging slots, and nobody ever stores into
// another's memory, so that no fence is needed: what a reader finds after its peer gave up goes nowhere. The structure is
// that of single-copy allreduce in Chakraborty, Subramoni, Panda, "Contention-aware kernel-assisted MPI collectives",
// CLUSTER 2017.
#pragma once

#include "collectives/host/meet.h"

namespace aiacc::host {

// Whether all members can: known to all from the arrivals.
bool can_pull_reduce(const HostCall& call);
Task<void> pull_reduce(HostCall call);

}  // namespace aiacc::host
