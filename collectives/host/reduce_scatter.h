// Reduce-scatter: member r reduces slice r of all inputs into its own output, from shared inputs directly and from the
// slots of those whose input is private. Nobody stores into another's memory.
#pragma once

#include "collectives/host/meet.h"

namespace aiacc::host {

Task<void> reduce_scatter(HostCall call);

}  // namespace aiacc::host
