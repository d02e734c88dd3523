#include "runtime/info/host_limits.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "base/io/limits.h"
#include "base/io/procfs.h"

namespace aiacc::info {

namespace {

rlimit limit_of(__rlimit_resource_t resource) {
  rlimit limit{};
  getrlimit(resource, &limit);
  return limit;
}

std::optional<std::uint64_t> number(const std::optional<std::string>& text) {
  std::istringstream in(text.value_or(""));
  std::uint64_t value = 0;
  if (!(in >> value)) return std::nullopt;
  return value;
}

// pids.max has the same name in both versions of control groups; the lowest limit of all groups applies.
std::optional<ProcessRoom> process_room(const ReadFile& read_file) {
  std::optional<ProcessRoom> least;
  for (const CgroupVersion version : {CgroupVersion::kTwo, CgroupVersion::kOne}) {
    for (const std::string& folder : cgroup_folders(read_file, version, "pids")) {
      const std::optional<std::uint64_t> most = number(read_file(folder + "/pids.max"));
      if (!most) continue;
      const ProcessRoom room{*most, number(read_file(folder + "/pids.current")).value_or(0), folder + "/pids.max"};
      if (!least || room.most - std::min(room.most, room.now) < least->most - std::min(least->most, least->now)) {
        least = room;
      }
    }
  }
  return least;
}

// RLIMIT_NPROC counts the user's threads, which are those of every process whose directory in /proc the user owns.
std::uint64_t threads_of(uid_t user, const ReadFile& read_file) {
  std::uint64_t threads = 0;
  for (const io::ProcessLine& process : io::read_processes()) {
    const std::string status = read_file(fmt::format("/proc/{}/status", process.id)).value_or("");
    const std::size_t uid = status.find("\nUid:");
    const std::size_t count = status.find("\nThreads:");
    if (uid == std::string::npos || count == std::string::npos) continue;
    if (number(status.substr(uid + 5)) == user) threads += number(status.substr(count + 9)).value_or(1);
  }
  return threads;
}

bool may_lock_any_memory(const ReadFile& read_file) {
  constexpr unsigned kCapIpcLock = 14;
  const std::string status = read_file("/proc/self/status").value_or("");
  const std::size_t found = status.find("\nCapEff:");
  if (found == std::string::npos) return false;
  std::istringstream in(status.substr(found + 8));
  std::uint64_t mask = 0;
  return static_cast<bool>(in >> std::hex >> mask) && (mask >> kCapIpcLock & 1) != 0;
}

Json value_of(rlim_t value, bool bytes) {
  if (value == RLIM_INFINITY) return "unlimited";
  return bytes ? Json(bytes_text(value)) : Json(value);
}

Json row(std::string_view name, const rlimit& limit, bool bytes, std::string_view ulimit) {
  return Json::Object{{"name", name},
                      {"soft", value_of(limit.rlim_cur, bytes)},
                      {"hard", value_of(limit.rlim_max, bytes)},
                      {"where", ulimit}};
}

}  // namespace

HostLimits HostLimits::read(const ReadFile& read_file) {
  HostLimits limits;
  limits.memlock = limit_of(RLIMIT_MEMLOCK);
  limits.open_files = limit_of(RLIMIT_NOFILE);
  limits.processes = limit_of(RLIMIT_NPROC);
  limits.address_space = limit_of(RLIMIT_AS);
  limits.file_size = limit_of(RLIMIT_FSIZE);
  limits.processes_bind = getuid() != 0;
  limits.memlock_binds = !may_lock_any_memory(read_file);
  if (limits.processes_bind) limits.own_processes = threads_of(getuid(), read_file);
  limits.process_room = info::process_room(read_file);
  limits.memory = memory_room(read_file);
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof mask, &mask) == 0) limits.units = static_cast<std::uint64_t>(CPU_COUNT(&mask));
  limits.cores = static_cast<unsigned>(limits.units);
  return limits;
}

Json to_json(const HostLimits& limits) {
  Json::Array rows;
  rows.push_back(row("memory that may be locked", limits.memlock, true, "ulimit -l"));
  rows.push_back(row("open files", limits.open_files, false, "ulimit -n"));
  rows.push_back(row("processes of this user", limits.processes, false, "ulimit -u"));
  rows.push_back(row("address space", limits.address_space, true, "ulimit -v"));
  rows.push_back(row("file size", limits.file_size, true, "ulimit -f"));
  if (limits.process_room) {
    rows.push_back(Json::Object{{"name", "processes of the control group"},
                                {"soft", limits.process_room->most},
                                {"used", limits.process_room->now},
                                {"where", limits.process_room->where}});
  }
  if (limits.cpus > 0) {
    rows.push_back(Json::Object{
        {"name", "processor time"}, {"soft", fmt::format("{:g} CPUs", limits.cpus)}, {"where", limits.quota_where}});
  }
  rows.push_back(
      Json::Object{{"name", "memory left"}, {"soft", bytes_text(limits.memory.bytes)}, {"where", limits.memory.limit}});
  return rows;
}

}  // namespace aiacc::info
