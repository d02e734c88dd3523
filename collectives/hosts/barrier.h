// Barrier: the members of each host meet, their leaders meet, and the members meet again to hear of it.
#pragma once

#include "collectives/hosts/hosts_call.h"

namespace aiacc::hosts {

Task<void> barrier(HostsCall& call);

}  // namespace aiacc::hosts
