// Reduce: each host reduces to its representative (the root on the root's host), and the representatives reduce to the
// root. Long payloads go in slices: one is reduced on the hosts while others are between them.
#pragma once

#include "collectives/hier/hier_call.h"

namespace aiacc::hier {

Task<void> reduce(HierCall& call);

}  // namespace aiacc::hier
