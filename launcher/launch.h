// launcher: aiaccrun from its arguments to its exit code. Rooms below: cli, plan, head, agent, stdio, channel. Not
// here: what a rank does after it has started (runtime).
#pragma once

namespace aiacc::launcher {

int launch(int argc, char** argv);

}  // namespace aiacc::launcher
