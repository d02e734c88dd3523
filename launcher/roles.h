// The roles of the one binary: aiaccrun itself, and keeper and agent, which it starts from its own file under their own
// names, on this host or another.
#pragma once

#include <string>
#include <vector>

#include "base/io/host.h"

namespace aiacc::launcher {

inline constexpr const char* kKeeperName = "aiacc-keeper";
inline constexpr const char* kAgentName = "aiacc-agent";
// The first argument of an aiaccrun that is started on another host, and the one that may follow it.
inline constexpr const char* kRemoteKeeper = "--remote-keeper";
inline constexpr const char* kIsolateWord = "--isolate";

// Whether this process is a keeper or an agent. If so, run_role() runs it and returns its exit code.
bool is_role(int argc, char** argv) noexcept;
int run_role(int argc, char** argv);

// How aiaccrun starts a keeper on this host. Standard input and output are the control channel, as they are over ssh.
io::SpawnSpec keeper_spec(bool isolate);
// How aiaccrun starts the command (ssh, for example) that runs a keeper on another host.
io::SpawnSpec starter_spec(std::vector<std::string> command, std::vector<std::string> environment);

}  // namespace aiacc::launcher
