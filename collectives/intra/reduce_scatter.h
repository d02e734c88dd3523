// Reduce-scatter: member r reduces slice r of all inputs into its own output, directly from shared inputs and from
// slots for private ones. No member stores into another's memory.
#pragma once

#include "collectives/intra/arrive.h"

namespace aiacc::intra {

Task<void> reduce_scatter(IntraCall call);

}  // namespace aiacc::intra
