// Which processing units each rank of a host is bound to, and how many threads it should use.
//
// Mapping gives each rank a home core; binding extends it to the requested object:
//   slot, node      a rank starts where its equal, contiguous share of the usable cores starts
//   core            rank r on core r
//   numa, package   domains take turns; in a domain one core after the other
// `auto` binds each rank to an equal share of all usable cores, or with numa and package of the domain's cores. The
// first ranks get one core of the remainder each.
//
// Nothing is bound when ranks outnumber cores, nor, with auto, when a CPU quota is below the mask: a quota names no
// cores, so the ranks of every container on a node would be bound to the same first cores.
#pragma once

#include <string>
#include <vector>

#include "launcher/plan/plan.h"

namespace aiacc::launcher {

struct Binding {
  std::vector<io::CpuList> cpus;  // by local rank; each empty when nothing is bound
  std::vector<int> threads;       // by local rank: OMP_NUM_THREADS, unless the user has set it
  std::string unbound_because;    // empty when the ranks are bound
};

Binding bind_ranks(int ranks, MapBy map_by, BindTo bind_to, const Topology& topology);

}  // namespace aiacc::launcher
