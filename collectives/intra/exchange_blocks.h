// All-to-all, gather and scatter on a host: each member copies the blocks addressed to it from the others' memory:
// directly from shared buffers, through the kernel from private buffers if every member is permitted to, and through
// slots otherwise. One barrier before and one after; S bytes in and out of a core, 2S if blocks are staged. No member
// stores into another's memory. Private blocks that fit into a slot, of which each of n members has 1/n, are always staged, and so are those of a gather, where
// the others copy while the root does: that takes 0.4 to 0.7 of the time of reads through the kernel (bench/host, 2 ranks).
//
// In an uneven call only the two ends of a block know its length: each member publishes a table of the lengths of its
// blocks, and the receiver of a block compares.
//
// In place (an even all-to-all) a block is overwritten by the one from its destination. Therefore blocks go through
// slots, and no member copies chunk k out before every member has written its chunk k into the slots.
#pragma once

#include "collectives/intra/arrive.h"

namespace aiacc::intra {

Task<void> exchange_blocks(Operation& op);

}  // namespace aiacc::intra
