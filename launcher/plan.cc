#include "launcher/plan.h"

#include <fmt/format.h>

#include "launcher/binding.h"
#include "launcher/environment.h"
#include "launcher/hosts.h"

namespace aiacc::launcher {

namespace {

std::string absolute(const std::string& directory, const std::string& from) {
  if (directory.empty()) return from;
  if (directory.front() == '/') return directory;
  return from + (from.ends_with('/') ? "" : "/") + directory;
}

// What a crowded host, a binding that cannot be, or a machine that hides something is told about, one line each.
void add_notices(const Options& options, const Surroundings& here, const std::string& unbound_because, Plan& plan) {
  const Topology& topology = here.topology;
  const int ranks = plan.size();
  const MapBy map_by = options.map_by.value;
  const BindTo bind_to = options.bind_to.value;
  if (ranks > static_cast<int>(topology.usable_cores()) && !options.oversubscribe.value) {
    const std::string quota = topology.quota_below_mask() ? fmt::format(" (a CPU quota of {:g}: {})",
                                                                        topology.quota()->cpus, topology.quota()->where)
                                                          : "";
    plan.notices.push_back(
        {MessageId::kBusy, fmt::format("{} ranks share {} usable core{} of {}{}", ranks, topology.usable_cores(),
                                       topology.usable_cores() == 1 ? "" : "s", here.host_name, quota)});
  }
  const bool asked = options.bind_to.given() && bind_to != BindTo::kAuto && bind_to != BindTo::kNone;
  if (asked && !unbound_because.empty()) {
    plan.notices.push_back(
        {MessageId::kUnbound, fmt::format("--bind-to {} is left out: {}", name_of(bind_to), unbound_because)});
  }
  for (const Topology::Note& note : topology.notes()) {
    const bool cores = map_by == MapBy::kCore || bind_to == BindTo::kCore;
    const bool packages = map_by == MapBy::kPackage || bind_to == BindTo::kPackage;
    const bool matters = note.level == Topology::Note::Level::kCore ? cores : packages;
    if (matters) plan.notices.push_back({MessageId::kTopology, note.sentence});
  }
}

}  // namespace

Plan make_plan(const Options& options, const Surroundings& here) {
  Plan plan;
  plan.hosts = plan_hosts(options, here);
  plan.argv = options.command;
  plan.cwd = absolute(options.wdir.value, here.cwd);
  Environment common = common_environment(options, here, plan.notices);
  if (options.wdir.given()) common.set("PWD", plan.cwd);

  for (std::size_t host = 0; host < plan.hosts.size(); ++host) {
    for (int local = 0; local < plan.hosts[host].ranks; ++local) {
      RankPlan rank;
      rank.rank = plan.hosts[host].first_rank + local;
      rank.local_rank = local;
      rank.host = static_cast<int>(host);
      plan.ranks.push_back(std::move(rank));
    }
  }
  const Binding binding = bind_ranks(plan.size(), options.map_by.value, options.bind_to.value, here.topology);
  plan.unbound_because = binding.unbound_because;
  const bool threads_unset = !common.has("OMP_NUM_THREADS");
  for (RankPlan& rank : plan.ranks) {
    const std::size_t local = static_cast<std::size_t>(rank.local_rank);
    rank.binding = binding.cpus[local];
    rank.environment = own_environment(rank, plan, options.compat_env.value);
    if (threads_unset) rank.environment.push_back(fmt::format("OMP_NUM_THREADS={}", binding.threads[local]));
  }
  plan.environment = common.entries();
  add_notices(options, here, binding.unbound_because, plan);
  return plan;
}

std::vector<std::string> rank_environment(const Plan& plan, int rank, const Wiring& wiring) {
  const RankPlan& mine = plan.ranks.at(static_cast<std::size_t>(rank));
  std::vector<std::string> all = plan.environment;
  all.insert(all.end(), mine.environment.begin(), mine.environment.end());
  all.push_back(fmt::format("AIACC_AGENT={}", wiring.agent));
  all.push_back(fmt::format("MASTER_ADDR={}", wiring.master_address));
  all.push_back(fmt::format("MASTER_PORT={}", wiring.master_port));
  return all;
}

}  // namespace aiacc::launcher
