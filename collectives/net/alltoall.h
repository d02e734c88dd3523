// All-to-all in n steps: in step s the ranks whose numbers sum to s (mod n) exchange their blocks, so that every step pairs all
// of them and each pair meets once, also where n is odd. Cost: n(α + Bβ) for blocks of B bytes; several steps run side by side.
//
// In place a block is overwritten by the one that comes from the rank it goes to, so a pair's blocks cross in pieces through
// scratch memory.
#pragma once

#include "collectives/operation.h"

namespace aiacc::net {

Task<void> alltoall(Operation& op);

}  // namespace aiacc::net
