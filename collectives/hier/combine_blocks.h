// All-to-all, gather and scatter of short blocks: the ranks of a host collect theirs at one of them, these exchange the blocks of
// whole hosts, one message for each pair, and hand on what came. A host so sends and receives one message where its m ranks would
// exchange m² with another host's m, or m with a root.
//
// For short blocks: each byte is copied on its host, too. Longer blocks travel from rank to rank (exchange_blocks.h), so that all
// links of a host share them.
#pragma once

#include "collectives/hier/hier_call.h"

namespace aiacc::hier {

// Whether blocks of so many bytes, all of one length, are combined where hosts have up to `most` ranks.
bool combines_blocks(Collective kind, std::size_t bytes, std::size_t most) noexcept;

Task<void> combine_blocks(HierCall& call);

}  // namespace aiacc::hier
