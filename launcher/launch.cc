#include "launcher/launch.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "base/io/process_role.h"
#include "base/io/real_host.h"
#include "base/io/real_loop.h"
#include "base/io/real_net.h"
#include "base/io/real_signals.h"
#include "launcher/head.h"
#include "launcher/plan.h"
#include "launcher/program.h"
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
  here.cwd = std::filesystem::current_path().string();
  for (char** variable = environ; *variable != nullptr; ++variable) here.environment.emplace_back(*variable);
  here.topology = Topology::load();
  return here;
}

wire::StartJob job_of(const Plan& plan, const Options& options) {
  wire::StartJob job;
  job.version = version_text();
  job.host_name = plan.hosts.front().name;
  job.argv = plan.argv;
  job.cwd = plan.cwd;
  job.environment = plan.environment;
  for (const RankPlan& planned : plan.ranks) {
    job.hosts_of_ranks.push_back(static_cast<std::uint32_t>(planned.host));
    wire::StartRank& rank = job.ranks.emplace_back();
    rank.rank = planned.rank;
    rank.local_rank = planned.local_rank;
    rank.binding.assign(planned.binding.begin(), planned.binding.end());
    rank.environment = planned.environment;
  }
  job.tag_output = options.tag_output.value;
  job.report_bindings = options.report_bindings.value;
  return job;
}

Head::Settings settings_of(const Plan& plan, const Options& options, const Topology& topology) {
  Head::Settings settings;
  settings.host_name = plan.hosts.front().name;
  settings.ranks = plan.size();
  settings.tag_output = options.tag_output.value;
  settings.timeout = options.timeout.value;
  settings.kill_grace = options.kill_grace.value;
  if (options.report_bindings.value) {
    settings.describe_binding = [&topology](const std::vector<std::uint32_t>& cpus) {
      return describe_binding(io::CpuList(cpus.begin(), cpus.end()), topology);
    };
  }
  return settings;
}

int run_plan(io::RealLoop& loop, io::RealHost& host, io::Signals& signals, io::Process& keeper, const Options& options,
             unsigned closed) {
  const Surroundings here = look_around(host);
  const Plan plan = make_plan(options, here);
  find_program(plan);

  const auto out = io::adopt_inherited(loop, STDOUT_FILENO, "standard output");
  const auto err = io::adopt_inherited(loop, STDERR_FILENO, "standard error");
  Head head(loop, host, signals, keeper, *out, *err, settings_of(plan, options, here.topology));
  if ((closed & (1u << STDOUT_FILENO)) != 0) {
    head.say(MessageId::kStdout, "standard output was closed at the start: what ranks write there goes to /dev/null");
  }
  for (const Notice& notice : plan.notices) head.say(notice.id, notice.sentence);
  Stop stop;
  Task<int> job = head.run(job_of(plan, options), stop);
  return loop.run(std::move(job));
}

std::unique_ptr<io::Process> start_keeper(io::RealHost& host, const Options& options) {
  try {
    return host.spawn(keeper_spec(options.isolate.value));
  } catch (const Error& error) {
    throw LaunchError(MessageId::kLimit, kExitLauncher, error.message());
  }
}

// The keeper starts while the plan is made; a plan that fails lets it go again before anything else was started.
int run_job(const Options& options, unsigned closed) {
  io::RealLoop loop;
  io::RealSignals signals(loop, {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGWINCH, SIGTSTP, SIGCONT});
  io::RealHost host(loop);
  host.adopt_orphans();  // if keeper and agent die at once, what they leave comes to us
  std::unique_ptr<io::Process> keeper = start_keeper(host, options);
  try {
    return run_plan(loop, host, signals, *keeper, options, closed);
  } catch (...) {
    keeper->in.reset();
    Stop stop;
    loop.run(keeper->wait(stop));
    throw;
  }
}

int dry_run(const Options& options) {
  io::RealLoop loop;
  const io::RealHost host(loop);
  const Surroundings here = look_around(host);
  const Plan plan = make_plan(options, here);
  for (const Notice& notice : plan.notices) print_line(stderr, message_line(notice.id, notice.sentence));
  return print(describe_plan(plan, options, here));
}

}  // namespace

int launch(int argc, char** argv) {
  try {
    const unsigned closed = io::fill_standard_descriptors();
    const Options options = parse_options(argc, argv);
    switch (options.action) {
      case Options::Action::kHelp: return print(help_text());
      case Options::Action::kVersion: return print(version_text());
      case Options::Action::kRun: break;
    }
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
