// All-to-all, gather and scatter: blocks between ranks of one host pass through its memory, all others are messages
// from rank to rank. Both proceed concurrently.
#pragma once

#include "collectives/hier/hier_call.h"

namespace aiacc::hier {

Task<void> exchange_blocks(HierCall& call);

}  // namespace aiacc::hier
