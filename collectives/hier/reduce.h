// Reduce: each host reduces to its representative (the root on the root's host), and the representatives reduce to the
// root.
#pragma once

#include "collectives/hier/hier_call.h"

namespace aiacc::hier {

Task<void> reduce(HierCall& call);

}  // namespace aiacc::hier
