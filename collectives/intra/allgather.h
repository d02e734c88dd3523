// Allgather: every member copies from every other member's input if it is shared, otherwise from that member's slots.
// (n + 1)S or (n + 2)S bytes through a core for S bytes of input, n of which are the output's own.
#pragma once

#include "collectives/intra/arrive.h"

namespace aiacc::intra {

Task<void> allgather(IntraCall call);

}  // namespace aiacc::intra
