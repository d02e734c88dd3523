// Plans and bindings as text: --dry-run, and the lines of --report-bindings.
#include <fmt/format.h>

#include <algorithm>

#include "launcher/plan/environment.h"
#include "launcher/plan/placement.h"
#include "launcher/plan/plan.h"
#include "launcher/plan/program.h"
#include "launcher/plan/starter.h"

namespace aiacc::launcher {

namespace {

std::string numbered(std::string_view noun, const io::CpuList& numbers) {
  return fmt::format("{}{} {}", noun, numbers.size() == 1 ? "" : "s", format_cpus(numbers));
}

void add_once(io::CpuList& numbers, unsigned number) {
  const auto place = std::lower_bound(numbers.begin(), numbers.end(), number);
  if (place == numbers.end() || *place != number) numbers.insert(place, number);
}

bool any_local(const Plan& plan) {
  return std::any_of(plan.hosts.begin(), plan.hosts.end(), [](const HostPlan& host) { return host.local; });
}

bool all_local(const Plan& plan) {
  return std::all_of(plan.hosts.begin(), plan.hosts.end(), [](const HostPlan& host) { return host.local; });
}

std::string describe_program(const Plan& plan) {
  std::string text = fmt::format("program: {}", quoted(plan.argv));
  if (any_local(plan)) {
    try {
      text += fmt::format("\n  found at {}", find_program(plan.argv.front(), plan.cwd, plan.environment));
    } catch (const LaunchError& error) {
      text += fmt::format("\n  a run would end with {}: {}", error.exit_code(), error.message());
    }
  }
  if (!all_local(plan)) text += "\n  other hosts were not asked whether they have it";
  return text + fmt::format("\ndirectory: {}\n", plan.cwd);
}

// "0-2", "0,2,4-5"
std::string numbers(const std::vector<int>& ranks) { return format_cpus(io::CpuList(ranks.begin(), ranks.end())); }

std::string describe_hosts(const Plan& plan, const Options& options, const Surroundings& here,
                           const Topology& topology) {
  std::string text = "hosts:\n";
  for (const HostPlan& host : plan.hosts) {
    text += fmt::format(
        "  {}: {} rank{} ({}), {}\n", host.name, host.ranks.size(), host.ranks.size() == 1 ? "" : "s",
        numbers(host.ranks),
        host.slots == 0 ? "no limit of slots" : fmt::format("{} slot{}", host.slots, host.slots == 1 ? "" : "s"));
    if (!host.local) {
      text += fmt::format("    agent: {}\n", quoted(starter_commands(host, options, here.program).front()));
    }
  }
  text +=
      fmt::format("  usable here: {} core{} (cpus {}), {} NUMA domain{}, {} package{}\n", topology.cores().size(),
                  topology.cores().size() == 1 ? "" : "s", format_cpus(topology.pus()), topology.numa_domains(),
                  topology.numa_domains() == 1 ? "" : "s", topology.packages(), topology.packages() == 1 ? "" : "s");
  if (topology.quota()) {
    text += fmt::format("  CPU quota: {:g} cpus ({})\n", topology.quota()->cpus, topology.quota()->where);
  }
  for (const Topology::Note& note : topology.notes()) text += fmt::format("  note: {}\n", note.sentence);
  if (!all_local(plan))
    text +=
        "  other hosts were not asked: below they are assumed to have the cores of this one, and to be a machine "
        "each\n";
  return text;
}

std::string describe_ranks(const Plan& plan, const Topology& topology) {
  std::string text = "ranks:\n";
  std::vector<Placement> placements;
  for (const HostPlan& host : plan.hosts) {
    placements.push_back(place_ranks(static_cast<int>(host.ranks.size()), plan.placement, topology, host.name));
    const std::string& unbound = placements.back().binding.unbound_because;
    const std::string on = plan.hosts.size() == 1 ? "" : " on " + host.name;
    if (!unbound.empty()) text += fmt::format("  not bound{}: {}\n", on, unbound);
  }
  for (const RankPlan& rank : plan.ranks) {
    const HostPlan& host = plan.hosts[static_cast<std::size_t>(rank.host)];
    const Binding& binding = placements[static_cast<std::size_t>(rank.host)].binding;
    const io::CpuList& cpus = binding.cpus[static_cast<std::size_t>(rank.local_rank)];
    const std::string where = cpus.empty() ? "not bound" : describe_binding(cpus, topology);
    const Environment common(host.local ? plan.environment : plan.remote_environment);
    const std::string threads =
        common.has("OMP_NUM_THREADS")
            ? ""
            : fmt::format(", OMP_NUM_THREADS={}", binding.threads[static_cast<std::size_t>(rank.local_rank)]);
    text +=
        fmt::format("  rank {} on {}: {}{}{}\n", rank.rank, host.name, where, threads, host.local ? "" : " (assumed)");
  }
  return text;
}

// Names only: values may be secret, and --dry-run is pasted into bug reports.
std::string names_of(const std::vector<std::string>& entries) {
  std::string text;
  for (const std::string& entry : entries) text += " " + entry.substr(0, entry.find('='));
  return text;
}

std::string describe_environment(const Plan& plan, const Options& options) {
  std::string text = "environment of rank 0, beside what it inherits:\n ";
  for (const std::string& entry : plan.ranks.front().environment) text += " " + quoted(entry);
  text += "\n  AIACC_AGENT, MASTER_ADDR and MASTER_PORT: known when the job starts\n";
  if (any_local(plan)) text += "  ranks on this host inherit all of aiaccrun's\n";
  if (!all_local(plan)) {
    text += fmt::format("  ranks on other hosts have that of their login, and from here:{}\n",
                        names_of(plan.remote_environment));
  }
  if (!options.forward.value.empty()) {
    text += "  forwarded:";
    for (const Forward& forward : options.forward.value) text += " " + quoted(forward.name);
    text += "\n";
  }
  return text;
}

}  // namespace

std::string describe_binding(const io::CpuList& cpus, const Topology& topology) {
  io::CpuList cores, domains, packages;
  for (std::size_t i = 0; i < topology.cores().size(); ++i) {
    const Topology::Core& core = topology.cores()[i];
    const bool touched = std::any_of(core.pus.begin(), core.pus.end(), [&](unsigned pu) {
      return std::find(cpus.begin(), cpus.end(), pu) != cpus.end();
    });
    if (!touched) continue;
    add_once(cores, static_cast<unsigned>(i));
    add_once(domains, core.numa);
    add_once(packages, core.package);
  }
  std::string units = numbered("cpu", cpus);
  if (cores.empty()) return units;
  const std::string which = cores.size() == topology.cores().size() && cpus.size() >= topology.pus().size()
                                ? fmt::format("every usable core ({})", units)
                                : fmt::format("{} ({})", numbered("core", cores), units);
  std::string around;
  if (topology.numa_domains() > 1) around += " of NUMA " + format_cpus(domains);
  if (topology.packages() > 1)
    around += fmt::format("{} package {}", around.empty() ? " of" : ",", format_cpus(packages));
  return which + around;
}

std::string describe_plan(const Plan& plan, const Options& options, const Surroundings& here,
                          const Topology& topology) {
  return "plan (nothing is started):\n" + describe_hosts(plan, options, here, topology) +
         describe_ranks(plan, topology) + describe_program(plan) + describe_environment(plan, options) + "options:\n" +
         describe_options(options);
}

}  // namespace aiacc::launcher
