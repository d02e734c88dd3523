// Which limits hurt, from values: control groups that a test cannot make.
#include "runtime/info/host_limits.h"

#include <gtest/gtest.h>

#include <map>

namespace aiacc::info {
namespace {

constexpr rlimit kUnlimited{RLIM_INFINITY, RLIM_INFINITY};

HostLimits generous() {
  HostLimits limits;
  limits.memlock = limits.open_files = limits.processes = limits.address_space = limits.file_size = kUnlimited;
  limits.cores = 8;
  limits.units = 16;
  limits.memory = {std::uint64_t{64} << 30, "MemAvailable"};
  limits.segment_bytes = std::uint64_t{1} << 40;
  return limits;
}

std::string abouts(const HostLimits& limits) {
  std::string text;
  for (const Finding& finding : judge(limits)) {
    EXPECT_FALSE(finding.cure.empty());
    text += finding.about + (finding.level == Finding::Level::kNote ? " (note) " : " ");
  }
  return text;
}

TEST(HostLimits, WhatIsEnoughIsNotFound) { EXPECT_EQ(abouts(generous()), ""); }

TEST(HostLimits, EachThatIsTooSmallIsFound) {
  HostLimits limits = generous();
  limits.process_room = ProcessRoom{100, 81, "/sys/fs/cgroup/pids.max"};
  EXPECT_EQ(abouts(limits), "processes ");
  limits.process_room->now = 80;
  EXPECT_EQ(abouts(limits), "") << "8 ranks with a helper each, and 4 more, are 20";
  limits.cpus = 8;
  limits.quota_where = "cpu.max";
  EXPECT_EQ(abouts(limits), "processor time ");
  limits.cpus = 16;
  EXPECT_EQ(abouts(limits), "");
  limits.memory = {std::uint64_t{511} << 20, "memory.max"};
  EXPECT_EQ(abouts(limits), "memory ");
}

TEST(HostLimits, ProcessesBindOrdinaryUsersOnly) {
  HostLimits limits = generous();
  limits.processes = {100, 100};
  limits.own_processes = 81;
  EXPECT_EQ(abouts(limits), "processes ");
  limits.processes_bind = false;
  EXPECT_EQ(abouts(limits), "");
}

TEST(HostLimits, LockedMemoryIsANote) {
  HostLimits limits = generous();
  limits.memlock = {65536, 65536};
  EXPECT_EQ(abouts(limits), "memlock (note) ");
}

TEST(HostLimits, ControlGroupsAreRead) {
  const std::map<std::string, std::string> files = {
      {"/proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n"},
      {"/proc/self/cgroup", "0::/a/b\n"},
      {"/sys/fs/cgroup/a/b/pids.max", "max\n"},
      {"/sys/fs/cgroup/a/pids.max", "500\n"},
      {"/sys/fs/cgroup/a/pids.current", "17\n"}};
  const HostLimits limits = HostLimits::read([&](const std::string& path) {
    const auto found = files.find(path);
    return found == files.end() ? std::nullopt : std::optional(found->second);
  });
  ASSERT_TRUE(limits.process_room);
  EXPECT_EQ(limits.process_room->most, 500u);
  EXPECT_EQ(limits.process_room->now, 17u);
  EXPECT_EQ(limits.process_room->where, "/sys/fs/cgroup/a/pids.max");
}

}  // namespace
}  // namespace aiacc::info
