// The kinds of process that one binary is: aiaccrun itself, and the keeper and the agent that it starts from its own file
// under their own names.
#pragma once

#include <string>

#include "base/io/host.h"

namespace aiacc::launcher {

inline constexpr const char* kKeeperName = "aiacc-keeper";
inline constexpr const char* kAgentName = "aiacc-agent";

// Is this process, called `name`, a keeper or an agent? Then it runs here, and the value is its exit code.
bool is_role(const std::string& name) noexcept;
int run_role(int argc, char** argv);

// How aiaccrun starts a keeper on this host. Standard input and output are the control channel, as they are over ssh.
io::SpawnSpec keeper_spec(bool isolate);

}  // namespace aiacc::launcher
