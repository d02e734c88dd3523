// All-to-all, gather and scatter on a host: each member copies the blocks that are meant for it out of the others' memory,
// from shared buffers directly, from private ones through the kernel where every member may, and through slots otherwise.
// One meeting before and one after; S bytes in and out of a core, 2S where blocks are staged. Nobody stores into another's
// memory.
//
// Of an uneven call only the two ends of a block know its length: each member leaves a table of what it has for whom where
// the others can read it, and whoever takes a block compares.
//
// In place (an even all-to-all) a block is overwritten by the one that comes from where it goes: blocks go through slots, and
// chunk k of none is taken before chunk k of all is in the slots.
#pragma once

#include "collectives/host/meet.h"

namespace aiacc::host {

Task<void> exchange_blocks(Operation& op);

}  // namespace aiacc::host
