// Reduce-scatter of any extents, as groups over several hosts need it: each owner reduces its extents of all members' inputs,
// from shared inputs directly and from the slots of those whose input is private. Nobody stores into another's memory.
#pragma once

#include <span>

#include "collectives/host/extents.h"
#include "collectives/host/meet.h"

namespace aiacc::host {

// The first owners.size() members own extents of the input, op.send; this one's stream of them, reduced, goes into `into`,
// which may be that very extent of op.send if it is one and no partial sum (Partial::kResult). The caller holds the team's turn.
Task<void> reduce_extents(Operation& op, std::span<const Extents> owners, Buffer into);

}  // namespace aiacc::host
