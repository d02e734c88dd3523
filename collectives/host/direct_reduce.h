// Allreduce and reduce where every buffer lies in the host's shared memory: member r reduces slice r of all inputs in one
// pass and stores it into all outputs. With n members of S bytes each core moves 2S, the floor (n loads and n stores of
// S/n), and members meet twice. Compare "direct" in Jocksch et al., IJHPCA 2025.
#pragma once

#include "collectives/host/meet.h"

namespace aiacc::host {

// Whether all members' buffers allow it: known to all from the arrivals.
bool can_reduce_directly(const HostCall& call);
Task<void> direct_reduce(HostCall call);

}  // namespace aiacc::host
