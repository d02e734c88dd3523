// Reduce-scatter of arbitrary extents, for groups over several hosts: each owner reduces its extents of all members'
// inputs, directly from shared inputs and from slots for private ones. No member stores into another's memory.
#pragma once

#include <span>

#include "collectives/intra/arrive.h"
#include "collectives/intra/extents.h"

namespace aiacc::intra {

// The first owners.size() members own extents of the input, op.send. The reduced stream of this member's extents goes
// to `into`, which may be the extent in op.send itself if it is a single extent and results are not partial sums.
// The caller holds the team's turn.
Task<void> reduce_extents(Operation& op, std::span<const Extents> owners, Buffer into);

}  // namespace aiacc::intra
