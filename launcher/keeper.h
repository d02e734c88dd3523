// Keeper: starts the agent and waits. It inherits, as a subreaper, whatever loses its parent, so that when the agent dies
// no descendant is out of reach: it ends them all and then itself. It reads nothing, and nothing can make it busy.
#pragma once

#include "base/io/host.h"
#include "base/task/loop.h"

namespace aiacc::launcher {

// Returns how the agent ended, when no descendant lives any more. `agent` asks for a channel, whose end tells the agent that
// the keeper died. `started` is called once the agent runs: the place to let go of what only the agent shall hold.
Task<io::ExitStatus> keep(Loop& loop, io::Host& host, io::SpawnSpec agent, void (*started)(), Stop& stop);

}  // namespace aiacc::launcher
