// All-gather of arbitrary extents, for groups over several hosts: every member copies each owner's extents, directly
// from a shared buffer and from the owner's slots otherwise.
#pragma once

#include <span>

#include "collectives/intra/arrive.h"
#include "collectives/intra/extents.h"

namespace aiacc::intra {

// The first owners.size() members own extents of the output, op.recv; each has filled its extents in its own buffer.
// The caller holds the team's turn.
Task<void> spread_extents(Operation& op, std::span<const Extents> owners);

}  // namespace aiacc::intra
