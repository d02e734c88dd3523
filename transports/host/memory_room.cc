#include "transports/host/memory_room.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <sstream>

#include "base/error.h"

namespace aiacc {
namespace {

std::optional<std::uint64_t> number(const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  std::istringstream in(*text);
  std::uint64_t value = 0;
  if (!(in >> value)) return std::nullopt;  // "max"
  return value;
}

// The number after `key` at the beginning of a line; 0 if there is none.
std::uint64_t field(const std::string& text, const std::string& key) {
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(key)) return number(line.substr(key.size())).value_or(0);
  }
  return 0;
}

struct Files {
  const char* limit;
  const char* use;
  const char* active;
  const char* inactive;
};
constexpr Files kVersionOne{"/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_active_file ",
                            "total_inactive_file "};
constexpr Files kVersionTwo{"/memory.max", "/memory.current", "active_file ", "inactive_file "};

std::optional<MemoryRoom> room_of_group(const ReadFile& read_file, const std::string& folder, const Files& files) {
  const std::optional<std::uint64_t> limit = number(read_file(folder + files.limit));
  if (!limit || *limit >= std::uint64_t{1} << 62) return std::nullopt;  // version 1 writes "no limit" as a huge number
  const std::uint64_t use = number(read_file(folder + files.use)).value_or(0);
  const std::string stat = read_file(folder + "/memory.stat").value_or("");
  const std::uint64_t droppable = std::min(field(stat, files.active) + field(stat, files.inactive), use);
  const std::uint64_t kept = use - droppable;
  return MemoryRoom{
      kept >= *limit ? 0 : *limit - kept,
      fmt::format("{} is {}, of which {} are used", folder + files.limit, bytes_text(*limit), bytes_text(kept))};
}

}  // namespace

MemoryRoom memory_room(const ReadFile& read_file) {
  MemoryRoom least;
  const std::uint64_t available = field(read_file("/proc/meminfo").value_or(""), "MemAvailable:") * 1024;
  if (available > 0) least = {available, fmt::format("MemAvailable of the host is {}", bytes_text(available))};
  for (const CgroupVersion version : {CgroupVersion::kTwo, CgroupVersion::kOne}) {
    const Files& files = version == CgroupVersion::kTwo ? kVersionTwo : kVersionOne;
    for (const std::string& folder : cgroup_folders(read_file, version, "memory")) {
      const std::optional<MemoryRoom> room = room_of_group(read_file, folder, files);
      if (room && room->bytes < least.bytes) least = *room;
    }
  }
  return least;
}

std::optional<std::string> read_host_file(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;  // operator<< takes a failed read as the end: some files of /sys open but cannot be read
  if (!in || !(text << in.rdbuf())) return std::nullopt;
  return text.str();
}

void require_memory(std::uint64_t bytes, const std::string& what, const ReadFile& read_file) {
  const MemoryRoom room = memory_room(read_file);
  if (bytes <= room.bytes) return;
  throw Error(Code::kOutOfMemory,
              fmt::format("{} {} of shared memory, but only {} are left ({}): use fewer ranks or raise the limit", what,
                          bytes_text(bytes), bytes_text(room.bytes), room.limit));
}

std::string bytes_text(std::uint64_t bytes) {
  static constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} bytes", bytes) : fmt::format("{:.4g} {}", value, kUnits[unit]);
}

}  // namespace aiacc
