// The processing units, cores, NUMA domains and packages that this process may use, and its CPU quota.
//
// There are two kinds of limit: a cpuset or an inherited mask says *which* units are usable (cores() has no others); a
// CPU quota says only *how much* processor time is available (quota()). The launcher or an agent loads the topology
// once; ranks never do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/io/host.h"

namespace aiacc {

class Topology {
 public:
  using CpuList = io::CpuList;

  // A core with at least one usable unit. Indices count from 0 in the machine's order.
  struct Core {
    CpuList pus;           // usable ones only, by operating-system index, ascending
    unsigned numa = 0;     // index into the usable NUMA domains
    unsigned package = 0;  // index into the usable packages
  };

  struct Quota {
    double cpus = 0;    // 1.5: the time of one and a half units
    std::string where;  // the file with the quota
  };

  // The part of this machine that this process may use. Throws kSystem if hwloc cannot be initialised; a machine that
  // reports no cores, NUMA domains or packages is not an error (see notes()).
  static Topology load();
  // hwloc's synthetic description ("package:2 numa:1 core:4 pu:2"); `allowed` are the usable units, empty for all.
  static Topology synthetic(const std::string& description, const CpuList& allowed = {});
  // A file or a string of hwloc's XML. Throws kInvalidArgument.
  static Topology from_xml(const std::string& xml, const CpuList& allowed = {});

  // Cores of a NUMA domain are contiguous, and so are the NUMA domains of a package.
  const std::vector<Core>& cores() const noexcept { return cores_; }
  unsigned numa_domains() const noexcept { return numa_domains_; }
  unsigned packages() const noexcept { return packages_; }

  // All usable units, ascending.
  CpuList pus() const;

  const std::optional<Quota>& quota() const noexcept { return quota_; }
  void set_quota(std::optional<Quota> quota) { quota_ = std::move(quota); }
  // Whether the quota is lower than the time of all usable units.
  bool quota_below_mask() const;
  // The number of usable cores, at most the quota; at least one.
  unsigned usable_cores() const;

  // Information that the machine does not provide, as often in virtual machines, and the assumption in its place.
  struct Note {
    enum class Level : std::uint8_t { kCore, kPackage } level;
    std::string sentence;
  };
  const std::vector<Note>& notes() const noexcept { return notes_; }

 private:
  friend class TopologyReader;
  std::vector<Core> cores_;
  unsigned numa_domains_ = 1;
  unsigned packages_ = 1;
  std::optional<Quota> quota_;
  std::vector<Note> notes_;
};

// "0-3,8-11"
std::string format_cpus(const io::CpuList& cpus);

}  // namespace aiacc
