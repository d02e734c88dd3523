// Broadcast: the root's buffer goes to a representative of each host, and from there to the host's other members; in slices, so
// that one is between hosts while the one before is given out on them.
#pragma once

#include "collectives/hosts/hosts_call.h"

namespace aiacc::hosts {

Task<void> broadcast(HostsCall& call);

}  // namespace aiacc::hosts
