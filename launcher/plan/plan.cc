#include "launcher/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "launcher/plan/environment.h"
#include "launcher/plan/hosts.h"

namespace aiacc::launcher {

namespace {

std::string absolute(const std::string& directory, const std::string& from) {
  if (directory.starts_with('/')) return directory;
  if (from.empty()) {
    throw UsageError(
        MessageId::kWdir,
        "the working directory of aiaccrun does not exist any more; go to one that does, or give --wdir an "
        "absolute path");
  }
  if (directory.empty()) return from;
  return from + (from.ends_with('/') ? "" : "/") + directory;
}

Notice same_machine(const HostPlan& host) {
  std::string names = host.name;
  for (std::size_t i = 0; i < host.other_names.size(); ++i) {
    names += (i + 1 == host.other_names.size() ? " and " : ", ") + host.other_names[i];
  }
  return {MessageId::kSameMachine, fmt::format("hosts {} are the same machine; their slots are added up", names)};
}

// Ranks of a job that gets hosts wait in aiacc_init for them, or for the others' next commit, as long as aiaccrun does. The
// user's own limit counts where there is one.
Duration patience(const Options& options, const Plan& plan) {
  constexpr Duration kMost = std::chrono::days(30);
  for (const auto& entries : {plan.environment, plan.remote_environment}) {
    if (Environment(entries).has("AIACC_INIT_TIMEOUT")) return Duration::zero();
  }
  const Duration asked = options.elastic_timeout.value;
  if (asked == Duration::zero()) return kMost;
  return std::clamp<Duration>(asked, std::chrono::seconds(300), kMost);
}

}  // namespace

Plan make_plan(const Options& options, const Surroundings& here) {
  Plan plan;
  plan.hosts = plan_hosts(options, here);
  for (const HostPlan& host : plan.hosts) {
    if (!host.other_names.empty()) plan.notices.push_back(same_machine(host));
  }
  if (!options.no_allocation.empty()) plan.notices.push_back({MessageId::kVariable, options.no_allocation});
  for (const std::string& sentence : options.ignored) plan.notices.push_back({MessageId::kIgnored, sentence});
  plan.argv = options.command;
  plan.cwd = absolute(options.wdir.value, here.cwd);
  plan.placement.map_by = options.map_by.value;
  plan.placement.bind_to = options.bind_to.value;
  plan.placement.bind_asked = options.bind_to.given();
  plan.placement.oversubscribe = options.oversubscribe.value;

  Environment common = common_environment(options, here, plan.notices);
  if (options.wdir.given()) common.set("PWD", plan.cwd);
  plan.environment = common.entries();
  Environment remote = remote_environment(options, here);
  remote.set("PWD", plan.cwd);
  plan.remote_environment = remote.entries();

  for (std::size_t host = 0; host < plan.hosts.size(); ++host) {
    const std::vector<int>& ranks = plan.hosts[host].ranks;
    for (std::size_t local = 0; local < ranks.size(); ++local) {
      RankPlan& rank = plan.ranks.emplace_back();
      rank.rank = ranks[local];
      rank.local_rank = static_cast<int>(local);
      rank.host = static_cast<int>(host);
    }
  }
  plan.input_rank = options.input_rank.value;
  if (plan.input_rank >= plan.size()) {
    throw UsageError(MessageId::kValue, fmt::format("--stdin names rank {}, and the last rank of the job is {}",
                                                    plan.input_rank, plan.size() - 1));
  }
  plan.gets_hosts = options.discovery_script.given();
  if (plan.gets_hosts) {
    plan.min_size = options.min_ranks.value;
    plan.max_size = options.max_ranks.value;
    plan.init_timeout = patience(options, plan);
  } else if (options.min_ranks.given()) {
    if (options.min_ranks.value > plan.size()) {
      throw UsageError(MessageId::kRanks,
                       fmt::format("--min-np is {}, and the job has {} rank{}", options.min_ranks.value, plan.size(),
                                   plan.size() == 1 ? "" : "s"));
    }
    plan.min_size = options.min_ranks.value;
  }
  const bool may_shrink = plan.min_size > 0;
  const int fewest = may_shrink ? plan.min_size : plan.size();
  if (options.servers.value >= fewest) {
    throw UsageError(MessageId::kRanks,
                     fmt::format("--servers is {}, and the job {} {} rank{}{}: one at least is left to train",
                                 options.servers.value, may_shrink ? "goes on with" : "has", fewest,
                                 fewest == 1 ? "" : "s", may_shrink ? " (--min-np)" : ""));
  }
  if (options.max_ranks.given() && !plan.gets_hosts) {
    if (options.max_ranks.value != plan.size()) {
      throw UsageError(MessageId::kRanks,
                       fmt::format("--max-np is {}, and the job has {} rank{}; it begins with its most, because new "
                                   "ranks only take the places of failed ones",
                                   options.max_ranks.value, plan.size(), plan.size() == 1 ? "" : "s"));
    }
    plan.max_size = options.max_ranks.value;
  }
  std::sort(plan.ranks.begin(), plan.ranks.end(), [](const RankPlan& a, const RankPlan& b) { return a.rank < b.rank; });
  for (RankPlan& rank : plan.ranks) {
    const std::size_t local_size = plan.hosts[static_cast<std::size_t>(rank.host)].ranks.size();
    const JobSize size{plan.size(), static_cast<int>(local_size), static_cast<int>(plan.hosts.size())};
    rank.environment = own_environment(rank, size, plan, options.compat_env.value);
  }
  return plan;
}

}  // namespace aiacc::launcher
