// Where the control groups of this process are: their folders, for whoever reads a limit that no system call reports.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace aiacc {

using ReadFile = std::function<std::optional<std::string>(const std::string& path)>;

enum class CgroupVersion { kOne, kTwo };

// The folder of this process's group and of each of its ancestors that the mount shows, innermost first; empty if there is
// none. `controller` ("cpu", "memory") matters in version 1. Reads /proc/self/cgroup and /proc/self/mountinfo.
std::vector<std::string> cgroup_folders(const ReadFile& read_file, CgroupVersion version, std::string_view controller);

}  // namespace aiacc
