#include "base/topology/quota.h"

#include <sstream>

namespace aiacc {

namespace {

std::optional<double> quotient(const std::string& quota, const std::string& period) {
  try {
    const double time = std::stod(quota);
    const double span = std::stod(period);
    if (time > 0 && span > 0) return time / span;  // version 1 writes "no limit" as -1
  } catch (const std::exception&) {
    // "max", or an unknown format: no limit
  }
  return std::nullopt;
}

std::optional<Topology::Quota> quota_of_folder(const ReadFile& read_file, const std::string& folder,
                                               CgroupVersion version) {
  if (version == CgroupVersion::kTwo) {
    const std::string file = folder + "/cpu.max";
    std::istringstream words(read_file(file).value_or(""));
    std::string time;
    std::string span;
    if (!(words >> time >> span)) return std::nullopt;
    const std::optional<double> cpus = quotient(time, span);
    return cpus ? std::optional(Topology::Quota{*cpus, file}) : std::nullopt;
  }
  const std::string file = folder + "/cpu.cfs_quota_us";
  const std::optional<double> cpus =
      quotient(read_file(file).value_or(""), read_file(folder + "/cpu.cfs_period_us").value_or(""));
  return cpus ? std::optional(Topology::Quota{*cpus, file}) : std::nullopt;
}

}  // namespace

std::optional<Topology::Quota> read_cpu_quota(const ReadFile& read_file) {
  std::optional<Topology::Quota> tightest;
  for (const CgroupVersion version : {CgroupVersion::kTwo, CgroupVersion::kOne}) {
    for (const std::string& folder : cgroup_folders(read_file, version, "cpu")) {
      const std::optional<Topology::Quota> quota = quota_of_folder(read_file, folder, version);
      if (quota && (!tightest || quota->cpus < tightest->cpus)) tightest = quota;
    }
  }
  return tightest;
}

}  // namespace aiacc
