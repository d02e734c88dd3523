// Finds the limits that would affect a job with one rank on each usable core of this host.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/info/host_limits.h"

namespace aiacc::info {

namespace {

constexpr std::uint64_t kProcessesPerRank = 2;    // it, and its helper thread
constexpr std::uint64_t kProcessesPerJob = 4;     // aiaccrun, keeper, agent, and one that starts a rank
constexpr std::uint64_t kDescriptorsPerRank = 8;  // of the agent: pipes, pidfd, the connection of its hello
constexpr std::uint64_t kDescriptorsPerJob = 64;
constexpr std::uint64_t kLockedPerRank = std::uint64_t{256} << 20;  // UCX's buffers, and messages of usual lengths
constexpr std::uint64_t kRoomPerRank = std::uint64_t{64} << 20;     // less than this a rank is not worth starting

Finding hurts(std::string about, std::string sentence, std::string cure) {
  return {Finding::Level::kHurts, std::move(about), std::move(sentence), std::move(cure)};
}

void judge_processes(const HostLimits& limits, Findings& into) {
  const std::uint64_t need = kProcessesPerRank * limits.cores + kProcessesPerJob;
  const rlim_t most = limits.processes.rlim_cur;
  if (limits.processes_bind && most != RLIM_INFINITY && limits.own_processes + need > most) {
    into.push_back(hurts("processes",
                         fmt::format("this user has {} processes and threads of {} allowed, and a job of {} ranks "
                                     "needs {} more",
                                     limits.own_processes, most, limits.cores, need),
                         "raise 'ulimit -u' (nproc in limits.conf)"));
  }
  if (limits.process_room && limits.process_room->now + need > limits.process_room->most) {
    const ProcessRoom& room = *limits.process_room;
    into.push_back(hurts("processes",
                         fmt::format("the control group has {} processes of {} allowed, and a job of {} ranks needs {} "
                                     "more",
                                     room.now, room.most, limits.cores, need),
                         fmt::format("raise {} (docker --pids-limit, TasksMax of the service)", room.where)));
  }
}

void judge_memory(const HostLimits& limits, Findings& into) {
  if (limits.memory.bytes < kRoomPerRank * limits.cores) {
    into.push_back(hurts("memory",
                         fmt::format("{} are left for {} ranks ({})", bytes_text(limits.memory.bytes), limits.cores,
                                     limits.memory.limit),
                         "give the container or the job more memory, or start fewer ranks"));
  }
  const auto too_small = [&](const rlimit& limit) {
    return limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < limits.segment_bytes;
  };
  const std::string need =
      fmt::format("{} ranks share a segment of {} of address space (sparse: what is not used costs nothing)",
                  limits.cores, bytes_text(limits.segment_bytes));
  if (too_small(limits.address_space)) {
    into.push_back(hurts("address space",
                         fmt::format("{}, and a process may have {}", need, bytes_text(limits.address_space.rlim_cur)),
                         "'ulimit -v unlimited'"));
  }
  if (too_small(limits.file_size)) {
    into.push_back(hurts("file size",
                         fmt::format("{}, and a file may have {}", need, bytes_text(limits.file_size.rlim_cur)),
                         "'ulimit -f unlimited'"));
  }
}

void judge_locked_memory(const HostLimits& limits, Findings& into) {
  const rlim_t most = limits.memlock.rlim_cur;
  if (most == RLIM_INFINITY) return;
  if (!limits.rdma) {
    into.push_back({Finding::Level::kNote, "memlock",
                    fmt::format("a process may lock {} of memory; ranks lock none without RDMA", bytes_text(most)),
                    "none needed today; 'ulimit -l unlimited' before RDMA is used"});
  } else if (limits.memlock_binds && most < kLockedPerRank) {
    into.push_back(
        hurts("memlock",
              fmt::format("a process may lock {} of memory, and RDMA locks its buffers and each long message "
                          "on its way: connections or messages fail above that",
                          bytes_text(most)),
              "'ulimit -l unlimited' (memlock in limits.conf, LimitMEMLOCK of the service, docker --ulimit "
              "memlock=-1)"));
  }
}

}  // namespace

Findings judge(const HostLimits& limits) {
  Findings found;
  // Only the hard limit counts: the agent raises the soft limit to it.
  const std::uint64_t files = kDescriptorsPerRank * limits.cores + kDescriptorsPerJob;
  if (limits.open_files.rlim_max != RLIM_INFINITY && limits.open_files.rlim_max < files) {
    found.push_back(hurts("open files",
                          fmt::format("a process may have {} open files, and the agent of {} ranks needs {}",
                                      limits.open_files.rlim_max, limits.cores, files),
                          "raise 'ulimit -Hn' (nofile in limits.conf, LimitNOFILE of the service)"));
  }
  judge_processes(limits, found);
  judge_memory(limits, found);
  if (limits.cpus > 0 && limits.cpus < static_cast<double>(limits.units)) {
    found.push_back(
        hurts("processor time",
              fmt::format("the control group grants the time of {:g} CPUs and shows {} processing units: more "
                          "ranks than the former stand still in turn",
                          limits.cpus, limits.units),
              fmt::format("start at most {} ranks here, or raise {}", std::max(1u, static_cast<unsigned>(limits.cpus)),
                          limits.quota_where)));
  }
  judge_locked_memory(limits, found);
  return found;
}

}  // namespace aiacc::info
