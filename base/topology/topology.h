// The processing units, cores, NUMA domains and packages that this process may use, and how much processor time.
//
// Two kinds of limit are kept apart: a cpuset or an inherited mask says *which* units are usable (cores() has no others);
// a CPU quota says only *how many* units' time there is (quota()). Loaded once, by the launcher or an agent: ranks load none.
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

  // A core with at least one usable unit. Places count from 0 in the order of the machine.
  struct Core {
    CpuList pus;           // usable ones only, by operating-system index, ascending
    unsigned numa = 0;     // index into the usable NUMA domains
    unsigned package = 0;  // index into the usable packages
  };

  struct Quota {
    double cpus = 0;    // 1.5: one and a half units' time
    std::string where;  // the file that says so
  };

  // This machine, as far as this process may use it. Throws kSystem when hwloc cannot be initialised; a machine that shows no
  // cores, NUMA domains or packages is no error (see notes()).
  static Topology load();
  // hwloc's synthetic description ("package:2 numa:1 core:4 pu:2"); `allowed` are the usable units, empty for all.
  static Topology synthetic(const std::string& description, const CpuList& allowed = {});
  // A file or a string of hwloc's XML. Throws kInvalidArgument.
  static Topology from_xml(const std::string& xml, const CpuList& allowed = {});

  // Neighbours stand side by side: cores of a NUMA domain are contiguous, and so are NUMA domains of a package.
  const std::vector<Core>& cores() const noexcept { return cores_; }
  unsigned numa_domains() const noexcept { return numa_domains_; }
  unsigned packages() const noexcept { return packages_; }

  // All usable units, ascending.
  CpuList pus() const;

  const std::optional<Quota>& quota() const noexcept { return quota_; }
  void set_quota(std::optional<Quota> quota) { quota_ = std::move(quota); }
  // A quota that gives less time than the usable units could use.
  bool quota_below_mask() const;
  // Usable cores, and no more of them than the quota feeds; at least one.
  unsigned usable_cores() const;

  // What the machine does not show, as virtual ones often do not, and what stands in for it.
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
