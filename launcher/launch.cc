#include "launcher/launch.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <variant>

#include "base/io/limits.h"
#include "base/io/process_role.h"
#include "base/io/real_clock.h"
#include "base/io/real_host.h"
#include "base/io/real_loop.h"
#include "base/io/real_net.h"
#include "base/io/real_signals.h"
#include "base/io/terminal.h"
#include "base/whole_file.h"
#include "launcher/cli/host_list.h"
#include "launcher/head/first_hosts.h"
#include "launcher/head/head.h"
#include "launcher/job_settings.h"
#include "launcher/plan/allocation.h"
#include "launcher/plan/placement.h"
#include "launcher/plan/plan.h"
#include "launcher/plan/program.h"

namespace aiacc::launcher {

namespace {

void print_line(std::FILE* to, const std::string& line) { std::fputs((line + "\n").c_str(), to); }

int print(const std::string& text) {
  try {
    print_whole(text);
  } catch (const Error& error) {
    throw LaunchError(MessageId::kOutputLost, kExitLauncher, error.message());
  }
  return kExitOk;
}

bool has_program(const std::string& name, const Surroundings& here) {
  try {
    find_program(name, here.cwd, here.environment);
    return true;
  } catch (const LaunchError&) {
    return false;
  }
}

Surroundings look_around(const io::Host& host) {
  Surroundings here;
  here.host_name = host.name();
  std::error_code removed;
  here.cwd = std::filesystem::current_path(removed).string();  // empty: the directory was removed
  here.environment = process_environment();
  here.terminal = ::isatty(STDOUT_FILENO) == 1;
  std::error_code none;
  here.program = std::filesystem::read_symlink("/proc/self/exe", none).string();
  here.slurm = slurm_job(Environment(here.environment));
  here.slurm.has_srun = !here.slurm.nodes.empty() && has_program("srun", here);
  return here;
}

// `what` the file is, for a sentence.
std::string read_list(const std::string& what, const std::string& file) {
  errno = 0;
  std::ifstream in(file, std::ios::binary);
  std::string text(kHostFileLimit + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad() || (in.gcount() == 0 && !in.eof())) {
    throw UsageError(MessageId::kHosts,
                     fmt::format("{} {} cannot be read: {}", what, file, std::generic_category().message(errno)));
  }
  text.resize(static_cast<std::size_t>(in.gcount()));
  if (text.size() > kHostFileLimit) {
    throw UsageError(MessageId::kHosts,
                     fmt::format("{} {} has more than {} bytes: is it one?", what, file, kHostFileLimit));
  }
  return text;
}

void read_host_file(Options& options) {
  if (!options.host_file.given()) return;
  const std::string& file = options.host_file.value;
  options.hosts = {parse_host_file(file, read_list("the host file", file)), Source::kFlag};
}

// Where the user names no hosts.
void take_allocation(const Surroundings& here, Options& options) {
  if (options.hosts.given() || options.discovery_script.given()) return;
  const auto read = [&options](const std::string& what, const std::string& file) -> std::optional<std::string> {
    std::error_code none;
    if (std::filesystem::exists(file, none) || none) return read_list(what, file);
    options.no_allocation = fmt::format("{} {} is not here, so that this host alone is used", what, file);
    return std::nullopt;
  };
  std::optional<Allocation> found = find_allocation(Environment(here.environment), here.host_name, read);
  if (!found) return;
  options.hosts = {std::move(found->hosts), Source::kAllocation};
  options.allocation = std::move(found->name);
}

struct Outside {
  io::RealLoop& loop;
  io::RealHost& host;
  io::RealSignals& signals;
  io::Entropy& entropy;
  io::Stream& in;
  io::Stream& out;
  io::Stream& err;
};

Head::Settings prepare(const Plan& plan, const Options& options, const Surroundings& here) {
  const bool any_local =
      std::any_of(plan.hosts.begin(), plan.hosts.end(), [](const HostPlan& one) { return one.local; });
  if (any_local) find_program(plan.argv.front(), plan.cwd, plan.environment);
  return settings_of(plan, options, here);
}

Growth::Settings growth_of(const Plan& plan, const Options& options, const HostSource& source,
                           const std::vector<std::string>& unusable, Duration start_limit) {
  Growth::Settings growth;
  growth.source = &source;
  growth.hosts = plan.hosts;
  growth.aside = unusable;
  growth.most_ranks = options.max_ranks.value;
  growth.cooldown = options.cooldown.value;
  growth.start_limit = start_limit;
  return growth;
}

// The hosts with which a job begins whose hosts a script finds; or the exit code.
Task<std::variant<std::vector<HostPlan>, int>> find_hosts(const Options* options, const Surroundings* here,
                                                          const std::vector<std::string>* unusable, Outside outside,
                                                          Stop* stop) {
  const Plan none;
  const FoundHosts source(none, *options, *here);
  FirstHostsSettings settings;
  settings.least = options->min_ranks.value;
  settings.limit = options->elastic_timeout.value;
  settings.unusable = *unusable;
  settings.say = [](MessageId id, const std::string& sentence) { print_line(stderr, message_line(id, sentence)); };
  auto found = co_await first_hosts(outside.loop, outside.host, outside.signals, source, settings, *stop);
  if (auto* hosts = std::get_if<std::vector<HostPlan>>(&found)) co_return std::move(*hosts);
  const JobResult& result = std::get<JobResult>(found);
  const std::optional<ClosingLine> line = closing_line(result);
  if (line) settings.say(line->id, line->sentence);
  co_return exit_code(result);
}

// As --host names them.
void take_hosts(const std::vector<HostPlan>& hosts, Options& options) {
  options.hosts.value.clear();
  int slots = 0;
  for (const HostPlan& host : hosts) {
    options.hosts.value.push_back({host.name, host.slots, host.user, host.port, options.discovery_script.value});
    slots += host.slots;
  }
  options.ranks.value = std::min(slots, options.max_ranks.value);
  options.ranks.source = Source::kFlag;
}

// Several names of one machine are detected only after connecting, and so are hosts of a script that cannot be used. Both are
// rare, so aiaccrun makes a new plan with what it learned and connects to all hosts again; each attempt has fewer names, so
// the loop ends.
Task<int> run_planned(const Options* given, Surroundings here, Outside outside, bool no_stdout, Stop* stop) {
  Options options = *given;
  const bool grows = options.discovery_script.given();
  std::vector<std::string> unusable;
  for (bool first = true;; first = false) {
    if (grows) {
      auto found = co_await find_hosts(&options, &here, &unusable, outside, stop);
      if (const int* code = std::get_if<int>(&found)) co_return *code;
      take_hosts(std::get<std::vector<HostPlan>>(found), options);
    }
    const Plan plan = make_plan(options, here);
    Head::Settings settings = prepare(plan, options, here);
    const FoundHosts source(plan, options, here);
    if (grows) settings.growth = growth_of(plan, options, source, unusable, settings.start_limit);
    if (plan.input_rank != kNoRank) {
      settings.in = &outside.in;
      settings.input_rank = plan.input_rank;
    }
    Head head(outside.loop, outside.host, outside.signals, outside.entropy, outside.out, outside.err,
              std::move(settings));
    if (first && no_stdout) {
      head.say(MessageId::kStdout, "standard output was closed at the start: what ranks write there goes to /dev/null");
    }
    for (const Notice& notice : plan.notices) {
      if (first || notice.id == MessageId::kSameMachine) head.say(notice.id, notice.sentence);
    }
    const int code = co_await head.run(*stop);
    if (head.same_machines().empty() && head.unusable_hosts().empty()) co_return code;
    unusable.insert(unusable.end(), head.unusable_hosts().begin(), head.unusable_hosts().end());
    for (const std::vector<int>& hosts : head.same_machines()) {
      std::vector<std::string>& names = here.same_machines.emplace_back();
      for (const int host : hosts) names.push_back(plan.hosts[static_cast<std::size_t>(host)].name);
    }
  }
}

// Finds the script before anything starts, by the rules for programs; one without a slash may be in the working directory.
void find_script(Options& options, const Surroundings& here) {
  std::string& script = options.discovery_script.value;
  std::error_code none;
  const bool plain = script.find('/') == std::string::npos;
  if (plain && std::filesystem::exists(std::filesystem::path(here.cwd) / script, none)) script = "./" + script;
  try {
    script = find_program(script, here.cwd, here.environment);
  } catch (const LaunchError& error) {
    throw LaunchError(error.id(), error.exit_code(), "--host-discovery-script: " + error.message());
  }
}

int run_job(Options options, unsigned closed) {
  io::raise_descriptor_limit();  // each host needs several descriptors
  io::RealLoop loop;
  io::RealSignals signals(loop, {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGTSTP, SIGCONT});
  io::RealHost host(loop);
  io::RealEntropy entropy;
  host.adopt_orphans();  // if keeper and agent die at once, aiaccrun adopts and ends their descendants
  io::take_no_stop_for_reading();
  const auto in = io::adopt_inherited(loop, STDIN_FILENO, "standard input");
  const auto out = io::adopt_inherited(loop, STDOUT_FILENO, "standard output");
  const auto err = io::adopt_inherited(loop, STDERR_FILENO, "standard error");
  const bool no_stdout = (closed & (1u << STDOUT_FILENO)) != 0;
  Stop stop;
  Surroundings here = look_around(host);
  take_allocation(here, options);
  if (options.discovery_script.given()) find_script(options, here);
  const Outside outside{loop, host, signals, entropy, *in, *out, *err};
  return loop.run(run_planned(&options, std::move(here), outside, no_stdout, &stop));
}

int dry_run(Options options) {
  io::RealLoop loop;
  const io::RealHost host(loop);
  const Surroundings here = look_around(host);
  take_allocation(here, options);
  const Plan plan = make_plan(options, here);
  const Topology topology = Topology::load();
  std::vector<Notice> notices = plan.notices;
  for (const HostPlan& there : plan.hosts) {
    if (!there.local) continue;
    const Placement placement = place_ranks(static_cast<int>(there.ranks.size()), plan.placement, topology, there.name);
    notices.insert(notices.end(), placement.notices.begin(), placement.notices.end());
  }
  for (const Notice& notice : notices) {
    if (!options.quiet.value || !is_remark(notice.id)) print_line(stderr, message_line(notice.id, notice.sentence));
  }
  return print(describe_plan(plan, options, here, topology));
}

}  // namespace

int launch(int argc, char** argv) {
  try {
    const unsigned closed = io::fill_standard_descriptors();
    Options options = parse_options(argc, argv);
    switch (options.action) {
      case Options::Action::kHelp: return print(help_text());
      case Options::Action::kVersion: return print(version_text());
      case Options::Action::kRun: break;
    }
    read_host_file(options);
    if (options.dry_run.value && options.discovery_script.given()) {
      throw UsageError(MessageId::kUsage,
                       "--dry-run starts nothing, and the script of --host-discovery-script neither, so that "
                       "there is no plan; give the hosts with --host");
    }
    return options.dry_run.value ? dry_run(std::move(options)) : run_job(std::move(options), closed);
  } catch (const LaunchError& error) {
    print_line(stderr, message_line(error.id(), error.message()));
    return error.exit_code();
  } catch (const std::exception& error) {
    print_line(stderr, message_line(unexpected(error), error.what()));
    return kExitLauncher;
  }
}

}  // namespace aiacc::launcher
