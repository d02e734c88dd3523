// Placement of the ranks of one host: the requested policy applied to the host's topology. The agent does this, because
// only it has loaded the topology; --dry-run does it for this host and assumes that other hosts have the same topology.
#pragma once

#include <string>
#include <vector>

#include "launcher/plan/binding.h"

namespace aiacc::launcher {

struct Placement {
  Binding binding;
  std::vector<Notice> notices;  // more ranks than cores, an impossible binding, incomplete topology
};

Placement place_ranks(int ranks, const PlacementPolicy& policy, const Topology& topology, const std::string& host_name);

}  // namespace aiacc::launcher
