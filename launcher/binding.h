// Which processing units each rank of a host is bound to, and how many threads it should use.
//
// Mapping gives each rank a home core; binding widens it to what was asked for:
//   slot, node   a rank starts where its equal, contiguous share of the usable cores starts
//   core     rank r on core r
//   numa, package   domains take turns; in a domain one core after the other
// `auto` binds to a share: of all usable cores, or with numa and package of the domain's cores. Shares that do not come out
// even give one core more to each of the first ranks.
//
// Nothing is bound when ranks outnumber cores, nor, with auto, when a CPU quota is below the mask: the quota names no cores,
// and every container of a node would sit on the same first ones.
#pragma once

#include <string>
#include <vector>

#include "launcher/plan.h"

namespace aiacc::launcher {

struct Binding {
  std::vector<io::CpuList> cpus;  // by local rank; each empty when nothing is bound
  std::vector<int> threads;       // by local rank: what OMP_NUM_THREADS is set to when it is unset
  std::string unbound_because;    // empty when the ranks are bound
};

Binding bind_ranks(int ranks, MapBy map_by, BindTo bind_to, const Topology& topology);

}  // namespace aiacc::launcher
