// All-gather of any extents, as groups over several hosts need it: everybody copies each owner's extents, out of a shared
// buffer directly and out of the owner's slots otherwise.
#pragma once

#include <span>

#include "collectives/host/extents.h"
#include "collectives/host/meet.h"

namespace aiacc::host {

// The first owners.size() members own extents of the output, op.recv, and have filled them in theirs. The caller holds the
// team's turn.
Task<void> spread_extents(Operation& op, std::span<const Extents> owners);

}  // namespace aiacc::host
