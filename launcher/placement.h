// Where the ranks of one host go: what was asked for, applied to the host's topology. The agent does it, because nobody else
// has seen that machine; --dry-run does the same for this host, and for others as if they were like it.
#pragma once

#include <string>
#include <vector>

#include "launcher/binding.h"

namespace aiacc::launcher {

struct Placement {
  Binding binding;
  std::vector<Notice> notices;  // a crowded host, a binding that cannot be, a machine that hides something
};

Placement place_ranks(int ranks, const PlacementPolicy& policy, const Topology& topology, const std::string& host_name);

}  // namespace aiacc::launcher
