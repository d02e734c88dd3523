// From a SpawnSpec to a running program: fork, what the child does before exec, and how it reports what failed.
#pragma once

#include "base/fd.h"
#include "base/io/host.h"

namespace aiacc::io {

struct Spawned {
  ProcessId id = 0;
  Fd in, out, err, channel;  // our ends
  int unbound = 0;           // errno, if the kernel refused the binding
};

// Returns when the program runs. Throws SpawnError with exec's errno if it could not be executed, kSystem naming the cause
// for everything before (working directory, limits). A failed child has been reaped.
Spawned spawn_process(const SpawnSpec& spec);

// Where a program is looked for: itself if it has a slash, otherwise in each folder of PATH in `env`.
std::vector<std::string> program_candidates(const SpawnSpec& spec);

}  // namespace aiacc::io
