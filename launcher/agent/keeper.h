// Keeper: starts the agent and waits. It is a subreaper and so adopts orphaned descendants; when the agent dies, it
// kills all descendants and then exits. It reads no input, so nothing can block or load it.
#pragma once

#include "base/io/host.h"
#include "base/task/loop.h"

namespace aiacc::launcher {

// Returns the agent's exit status when no descendant is left. `agent` requests a channel; its end of stream tells the
// agent that the keeper died. `started` is called once the agent runs; there the keeper closes what only the agent
// should hold.
Task<io::ExitStatus> keep(Loop& loop, io::Host& host, io::SpawnSpec agent, void (*started)(), Stop& stop);

}  // namespace aiacc::launcher
