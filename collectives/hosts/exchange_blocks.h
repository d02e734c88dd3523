// All-to-all, gather and scatter: blocks between ranks of one host pass through its memory, all others are messages from rank
// to rank. Both go on side by side.
#pragma once

#include "collectives/hosts/hosts_call.h"

namespace aiacc::hosts {

Task<void> exchange_blocks(HostsCall& call);

}  // namespace aiacc::hosts
