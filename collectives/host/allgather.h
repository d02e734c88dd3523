// Allgather: everybody copies from everybody's shared input, or out of the slots of those whose input is private. (n + 1)S
// or (n + 2)S bytes through a core for S bytes of input, n of which are the output's own.
#pragma once

#include "collectives/host/meet.h"

namespace aiacc::host {

Task<void> allgather(HostCall call);

}  // namespace aiacc::host
