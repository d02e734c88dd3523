// All-to-all in n steps: in step s the ranks whose numbers sum to s (mod n) exchange their blocks, so that every step
// pairs all ranks and each pair exchanges once, for odd n too. Cost: n(α + Bβ) for blocks of B bytes; several steps run
// concurrently.
//
// In place, a block is overwritten by the one from the rank that it is sent to, so it is sent from a copy in scratch memory; long
// blocks go one at a time then, so that one copy is enough.
#pragma once

#include "collectives/inter/algorithm_info.h"
#include "collectives/operation.h"

namespace aiacc::inter {

Task<void> alltoall(Operation& op);
extern const AlgorithmInfo kPairwiseAlltoallInfo;

}  // namespace aiacc::inter
