// Which algorithm on this host serves a call of the members that are here, who may be all of the group; and the end of those
// that fail.
#pragma once

#include "collectives/host/host_team.h"

namespace aiacc::host {

// Runs the call to its end; of a send or recv, `root` is another rank. After an error no process changes the operation's
// buffers any more, and the team serves no further call.
Task<void> run(Operation& op);
// The same for a collective whose caller holds the team's turn.
Task<void> run_in_turn(Operation& op);

}  // namespace aiacc::host
