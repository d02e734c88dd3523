// The descendants of agent and keeper: finding the rank that a process belongs to, and killing them all.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/io/host.h"
#include "launcher/head/escalation.h"

namespace aiacc::launcher {

// The fields of /proc/PID/stat that are used here.
struct ProcessStat {
  std::string name;  // at most 15 bytes
  char state = 0;
  io::ProcessId parent = 0;
  io::ProcessId group = 0;
};
// nullopt if the text is not that of a stat file. The name may contain anything, also parentheses and spaces.
std::optional<ProcessStat> parse_process_stat(std::string_view text);
std::optional<ProcessStat> read_process_stat(io::Host& host, io::ProcessId process);

// Which of `roots` (processes of ranks) `process` is or descends from, by its parents; an orphan that was reparented to
// `adopter` is known by its process group. -1: none of them. `adopted` is set when the process does descend from
// `adopter`, so that an orphan in its own session can be distinguished from an unrelated process.
struct Ancestry {
  int root = -1;
  bool adopted = false;
};
Ancestry find_ancestry(io::Host& host, io::ProcessId process, std::span<const io::ProcessId> roots,
                       io::ProcessId adopter);

// "python (8812), sh (8813) and 3 more".
std::string describe_processes(io::Host& host, std::span<const io::ProcessId> processes);

// Sends KILL to all descendants of this process until none is left. Gives up after `limit` (a process in
// uninterruptible sleep cannot be killed) and returns those that are left.
Task<std::vector<io::ProcessId>> kill_descendants(Loop& loop, io::Host& host, Duration limit, Stop& stop);
// The same for the descendants in one process group.
Task<std::vector<io::ProcessId>> kill_group(Loop& loop, io::Host& host, io::ProcessId group, Duration limit,
                                            Stop& stop);

// Sends TERM and CONT to all descendants, and KILL to those that are left after `grace`. Returns the initial
// descendants.
Task<std::vector<io::ProcessId>> end_descendants(Loop& loop, io::Host& host, Duration grace, Stop& stop);

}  // namespace aiacc::launcher
