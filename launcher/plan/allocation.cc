#include "launcher/plan/allocation.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <sstream>
#include <utility>

#include "launcher/cli/host_list.h"

namespace aiacc::launcher {

namespace {

constexpr std::size_t kMostNodes = 100'000;  // more is surely no list of nodes
constexpr std::size_t kMostDigits = 9;
constexpr std::string_view kSlurmNodes = "SLURM_JOB_NODELIST";
constexpr std::string_view kSlurmTasks = "SLURM_TASKS_PER_NODE";
constexpr const char* kOperatorFile = "/etc/mpi/hostfile";

[[noreturn]] void refuse(std::string_view variable, std::string_view text, std::string_view why) {
  throw UsageError(MessageId::kHosts,
                   fmt::format("{} is '{}', {}; name the hosts by --host, or unset it", variable, text, why));
}

// A whole number of few digits, or -1.
int number(std::string_view text) {
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() && text.size() <= kMostDigits ? value : -1;
}

// Calls `each` with what is between commas, those in brackets apart.
template <typename Each>
bool split_at_commas(std::string_view text, Each each) {
  std::size_t begin = 0;
  bool inside = false;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] == ',' && !inside)) {
      if (i == begin || inside) return false;
      each(text.substr(begin, i - begin));
      begin = i + 1;
    } else if (text[i] == '[' || text[i] == ']') {
      if (inside == (text[i] == '[')) return false;
      inside = !inside;
    }
  }
  return true;
}

// "1-3" or "07", with as many digits as the first number has.
bool expand_range(std::string_view range, std::vector<std::string>& out) {
  const std::size_t dash = range.find('-');
  const std::string_view first = range.substr(0, dash);
  const std::string_view last = dash == std::string_view::npos ? first : range.substr(dash + 1);
  const int low = number(first), high = number(last);
  if (low < 0 || high < low || static_cast<std::size_t>(high - low) >= kMostNodes - out.size()) return false;
  for (int i = low; i <= high; ++i) out.push_back(fmt::format("{:0{}}", i, first.size()));
  return true;
}

// "r[1-2]n[0-3]": every name that it stands for; what is after a bracket varies first.
bool expand_name(std::string_view name, std::vector<std::string>& out) {
  std::vector<std::string> names = {""};
  while (!name.empty()) {
    const std::size_t open = name.find('[');
    for (std::string& each : names) each += name.substr(0, open);
    if (open == std::string_view::npos) break;
    const std::size_t close = name.find(']', open);
    std::vector<std::string> numbers;
    bool good = true;
    const auto add = [&](std::string_view range) { good = good && expand_range(range, numbers); };
    if (!split_at_commas(name.substr(open + 1, close - open - 1), add) || !good) return false;
    if (names.size() * numbers.size() > kMostNodes) return false;
    std::vector<std::string> longer;
    for (const std::string& each : names) {
      for (const std::string& one : numbers) longer.push_back(each + one);
    }
    names = std::move(longer);
    name.remove_prefix(close + 1);
  }
  out.insert(out.end(), std::make_move_iterator(names.begin()), std::make_move_iterator(names.end()));
  return out.size() <= kMostNodes;
}

// "2(x3),1": tasks of each node.
std::vector<int> tasks_of_nodes(std::string_view text) {
  std::vector<int> tasks;
  bool good = true;
  const auto add = [&](std::string_view one) {
    int times = 1;
    if (const std::size_t open = one.find("(x"); open != std::string_view::npos && one.ends_with(')')) {
      times = number(one.substr(open + 2, one.size() - open - 3));
      one = one.substr(0, open);
    }
    const int count = number(one);
    good = good && count >= 1 && times >= 1 && static_cast<std::size_t>(times) <= kMostNodes - tasks.size();
    if (good) tasks.insert(tasks.end(), static_cast<std::size_t>(times), count);
  };
  if (!split_at_commas(text, add) || !good) refuse(kSlurmTasks, text, "which says no number of tasks for each node");
  return tasks;
}

HostSpec spec_of(std::string_view where, const std::string& name, int slots) {
  // The name becomes a word of a command line.
  std::vector<HostSpec> one = parse_hosts(where, name);
  one.front().slots = slots;
  return one.front();
}

std::optional<Allocation> of_slurm(const Environment& environment) {
  if (environment.has("SLURM_HET_SIZE")) {
    throw UsageError(MessageId::kHosts,
                     "the Slurm job is heterogeneous, and aiaccrun does not read the nodes of its components; name the "
                     "hosts by --host");
  }
  const std::string_view nodes = environment.get(kSlurmNodes);
  if (nodes.empty() || !environment.has("SLURM_JOB_ID")) return std::nullopt;
  Allocation found{fmt::format("Slurm job {}", environment.get("SLURM_JOB_ID")), {}};
  const std::vector<std::string> names = expand_node_list(kSlurmNodes, nodes);
  // The step in which a shell runs may have tasks on fewer nodes than the job.
  std::vector<int> tasks(names.size(), 1);
  if (const std::string_view text = environment.get(kSlurmTasks); !text.empty()) {
    std::vector<int> told = tasks_of_nodes(text);
    if (told.size() == names.size()) tasks = std::move(told);
  }
  for (std::size_t i = 0; i < names.size(); ++i) found.hosts.push_back(spec_of(kSlurmNodes, names[i], tasks[i]));
  return found;
}

// The hosts of the manager's file.
std::optional<Allocation> of_file(std::string name, const std::string& what, const std::string& file,
                                  const ReadList& read) {
  if (file.empty()) return std::nullopt;
  const std::optional<std::string> text = read(what, file);
  if (!text) return std::nullopt;
  return Allocation{std::move(name), parse_host_file(file, *text)};
}

std::optional<Allocation> of_pbs(const Environment& environment, const ReadList& read) {
  if (!environment.has("PBS_JOBID")) return std::nullopt;
  return of_file(fmt::format("PBS job {}", environment.get("PBS_JOBID")), "PBS_NODEFILE",
                 std::string(environment.get("PBS_NODEFILE")), read);
}

// "a 4 b 2"
std::vector<HostSpec> pairs_of(std::string_view variable, std::string_view text) {
  std::vector<HostSpec> hosts;
  std::istringstream words{std::string(text)};
  for (std::string name, count; words >> name;) {
    const int slots = words >> count ? number(count) : -1;
    if (slots < 1) refuse(variable, text, "where a name and its number of slots are expected in turns");
    hosts.push_back(spec_of(variable, name, slots));
  }
  return hosts;
}

std::optional<Allocation> of_lsf(const Environment& environment, const ReadList& read) {
  if (!environment.has("LSB_JOBID")) return std::nullopt;
  const std::string name = fmt::format("LSF job {}", environment.get("LSB_JOBID"));
  if (const std::string_view pairs = environment.get("LSB_MCPU_HOSTS"); !pairs.empty()) {
    return Allocation{name, pairs_of("LSB_MCPU_HOSTS", pairs)};
  }
  return of_file(name, "LSB_DJOB_HOSTFILE", std::string(environment.get("LSB_DJOB_HOSTFILE")), read);
}

// Lines "NAME SLOTS QUEUE PROCESSORS".
std::optional<Allocation> of_grid_engine(const Environment& environment, const ReadList& read) {
  const std::string file(environment.get("PE_HOSTFILE"));
  if (file.empty() || !environment.has("JOB_ID")) return std::nullopt;
  Allocation found{fmt::format("Grid Engine job {}", environment.get("JOB_ID")), {}};
  const std::optional<std::string> text = read("PE_HOSTFILE", file);
  if (!text) return std::nullopt;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name, count;
    if (!(words >> name)) continue;
    const int slots = words >> count ? number(count) : -1;
    if (slots < 1) refuse("PE_HOSTFILE", file, "of which a line has no number of slots behind the name");
    found.hosts.push_back(spec_of(file, name, slots));
  }
  if (found.hosts.empty()) refuse("PE_HOSTFILE", file, "which names no host");
  return found;
}

std::optional<Allocation> of_mpi_operator(const Environment& environment, const ReadList& read) {
  if (environment.get("K_MPI_JOB_ROLE") != "launcher") return std::nullopt;
  return of_file("MPI Operator", "the host file of the MPI Operator", kOperatorFile, read);
}

std::string_view first_label(std::string_view name) { return name.substr(0, name.find('.')); }

// Managers may write names with a domain where the host's own has none.
void name_this_host(const std::string& own_host, std::vector<HostSpec>& hosts) {
  std::string_view alike;
  for (const HostSpec& host : hosts) {
    if (host.name == own_host) return;
    if (first_label(host.name) != first_label(own_host) || host.name == alike) continue;
    if (!alike.empty()) return;
    alike = host.name;
  }
  if (alike.empty()) return;
  const std::string name(alike);
  for (HostSpec& host : hosts) {
    if (host.name == name) host.name = own_host;
  }
}

}  // namespace

std::vector<std::string> expand_node_list(std::string_view variable, std::string_view text) {
  std::vector<std::string> names;
  bool good = true;
  const auto add = [&](std::string_view name) { good = good && expand_name(name, names); };
  if (!split_at_commas(text, add) || !good) refuse(variable, text, "which is no list of nodes");
  return names;
}

SlurmJob slurm_job(const Environment& environment) {
  const std::string_view nodes = environment.get(kSlurmNodes);
  if (nodes.empty() || !environment.has("SLURM_JOB_ID")) return {};
  SlurmJob job;
  try {
    job.nodes = expand_node_list(kSlurmNodes, nodes);
  } catch (const UsageError&) {
    return {};
  }
  job.own_name = environment.get("SLURMD_NODENAME");
  if (std::find(job.nodes.begin(), job.nodes.end(), job.own_name) == job.nodes.end()) job.own_name.clear();
  return job;
}

std::optional<Allocation> find_allocation(const Environment& environment, const std::string& own_host,
                                          const ReadList& read) {
  if (environment.has("AIACC_AGENT")) return std::nullopt;
  std::optional<Allocation> found = of_slurm(environment);
  if (!found) found = of_pbs(environment, read);
  if (!found) found = of_lsf(environment, read);
  if (!found) found = of_grid_engine(environment, read);
  if (!found) found = of_mpi_operator(environment, read);
  if (found) name_this_host(own_host, found->hosts);
  return found;
}

}  // namespace aiacc::launcher
