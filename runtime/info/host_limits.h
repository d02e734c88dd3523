// The kernel's limits on the processes of a job on this host, and which of them will affect it.
#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <optional>
#include <string>

#include "base/cgroups.h"
#include "base/json.h"
#include "runtime/info/finding.h"
#include "transports/host/memory_room.h"

namespace aiacc::info {

// A control group's limit on the number of processes.
struct ProcessRoom {
  std::uint64_t most = 0;
  std::uint64_t now = 0;
  std::string where;  // the file that says so
};

struct HostLimits {
  rlimit memlock{};
  rlimit open_files{};
  rlimit processes{};
  rlimit address_space{};
  rlimit file_size{};
  bool processes_bind = true;       // the process limit applies (it does not for root)
  bool memlock_binds = true;        // that on locked memory applies (it does not with CAP_IPC_LOCK)
  bool rdma = false;                // ranks use devices that want memory locked
  std::uint64_t own_processes = 0;  // of this user, threads included
  std::optional<ProcessRoom> process_room;
  MemoryRoom memory;
  unsigned cores = 1;       // usable ones: as many ranks as a job here would have
  double cpus = 0;          // of the quota; 0: none
  std::uint64_t units = 1;  // processing units of the mask
  std::string quota_where;  // the file that says so
  // Of the segment of a host with a rank on each usable core.
  std::uint64_t segment_bytes = 0;

  // Of this process, now. `units` come from its mask, `cores` with them: whoever knows the topology corrects that.
  static HostLimits read(const ReadFile& read_file);
};

Json to_json(const HostLimits& limits);
Findings judge(const HostLimits& limits);

}  // namespace aiacc::info
