#include "launcher/agent/memory_kills.h"

#include <cstdlib>
#include <string_view>

#include "base/cgroups.h"

namespace aiacc::launcher {

namespace {

constexpr std::string_view kKey = "oom_kill ";

// The offset of the counter in a file of lines "name number".
std::size_t counter_at(const std::string& text) {
  if (text.starts_with(kKey)) return kKey.size();
  const std::size_t line = text.find("\n" + std::string(kKey));
  return line == std::string::npos ? line : line + 1 + kKey.size();
}

}  // namespace

MemoryKills::MemoryKills(io::Host& host) : host_(host) {
  struct Place {
    CgroupVersion version;
    const char* file;
  };
  const auto read = [&host](const std::string& path) { return host.read_file(path); };
  for (const Place& place :
       {Place{CgroupVersion::kOne, "/memory.oom_control"}, Place{CgroupVersion::kTwo, "/memory.events"}}) {
    const auto folders = cgroup_folders(read, place.version, "memory");
    if (folders.empty()) continue;
    const std::string file = folders.front() + place.file;
    if (counter_at(host.read_file(file).value_or("")) == std::string::npos) continue;
    file_ = file;
    break;
  }
  seen_ = count();
}

std::uint64_t MemoryKills::count() {
  if (file_.empty()) return 0;
  const std::string text = host_.read_file(file_).value_or("");
  const std::size_t at = counter_at(text);
  return at == std::string::npos ? 0 : std::strtoull(text.c_str() + at, nullptr, 10);
}

bool MemoryKills::take_one() {
  if (count() <= seen_) return false;
  ++seen_;
  return true;
}

}  // namespace aiacc::launcher
