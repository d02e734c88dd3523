#include "base/cgroups.h"

#include <sstream>

namespace aiacc {
namespace {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, separator);) parts.push_back(part);
  return parts;
}

bool contains(const std::vector<std::string>& parts, std::string_view wanted) {
  for (const std::string& part : parts) {
    if (part == wanted) return true;
  }
  return false;
}

// /proc escapes blanks and other special characters in paths as octal codes such as \040.
std::string unescape(const std::string& text) {
  const auto octal = [](char c) { return c >= '0' && c <= '7'; };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size() && octal(text[i + 1]) && octal(text[i + 2]) && octal(text[i + 3])) {
      out += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

struct Mount {
  std::string root;   // which group of the hierarchy is mounted
  std::string point;  // where
};

// A line of mountinfo: id parent device root point options tags... - type source super-options
std::optional<Mount> find_mount(const std::string& mountinfo, CgroupVersion version, std::string_view controller) {
  for (const std::string& line : split(mountinfo, '\n')) {
    const std::vector<std::string> words = split(line, ' ');
    std::size_t dash = 6;
    while (dash < words.size() && words[dash] != "-") ++dash;
    if (dash + 1 >= words.size()) continue;
    const bool controller_here = dash + 3 < words.size() && contains(split(words[dash + 3], ','), controller);
    const bool fits =
        version == CgroupVersion::kTwo ? words[dash + 1] == "cgroup2" : words[dash + 1] == "cgroup" && controller_here;
    if (fits) return Mount{unescape(words[3]), unescape(words[4])};
  }
  return std::nullopt;
}

// A line of /proc/self/cgroup: id:controllers:path. Version 2 has id 0 and no controllers.
std::optional<std::string> find_group(const std::string& groups, CgroupVersion version, std::string_view controller) {
  for (const std::string& line : split(groups, '\n')) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool fits =
        version == CgroupVersion::kTwo ? line.starts_with("0::") : contains(split(controllers, ','), controller);
    if (fits) return line.substr(second + 1);
  }
  return std::nullopt;
}

// The group's folder and all its ancestors up to the mount point. For a group outside the mounted part of the hierarchy
// (a container that shares its host's cgroup namespace) only the mount point.
std::vector<std::string> folders(const Mount& mount, const std::string& group) {
  const std::string root = mount.root == "/" ? "" : mount.root;
  std::string below;
  if (group.starts_with(root) && (group.size() == root.size() || group[root.size()] == '/'))
    below = group.substr(root.size());
  if (below.find("/..") != std::string::npos) below.clear();
  while (below.ends_with('/')) below.pop_back();
  std::vector<std::string> out;
  while (!below.empty()) {
    out.push_back(mount.point + below);
    below.erase(below.rfind('/'));
  }
  out.push_back(mount.point);
  return out;
}

}  // namespace

std::vector<std::string> cgroup_folders(const ReadFile& read_file, CgroupVersion version, std::string_view controller) {
  const std::string mountinfo = read_file("/proc/self/mountinfo").value_or("");
  const std::string groups = read_file("/proc/self/cgroup").value_or("");
  const std::optional<Mount> mount = find_mount(mountinfo, version, controller);
  const std::optional<std::string> group = find_group(groups, version, controller);
  if (!mount || !group) return {};
  return folders(*mount, *group);
}

}  // namespace aiacc
