// Chooses and runs the algorithm for a call among the group's members on this host (all of the group, or some), and
// cleans up after a failed one.
#pragma once

#include "collectives/intra/intra_team.h"

namespace aiacc::intra {

// Runs the call to its end; for a send or recv, `root` must be another rank. After an error no process changes the
// operation's buffers any more, and the team serves no further call.
Task<void> run(Operation& op);
// As run(), for a collective whose caller holds the team's turn.
Task<void> run_in_turn(Operation& op);

}  // namespace aiacc::intra
