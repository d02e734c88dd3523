// Broadcast. If the root's buffer is shared, every member copies from it; otherwise the root writes chunks into its
// slots, from which every member copies: 2S at the root and 2S at the others, concurrently.
#pragma once

#include "collectives/intra/arrive.h"

namespace aiacc::intra {

Task<void> broadcast(IntraCall call);

}  // namespace aiacc::intra
