// Allreduce and reduce if every buffer is in the host's shared memory: member r reduces slice r of all inputs in one
// pass and stores it into all outputs. With n members of S bytes each core moves 2S, the lower bound (n loads and n
// stores of S/n), with two barriers. Compare "direct" in Jocksch et al., IJHPCA 2025.
#pragma once

#include "collectives/intra/arrive.h"

namespace aiacc::intra {

// Whether all members' buffers allow it. All members decide alike, from the arrivals.
bool can_reduce_directly(const IntraCall& call);
Task<void> direct_reduce(IntraCall call);

}  // namespace aiacc::intra
