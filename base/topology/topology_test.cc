#include "base/topology/topology.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <map>

#include "base/topology/quota.h"

namespace aiacc {
namespace {

using CpuList = io::CpuList;

TEST(Topology, TwoPackagesWithThreads) {
  const Topology t = Topology::synthetic("package:2 numa:1 core:4 pu:2");
  ASSERT_EQ(t.cores().size(), 8u);
  EXPECT_EQ(t.packages(), 2u);
  EXPECT_EQ(t.numa_domains(), 2u);
  EXPECT_EQ(t.cores()[0].pus, (CpuList{0, 1}));
  EXPECT_EQ(t.cores()[7].pus, (CpuList{14, 15}));
  EXPECT_EQ(t.cores()[3].package, 0u);
  EXPECT_EQ(t.cores()[4].package, 1u);
  EXPECT_EQ(t.cores()[4].numa, 1u);
  EXPECT_EQ(t.pus().size(), 16u);
  EXPECT_TRUE(t.notes().empty());
}

TEST(Topology, SeveralDomainsInAPackage) {
  const Topology t = Topology::synthetic("package:2 numa:2 core:3 pu:1");
  EXPECT_EQ(t.numa_domains(), 4u);
  std::vector<unsigned> numa;
  for (const auto& core : t.cores()) numa.push_back(core.numa);
  EXPECT_EQ(numa, (std::vector<unsigned>{0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3}));
}

TEST(Topology, UnitsNumberedAcrossPackages) {
  // The numbering of many servers: unit 0 on the first package, unit 1 on the second, and so on.
  const Topology t = Topology::synthetic("package:2 core:2 pu:2(indexes=package:core)");
  for (const auto& core : t.cores()) EXPECT_EQ(core.package, core.pus[0] % 2) << format_cpus(core.pus);
  EXPECT_EQ(t.cores()[0].pus, (CpuList{0, 4}));
}

TEST(Topology, OnlyAllowedUnitsShow) {
  const Topology t = Topology::synthetic("package:2 numa:1 core:4 pu:2", {1, 2, 3, 14});
  ASSERT_EQ(t.cores().size(), 3u);
  EXPECT_EQ(t.cores()[0].pus, CpuList{1}) << "half a core is a core";
  EXPECT_EQ(t.cores()[1].pus, (CpuList{2, 3}));
  EXPECT_EQ(t.cores()[2].pus, CpuList{14});
  EXPECT_EQ(t.cores()[2].package, 1u);
  EXPECT_EQ(t.pus(), (CpuList{1, 2, 3, 14}));
  EXPECT_THROW(Topology::synthetic("core:2 pu:1", {7}), Error);
}

TEST(Topology, PackageWithoutAllowedUnitsDoesNotCount) {
  const Topology t = Topology::synthetic("package:4 numa:1 core:2 pu:1", {4, 5});
  EXPECT_EQ(t.packages(), 1u);
  EXPECT_EQ(t.numa_domains(), 1u);
  EXPECT_EQ(t.cores()[0].package, 0u);
  EXPECT_EQ(t.cores()[0].numa, 0u);
}

TEST(Topology, MissingObjectsFallBackAndSaySo) {
  const Topology t = Topology::synthetic("pu:4");
  EXPECT_EQ(t.cores().size(), 4u);
  EXPECT_EQ(t.packages(), 1u);
  EXPECT_EQ(t.numa_domains(), 1u);
  ASSERT_EQ(t.notes().size(), 2u);
  EXPECT_EQ(t.notes()[0].level, Topology::Note::Level::kCore);
  EXPECT_EQ(t.notes()[1].level, Topology::Note::Level::kPackage);
  EXPECT_EQ(Topology::synthetic("core:2 pu:2").notes().size(), 1u);
}

TEST(Topology, NonsenseIsRefused) {
  EXPECT_THROW(Topology::synthetic("many cores"), Error);
  EXPECT_THROW(Topology::from_xml("<topology"), Error);
}

TEST(Topology, QuotaSaysHowManyAndNotWhich) {
  Topology t = Topology::synthetic("core:4 pu:2");
  EXPECT_FALSE(t.quota_below_mask());
  EXPECT_EQ(t.usable_cores(), 4u);
  for (const auto& [cpus, cores] :
       std::map<double, unsigned>{{0.2, 1}, {1.0, 1}, {1.9, 1}, {3.0, 3}, {5.5, 4}, {7.99, 4}}) {
    t.set_quota(Topology::Quota{cpus, "cpu.max"});
    EXPECT_TRUE(t.quota_below_mask()) << cpus;
    EXPECT_EQ(t.usable_cores(), cores) << cpus;
    EXPECT_EQ(t.cores().size(), 4u);
  }
  t.set_quota(Topology::Quota{8, "cpu.max"});
  EXPECT_FALSE(t.quota_below_mask());
}

TEST(Topology, ThisMachineIsWhatTheKernelAllows) {
  cpu_set_t set;
  CPU_ZERO(&set);
  ASSERT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  CpuList allowed;
  for (unsigned cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) allowed.push_back(cpu);
  }
  EXPECT_EQ(Topology::load().pus(), allowed);

  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(allowed.back(), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  const Topology narrow = Topology::load();
  sched_setaffinity(0, sizeof set, &set);
  EXPECT_EQ(narrow.pus(), CpuList{allowed.back()});
  EXPECT_EQ(narrow.cores().size(), 1u);
}

TEST(FormatCpus, Ranges) {
  EXPECT_EQ(format_cpus({}), "");
  EXPECT_EQ(format_cpus({3}), "3");
  EXPECT_EQ(format_cpus({0, 1, 2, 4, 6, 7}), "0-2,4,6-7");
}

// A small file tree for the quota.
using Files = std::map<std::string, std::string>;
std::optional<Topology::Quota> quota_of(const Files& files) {
  return read_cpu_quota([&](const std::string& path) {
    const auto found = files.find(path);
    return found == files.end() ? std::nullopt : std::optional(found->second);
  });
}

const std::string kV2Mount = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
const std::string kV1Mount =
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
    "32 31 0:29 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n";

TEST(Quota, Version2TakesTheTightestAncestor) {
  Files files = {{"/proc/self/mountinfo", kV2Mount},
                 {"/proc/self/cgroup", "0::/user.slice/job/step\n"},
                 {"/sys/fs/cgroup/user.slice/job/step/cpu.max", "max 100000\n"},
                 {"/sys/fs/cgroup/user.slice/job/cpu.max", "250000 100000\n"},
                 {"/sys/fs/cgroup/user.slice/cpu.max", "800000 100000\n"}};
  ASSERT_TRUE(quota_of(files));
  EXPECT_EQ(quota_of(files)->cpus, 2.5);
  EXPECT_EQ(quota_of(files)->where, "/sys/fs/cgroup/user.slice/job/cpu.max");
  files["/sys/fs/cgroup/user.slice/job/cpu.max"] = "max 100000\n";
  EXPECT_EQ(quota_of(files)->cpus, 8);
  files["/sys/fs/cgroup/user.slice/cpu.max"] = "max 100000\n";
  EXPECT_FALSE(quota_of(files));
}

TEST(Quota, ContainerWithItsOwnNamespaceOfGroups) {
  const Files files = {{"/proc/self/mountinfo", kV2Mount},
                       {"/proc/self/cgroup", "0::/\n"},
                       {"/sys/fs/cgroup/cpu.max", "50000 100000\n"}};
  ASSERT_TRUE(quota_of(files));
  EXPECT_EQ(quota_of(files)->cpus, 0.5);
}

TEST(Quota, Version1BelowTheMountedGroup) {
  Files files = {{"/proc/self/mountinfo", kV1Mount},
                 {"/proc/self/cgroup", "12:memory:/x\n4:cpu,cpuacct:/docker/abc/inner\n0::/docker/abc\n"},
                 {"/sys/fs/cgroup/cpu,cpuacct/inner/cpu.cfs_quota_us", "-1\n"},
                 {"/sys/fs/cgroup/cpu,cpuacct/inner/cpu.cfs_period_us", "100000\n"},
                 {"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "150000\n"},
                 {"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "50000\n"}};
  ASSERT_TRUE(quota_of(files));
  EXPECT_EQ(quota_of(files)->cpus, 3);
  EXPECT_EQ(quota_of(files)->where, "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us");
  files["/proc/self/cgroup"] = "4:cpu,cpuacct:/elsewhere\n";  // outside the mounted part: the mount point counts
  EXPECT_EQ(quota_of(files)->cpus, 3);
  files["/proc/self/cgroup"] = "4:cpuacct:/docker/abc\n";  // another controller
  EXPECT_FALSE(quota_of(files));
}

TEST(Quota, MountPointWithABlankAndAGroupAboveTheRoot) {
  const Files files = {{"/proc/self/mountinfo", "30 23 0:26 / /my\\040groups rw - cgroup2 none rw\n"},
                       {"/proc/self/cgroup", "0::/../outside\n"},
                       {"/my groups/cpu.max", "100000 100000"}};
  ASSERT_TRUE(quota_of(files));
  EXPECT_EQ(quota_of(files)->cpus, 1);
}

TEST(Quota, UnreadableOrOddFilesLimitNothing) {
  EXPECT_FALSE(quota_of({}));
  EXPECT_FALSE(quota_of({{"/proc/self/mountinfo", "short line\n\n- -\n"}, {"/proc/self/cgroup", "no colons\n"}}));
  EXPECT_FALSE(quota_of(
      {{"/proc/self/mountinfo", kV2Mount}, {"/proc/self/cgroup", "0::/\n"}, {"/sys/fs/cgroup/cpu.max", "\n"}}));
  EXPECT_FALSE(quota_of(
      {{"/proc/self/mountinfo", kV2Mount}, {"/proc/self/cgroup", "0::/\n"}, {"/sys/fs/cgroup/cpu.max", "0 100000"}}));
}

}  // namespace
}  // namespace aiacc
