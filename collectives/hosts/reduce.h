// Reduce: each host reduces to its representative (on the root's host the root), and the representatives reduce to the root.
#pragma once

#include "collectives/hosts/hosts_call.h"

namespace aiacc::hosts {

Task<void> reduce(HostsCall& call);

}  // namespace aiacc::hosts
