// How much processor time the control groups of this process grant: hwloc sees cpusets but no quota.
#pragma once

#include <optional>

#include "base/cgroups.h"
#include "base/topology/topology.h"

namespace aiacc {

// The lowest of cpu.max (version 2) and cpu.cfs_quota_us (version 1) over this process's groups and all their mounted
// ancestors; nullopt if there is no limit. `read_file` reads /proc/self/cgroup, /proc/self/mountinfo and the groups'
// files; files that cannot be read count as no limit.
std::optional<Topology::Quota> read_cpu_quota(const ReadFile& read_file);

}  // namespace aiacc
