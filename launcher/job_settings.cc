#include "launcher/job_settings.h"

#include <fmt/format.h>

#include <algorithm>

#include "launcher/cli/host_list.h"
#include "launcher/plan/hosts.h"
#include "launcher/plan/starter.h"
#include "launcher/roles.h"

namespace aiacc::launcher {

namespace {

wire::StartJob job_of(const Plan& plan, const Options& options, const HostPlan& there, int index) {
  wire::StartJob job;
  job.version = version_text();
  job.host_name = there.name;
  job.host = index;
  job.argv = plan.argv;
  job.cwd = plan.cwd;
  job.environment = there.local ? plan.environment : plan.remote_environment;
  if (options.compat_env.value.horovod) job.environment.push_back("HOROVOD_HOSTNAME=" + there.name);
  job.over_own = !there.local;
  job.map_by = static_cast<std::uint8_t>(plan.placement.map_by);
  job.bind_to = static_cast<std::uint8_t>(plan.placement.bind_to);
  job.bind_asked = plan.placement.bind_asked;
  job.oversubscribe = plan.placement.oversubscribe;
  job.provide = options.provide.value;
  job.tag_output = options.tag_output.value;
  job.report_bindings = options.report_bindings.value;
  return job;
}

void add_ranks(const Plan& plan, wire::StartJob& job) {
  for (const RankPlan& planned : plan.ranks) {
    job.hosts_of_ranks.push_back(static_cast<std::uint32_t>(planned.host));
    if (planned.host != job.host) continue;
    wire::StartRank& rank = job.ranks.emplace_back();
    rank.rank = planned.rank;
    rank.local_rank = planned.local_rank;
    rank.environment = planned.environment;
  }
}

HostLink::Settings link_of(const HostPlan& there, const Options& options, const Surroundings& here, int index,
                           Duration lease) {
  HostLink::Settings link;
  link.index = index;
  link.name = there.name;
  link.local = there.local;
  if (there.local) {
    link.starts.push_back(keeper_spec(options.isolate.value));
    return link;
  }
  link.ssh = !options.launch_agent.given() && !there.by_srun;
  link.lease = lease;
  for (const Words& command : starter_commands(there, options, here.program)) {
    link.starts.push_back(starter_spec(command, starter_environment(there, options, here.environment)));
  }
  return link;
}

}  // namespace

Config own_config(const Surroundings& here) {
  std::vector<std::string> own;
  for (const std::string& entry : here.environment) {
    if (entry.starts_with("AIACC_LEASE=") || entry.starts_with("AIACC_INIT_TIMEOUT=")) own.push_back(entry);
  }
  try {
    return Config::read(own);
  } catch (const Error& error) {
    throw UsageError(MessageId::kVariable, error.message());
  }
}

Head::Settings settings_of(const Plan& plan, const Options& options, const Surroundings& here) {
  const Config config = own_config(here);
  Head::Settings settings;
  for (std::size_t host = 0; host < plan.hosts.size(); ++host) {
    const HostPlan& there = plan.hosts[host];
    const int index = static_cast<int>(host);
    settings.hosts.push_back(link_of(there, options, here, index, config->lease));
    add_ranks(plan, settings.jobs.emplace_back(job_of(plan, options, there, index)));
  }
  settings.separate_hosts = options.separate_hosts.value;
  settings.tag_output = options.tag_output.value;
  settings.quiet = options.quiet.value;
  settings.min_ranks = options.min_ranks.value;
  settings.max_ranks = options.max_ranks.value;
  settings.reset_limit = options.reset_limit.value;
  settings.elastic_timeout = options.elastic_timeout.value;
  settings.timeout = options.timeout.value;
  settings.kill_grace = options.kill_grace.value;
  settings.start_limit = config->init_timeout;
  return settings;
}

FoundHosts::FoundHosts(const Plan& plan, const Options& options, const Surroundings& here)
    : plan_(plan), options_(options), here_(here), lease_(own_config(here)->lease) {}

io::SpawnSpec FoundHosts::script() const {
  io::SpawnSpec spec;
  spec.argv = {options_.discovery_script.value};
  spec.env = here_.environment;
  spec.out = spec.err = io::SpawnSpec::Stdio::kPipe;
  spec.group = io::SpawnSpec::Group::kNewSession;  // Ctrl-C must not reach it, and it must not ask questions
  return spec;
}

std::vector<HostPlan> FoundHosts::hosts_of(const std::string& printed) const {
  const std::string name = fmt::format("the output of {}", options_.discovery_script.value);
  return listed_hosts(parse_host_file(name, printed, options_.slots_per_host.value), options_, here_);
}

HostLink::Settings FoundHosts::link_to(const HostPlan& host, int index) const {
  return link_of(host, options_, here_, index, lease_);
}

wire::StartJob FoundHosts::job_on(const HostPlan& host, int index) const {
  return job_of(plan_, options_, host, index);
}

std::vector<std::string> FoundHosts::environment_of(const RankPlan& rank, const JobSize& job) const {
  return own_environment(rank, job, plan_, options_.compat_env.value);
}

}  // namespace aiacc::launcher
