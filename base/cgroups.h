// The folders of this process's control groups, for code that reads a limit that no system call reports.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace aiacc {

using ReadFile = std::function<std::optional<std::string>(const std::string& path)>;

enum class CgroupVersion { kOne, kTwo };

// The folders of this process's group and of its mounted ancestors, innermost first; empty if there are none.
// `controller` ("cpu", "memory") matters in version 1 only. Reads /proc/self/cgroup and /proc/self/mountinfo.
std::vector<std::string> cgroup_folders(const ReadFile& read_file, CgroupVersion version, std::string_view controller);

}  // namespace aiacc
