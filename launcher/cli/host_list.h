// Parses lists of hosts: the value of --host, and the lines of a --hostfile.
//
//   entry = [USER@]NAME[:SLOTS]                     an IPv6 address with slots needs brackets: [fd00::1]:4
//   line  = entry {slots=N | port=N | user=NAME}    a line of a file; '#' begins a comment
//                                                   max_slots=N of Open MPI's files has no effect
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/cli/options.h"

namespace aiacc::launcher {

inline constexpr std::size_t kHostFileLimit = std::size_t{1} << 20;

// `typed` is the option as the user wrote it. Throws UsageError.
std::vector<HostSpec> parse_hosts(std::string_view typed, std::string_view text);

// `text` is the content of the file called `file`. Throws UsageError that names file and line.
// `slots`: of a line that gives none.
std::vector<HostSpec> parse_host_file(const std::string& file, std::string_view text, int slots = 1);

}  // namespace aiacc::launcher
