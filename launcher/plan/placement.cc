#include "launcher/plan/placement.h"

#include <fmt/format.h>

namespace aiacc::launcher {

namespace {

Notice busy(int ranks, const Topology& topology, const std::string& host_name) {
  const std::string quota = topology.quota_below_mask() ? fmt::format(" (a CPU quota of {:g}: {})",
                                                                      topology.quota()->cpus, topology.quota()->where)
                                                        : "";
  return {MessageId::kBusy, fmt::format("{} ranks share {} usable core{} of {}{}", ranks, topology.usable_cores(),
                                        topology.usable_cores() == 1 ? "" : "s", host_name, quota)};
}

bool matters(const Topology::Note& note, const PlacementPolicy& policy) {
  const bool cores = policy.map_by == MapBy::kCore || policy.bind_to == BindTo::kCore;
  const bool packages = policy.map_by == MapBy::kPackage || policy.bind_to == BindTo::kPackage;
  return note.level == Topology::Note::Level::kCore ? cores : packages;
}

}  // namespace

Placement place_ranks(int ranks, const PlacementPolicy& policy, const Topology& topology,
                      const std::string& host_name) {
  Placement placement;
  placement.binding = bind_ranks(ranks, policy.map_by, policy.bind_to, topology);
  if (ranks > static_cast<int>(topology.usable_cores()) && !policy.oversubscribe) {
    placement.notices.push_back(busy(ranks, topology, host_name));
  }
  const std::string& unbound = placement.binding.unbound_because;
  const bool object_asked = policy.bind_asked && policy.bind_to != BindTo::kAuto && policy.bind_to != BindTo::kNone;
  if (object_asked && !unbound.empty()) {
    placement.notices.push_back(
        {MessageId::kUnbound, fmt::format("--bind-to {} is left out: {}", name_of(policy.bind_to), unbound)});
  }
  for (const Topology::Note& note : topology.notes()) {
    if (matters(note, policy)) placement.notices.push_back({MessageId::kTopology, note.sentence});
  }
  return placement;
}

}  // namespace aiacc::launcher
