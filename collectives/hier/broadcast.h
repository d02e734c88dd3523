// Broadcast: the root's buffer goes to a representative of each host, and from there to the host's other members; in
// slices, so that one slice travels between hosts while the previous one is distributed on them.
#pragma once

#include "collectives/hier/hier_call.h"

namespace aiacc::hier {

Task<void> broadcast(HierCall& call);

}  // namespace aiacc::hier
