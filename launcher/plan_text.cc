// Plans and bindings in words: --dry-run, and the lines of --report-bindings.
#include <fmt/format.h>

#include <algorithm>

#include "launcher/environment.h"
#include "launcher/plan.h"
#include "launcher/program.h"

namespace aiacc::launcher {

namespace {

std::string numbered(std::string_view noun, const io::CpuList& numbers) {
  return fmt::format("{}{} {}", noun, numbers.size() == 1 ? "" : "s", format_cpus(numbers));
}

void add_once(io::CpuList& numbers, unsigned number) {
  const auto place = std::lower_bound(numbers.begin(), numbers.end(), number);
  if (place == numbers.end() || *place != number) numbers.insert(place, number);
}

// As a shell would read it back.
std::string quoted(const std::string& word) {
  const bool plain = !word.empty() && word.find_first_not_of(
                                          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                          "_-+=./:,@%^") == std::string::npos;
  if (plain) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string describe_program(const Plan& plan) {
  std::string text = "program:";
  for (const std::string& word : plan.argv) text += " " + quoted(word);
  try {
    text += fmt::format("\n  found at {}", find_program(plan));
  } catch (const LaunchError& error) {
    text += fmt::format("\n  a run would end with {}: {}", error.exit_code(), error.message());
  }
  return text + fmt::format("\ndirectory: {}\n", plan.cwd);
}

std::string describe_hosts(const Plan& plan, const Topology& topology) {
  std::string text = "hosts:\n";
  for (const HostPlan& host : plan.hosts) {
    text += fmt::format(
        "  {}: {} rank{} (0-{}), {}\n", host.name, host.ranks, host.ranks == 1 ? "" : "s",
        host.first_rank + host.ranks - 1,
        host.slots == 0 ? "no limit of slots" : fmt::format("{} slot{}", host.slots, host.slots == 1 ? "" : "s"));
  }
  text +=
      fmt::format("  usable here: {} core{} (cpus {}), {} NUMA domain{}, {} package{}\n", topology.cores().size(),
                  topology.cores().size() == 1 ? "" : "s", format_cpus(topology.pus()), topology.numa_domains(),
                  topology.numa_domains() == 1 ? "" : "s", topology.packages(), topology.packages() == 1 ? "" : "s");
  if (topology.quota()) {
    text += fmt::format("  CPU quota: {:g} cpus ({})\n", topology.quota()->cpus, topology.quota()->where);
  }
  for (const Topology::Note& note : topology.notes()) text += fmt::format("  note: {}\n", note.sentence);
  return text;
}

std::string describe_ranks(const Plan& plan, const Topology& topology) {
  std::string text = "ranks:\n";
  if (!plan.unbound_because.empty()) text += fmt::format("  not bound: {}\n", plan.unbound_because);
  for (const RankPlan& rank : plan.ranks) {
    const Environment own(rank.environment);
    const std::string where = rank.binding.empty() ? "not bound" : describe_binding(rank.binding, topology);
    const std::string threads =
        own.has("OMP_NUM_THREADS") ? fmt::format(", OMP_NUM_THREADS={}", own.get("OMP_NUM_THREADS")) : "";
    text += fmt::format("  rank {} on {}: {}{}\n", rank.rank, plan.hosts[static_cast<std::size_t>(rank.host)].name,
                        where, threads);
  }
  return text;
}

std::string describe_environment(const Plan& plan, const Options& options) {
  std::string text = "environment of rank 0, beside what it inherits:\n ";
  for (const std::string& entry : plan.ranks.front().environment) text += " " + quoted(entry);
  text += "\n  AIACC_AGENT, MASTER_ADDR and MASTER_PORT: known when the job starts\n";
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

std::string describe_plan(const Plan& plan, const Options& options, const Surroundings& here) {
  return "plan (nothing is started):\n" + describe_hosts(plan, here.topology) + describe_ranks(plan, here.topology) +
         describe_program(plan) + describe_environment(plan, options) + "options:\n" + describe_options(options);
}

}  // namespace aiacc::launcher
