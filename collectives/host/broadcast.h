// Broadcast. If the root's buffer is shared, everybody copies from it; otherwise the root puts chunks into its slots, from
// where everybody copies: 2S at the root and 2S at the others, side by side.
#pragma once

#include "collectives/host/meet.h"

namespace aiacc::host {

Task<void> broadcast(HostCall call);

}  // namespace aiacc::host
