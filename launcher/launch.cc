#include "launcher/launch.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "base/config.h"
#include "base/io/limits.h"
#include "base/io/process_role.h"
#include "base/io/real_clock.h"
#include "base/io/real_host.h"
#include "base/io/real_loop.h"
#include "base/io/real_net.h"
#include "base/io/real_signals.h"
#include "base/io/terminal.h"
#include "launcher/cli/host_list.h"
#include "launcher/head/head.h"
#include "launcher/plan/placement.h"
#include "launcher/plan/plan.h"
#include "launcher/plan/program.h"
#include "launcher/plan/starter.h"
#include "launcher/roles.h"

namespace aiacc::launcher {

namespace {

void print_line(std::FILE* to, const std::string& line) { std::fputs((line + "\n").c_str(), to); }

int print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  return std::fflush(stdout) == 0 ? kExitOk : kExitLauncher;
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
  return here;
}

void read_host_file(Options& options) {
  if (!options.host_file.given()) return;
  const std::string& file = options.host_file.value;
  std::ifstream in(file, std::ios::binary);
  std::string text(kHostFileLimit + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad() || (in.gcount() == 0 && !in.eof())) {
    throw UsageError(MessageId::kHosts,
                     fmt::format("the host file {} cannot be read; check its path and permissions", file));
  }
  text.resize(static_cast<std::size_t>(in.gcount()));
  if (text.size() > kHostFileLimit) {
    throw UsageError(MessageId::kHosts,
                     fmt::format("the host file {} has more than {} bytes: is it one?", file, kHostFileLimit));
  }
  options.hosts = {parse_host_file(file, text), Source::kFlag};
}

// aiaccrun itself uses only these two of the library's variables.
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

wire::StartJob job_of(const Plan& plan, const Options& options, std::size_t host) {
  const HostPlan& there = plan.hosts[host];
  wire::StartJob job;
  job.version = version_text();
  job.host_name = there.name;
  job.host = static_cast<std::int32_t>(host);
  job.argv = plan.argv;
  job.cwd = plan.cwd;
  job.environment = there.local ? plan.environment : plan.remote_environment;
  job.over_own = !there.local;
  for (const RankPlan& planned : plan.ranks) {
    job.hosts_of_ranks.push_back(static_cast<std::uint32_t>(planned.host));
    if (planned.host != job.host) continue;
    wire::StartRank& rank = job.ranks.emplace_back();
    rank.rank = planned.rank;
    rank.local_rank = planned.local_rank;
    rank.environment = planned.environment;
  }
  job.map_by = static_cast<std::uint8_t>(plan.placement.map_by);
  job.bind_to = static_cast<std::uint8_t>(plan.placement.bind_to);
  job.bind_asked = plan.placement.bind_asked;
  job.oversubscribe = plan.placement.oversubscribe;
  job.provide = options.provide.value;
  job.tag_output = options.tag_output.value;
  job.report_bindings = options.report_bindings.value;
  return job;
}

HostLink::Settings link_to(const Plan& plan, const Options& options, const Surroundings& here, std::size_t host,
                           Duration lease) {
  const HostPlan& there = plan.hosts[host];
  HostLink::Settings link;
  link.index = static_cast<int>(host);
  link.name = there.name;
  link.local = there.local;
  if (there.local) {
    link.starts.push_back(keeper_spec(options.isolate.value));
    return link;
  }
  link.ssh = !options.launch_agent.given();
  link.lease = lease;
  for (const Words& command : starter_commands(there, options, here.program)) {
    link.starts.push_back(starter_spec(command));
  }
  return link;
}

Head::Settings settings_of(const Plan& plan, const Options& options, const Surroundings& here) {
  const Config config = own_config(here);
  Head::Settings settings;
  for (std::size_t host = 0; host < plan.hosts.size(); ++host) {
    settings.hosts.push_back(link_to(plan, options, here, host, config->lease));
    settings.jobs.push_back(job_of(plan, options, host));
  }
  settings.separate_hosts = options.separate_hosts.value;
  settings.tag_output = options.tag_output.value;
  settings.quiet = options.quiet.value;
  settings.min_ranks = options.min_ranks.value;
  settings.max_ranks = options.max_ranks.value;
  settings.reset_limit = options.reset_limit.value;
  settings.timeout = options.timeout.value;
  settings.kill_grace = options.kill_grace.value;
  settings.start_limit = config->init_timeout;
  return settings;
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

// Several names of one machine are detected only after connecting. That is rare, so aiaccrun makes a new plan with what
// it learned and connects to all hosts again; each attempt has fewer names, so the loop ends.
Task<int> run_planned(const Options* options, Surroundings here, Outside outside, bool no_stdout, Stop* stop) {
  for (bool first = true;; first = false) {
    const Plan plan = make_plan(*options, here);
    Head::Settings settings = prepare(plan, *options, here);
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
    if (head.same_machines().empty()) co_return code;
    for (const std::vector<int>& hosts : head.same_machines()) {
      std::vector<std::string>& names = here.same_machines.emplace_back();
      for (const int host : hosts) names.push_back(plan.hosts[static_cast<std::size_t>(host)].name);
    }
  }
}

int run_job(const Options& options, unsigned closed) {
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
  const Outside outside{loop, host, signals, entropy, *in, *out, *err};
  return loop.run(run_planned(&options, std::move(here), outside, no_stdout, &stop));
}

int dry_run(const Options& options) {
  io::RealLoop loop;
  const io::RealHost host(loop);
  const Surroundings here = look_around(host);
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
    return options.dry_run.value ? dry_run(options) : run_job(options, closed);
  } catch (const LaunchError& error) {
    print_line(stderr, message_line(error.id(), error.message()));
    return error.exit_code();
  } catch (const std::exception& error) {
    print_line(stderr, message_line(MessageId::kInternal, error.what()));
    return kExitLauncher;
  }
}

}  // namespace aiacc::launcher
