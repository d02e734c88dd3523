// All-to-all, gather and scatter of short blocks: the ranks of a host collect theirs at one of them, these exchange the blocks of
// whole hosts, and hand on what came. A host of m ranks so exchanges one block with another where there are m² from rank to rank, or m
// with a root.
//
// For short blocks: each byte is copied on its host, too. Longer blocks travel from rank to rank (exchange_blocks.h), so that all
// links of a host share them.
#pragma once

#include "collectives/hier/hier_call.h"

namespace aiacc::hier {

// The most bytes of blocks, all of one length, that are combined where hosts have up to `most` ranks; and how many blocks make up what
// two hosts exchange then.
std::size_t longest_combined(Collective kind, std::size_t most) noexcept;
std::size_t blocks_of_hosts(Collective kind, std::size_t most) noexcept;

Task<void> combine_blocks(HierCall& call);

}  // namespace aiacc::hier
