// Barrier: a barrier of the members of each host, a barrier of the hosts' leaders, and a second barrier on each host
// that releases its members.
#pragma once

#include "collectives/hier/hier_call.h"

namespace aiacc::hier {

Task<void> barrier(HierCall& call);

}  // namespace aiacc::hier
