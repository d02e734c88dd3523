// Reads information about processes from /proc.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/io/host.h"

namespace aiacc::io {

struct ProcessLine {
  ProcessId id = 0;
  ProcessId parent = 0;
  char state = 0;
  std::uint64_t began = 0;  // start time in ticks since boot, as this time namespace counts
};

// From /proc/PID/stat; nullopt if there is no such process (any more).
std::optional<ProcessLine> read_process(ProcessId process);
// Every process in /proc, from one walk: not a snapshot, because processes start and end meanwhile.
std::vector<ProcessLine> read_processes();
// Those of `all` that descend from `root`, parents before children; `root` itself is not among them.
std::vector<ProcessLine> descendants_of(ProcessId root, const std::vector<ProcessLine>& all);

// The content of a file; nullopt if there is none. Throws kSystem if it cannot be read or is too large.
std::optional<std::string> read_small_file(const std::string& path);

}  // namespace aiacc::io
