#include "base/io/limits.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <optional>

#include "base/io/procfs.h"

namespace aiacc::io {
namespace {

std::string shown_limit(rlim_t value) { return value == RLIM_INFINITY ? "unlimited" : fmt::format("{}", value); }

rlimit limit_of(__rlimit_resource_t resource) {
  rlimit limit{};
  getrlimit(resource, &limit);
  return limit;
}

// A global, because the limit is kernel state of the process and not of a rank.
struct DescriptorLimit {
  std::mutex mutex;
  std::optional<rlimit> original;
};
DescriptorLimit& descriptor_limit() {
  static DescriptorLimit limit;
  return limit;
}

}  // namespace

Error limit_error(std::string_view what, int errno_value) {
  if (errno_value == EMFILE) {
    const rlimit limit = limit_of(RLIMIT_NOFILE);
    return Error(Code::kSystem,
                 fmt::format("{}: this process has used up its {} file descriptors (hard limit {}); raise it with "
                             "'ulimit -n' or the LimitNOFILE of the service",
                             what, shown_limit(limit.rlim_cur), shown_limit(limit.rlim_max)));
  }
  if (errno_value == ENFILE) {
    return Error(Code::kSystem, fmt::format("{}: the system has no file descriptors left; raise the sysctl fs.file-max "
                                            "or end other processes",
                                            what));
  }
  if (errno_value == EAGAIN) {
    return Error(
        Code::kSystem,
        fmt::format("{}: no more processes are allowed: this user's limit is {} ('ulimit -u'), and a container's "
                    "or service's pids limit (pids.max, TasksMax) may be lower; raise the one that was reached "
                    "or start fewer ranks",
                    what, shown_limit(limit_of(RLIMIT_NPROC).rlim_cur)));
  }
  return system_error(what, errno_value);
}

int checked_descriptor(int descriptor, std::string_view what) {
  if (descriptor < 0) throw limit_error(what, errno);
  return descriptor;
}

void raise_descriptor_limit() {
  DescriptorLimit& state = descriptor_limit();
  const std::lock_guard lock(state.mutex);
  if (state.original) return;
  rlimit limit = limit_of(RLIMIT_NOFILE);
  const rlimit original = limit;
  if (limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) == 0) state.original = original;  // if refused, the lower limit may suffice
}

rlimit original_descriptor_limit() {
  DescriptorLimit& state = descriptor_limit();
  const std::lock_guard lock(state.mutex);
  return state.original.value_or(limit_of(RLIMIT_NOFILE));
}

std::optional<std::uint64_t> lockable_bytes() {
  const rlimit limit = limit_of(RLIMIT_MEMLOCK);
  if (limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  constexpr unsigned kCapIpcLock = 14;
  constexpr std::string_view kName = "\nCapEff:\t";
  const std::string status = read_small_file("/proc/self/status").value_or("");
  const std::size_t found = status.find(kName);
  if (found != std::string::npos) {
    const std::uint64_t mask = std::strtoull(status.c_str() + found + kName.size(), nullptr, 16);
    if ((mask >> kCapIpcLock & 1) != 0) return std::nullopt;
  }
  return limit.rlim_cur;
}

}  // namespace aiacc::io
