// Runs the program of a SpawnSpec: fork, the child's steps before exec, and its report of a failure.
#pragma once

#include "base/fd.h"
#include "base/io/host.h"

namespace aiacc::io {

struct Spawned {
  ProcessId id = 0;
  Fd in, out, err, channel;  // the parent's ends
  int unbound = 0;           // errno, if the kernel refused the binding
};

// Returns when the program runs. Throws SpawnError with exec's errno if it could not be executed, kSystem naming the cause
// for everything before (working directory, limits). A failed child has been reaped.
Spawned spawn_process(const SpawnSpec& spec);

// The paths to try for a program: its name if that has a slash, otherwise one in each folder of PATH in `env`.
std::vector<std::string> program_candidates(const SpawnSpec& spec);

}  // namespace aiacc::io
