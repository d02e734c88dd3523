// How an agent starts its ranks: it checks everything that can fail before the first one runs.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <iterator>
#include <span>
#include <utility>

#include "base/config.h"
#include "base/io/same_host.h"
#include "launcher/agent/agent.h"
#include "launcher/agent/process_tree.h"
#include "launcher/plan/program.h"
#include "launcher/plan/provide.h"

namespace aiacc::launcher {

namespace {

// "Cpus_allowed_list:	0-3,8" of /proc/PID/status.
io::CpuList allowed_cpus(io::Host& host, io::ProcessId process) {
  constexpr std::string_view kKey = "Cpus_allowed_list:";
  const std::string text = host.read_file(fmt::format("/proc/{}/status", process)).value_or("");
  io::CpuList cpus;
  std::size_t at = text.find(kKey);
  if (at == std::string::npos) return cpus;
  const char* next = text.c_str() + at + kKey.size();
  for (;;) {
    char* end = nullptr;
    const unsigned long first = std::strtoul(next, &end, 10);
    if (end == next) return cpus;
    unsigned long last = first;
    if (*end == '-') last = std::strtoul(end + 1, &end, 10);
    for (unsigned long cpu = first; cpu <= last; ++cpu) cpus.push_back(static_cast<unsigned>(cpu));
    if (*end != ',') return cpus;
    next = end + 1;
  }
}

// On another host than aiaccrun's: the environment of the login, or of srun's step, overridden by what aiaccrun sent.
Environment common_of(const wire::StartJob& job, const std::vector<std::string>& own) {
  if (!job.over_own) return Environment(job.environment);
  const Environment sent(job.environment);
  // The agent may run in a step of a Slurm job: ranks see the job as aiaccrun does, on each host alike.
  Environment all = without_identity(sent.has("SLURM_JOB_ID") ? without_slurm_step(own).entries() : own, CompatEnv{});
  for (const std::string& entry : sent.entries()) {
    const std::size_t equals = entry.find('=');
    all.set(entry.substr(0, equals), std::string_view(entry).substr(equals + 1));
  }
  return all;
}

// 0 if it is not set or invalid. The ranks refuse an invalid value, with a message.
std::uint64_t slice_bytes_of(const Environment& environment) {
  const std::string name = "AIACC_SLICE_BYTES";
  try {
    const Config config = Config::read({}, {{name, std::string(environment.get(name))}});
    return config.origin(name) == Config::Origin::kDefault ? 0 : config->slice_bytes;
  } catch (const Error&) {
    return 0;
  }
}

PlacementPolicy policy_of(const wire::StartJob& job) {
  if (job.map_by > static_cast<std::uint8_t>(MapBy::kPackage) ||
      job.bind_to > static_cast<std::uint8_t>(BindTo::kNone)) {
    throw Error(Code::kProtocol, "aiaccrun asks for a mapping or a binding that does not exist");
  }
  return {static_cast<MapBy>(job.map_by), static_cast<BindTo>(job.bind_to), job.bind_asked, job.oversubscribe};
}

bool on_several_hosts(const wire::StartJob& job) {
  return std::any_of(job.hosts_of_ranks.begin(), job.hosts_of_ranks.end(),
                     [&](std::uint32_t host) { return host != job.hosts_of_ranks.front(); });
}

}  // namespace

// If the step fails, tells aiaccrun why and returns false.
template <typename Step>
bool Agent::try_to(Step step) {
  try {
    step();
    return true;
  } catch (const io::SpawnError& error) {
    const int number = error.errno_value();
    if (number == ENOENT || number == ENOTDIR) {
      not_started(kExitNotFound, MessageId::kProgram, error.message());
    } else if (number == EACCES || number == ENOEXEC || number == EPERM || number == ELIBBAD) {
      not_started(kExitNotExecutable, MessageId::kNotExecutable, error.message());
    } else {
      not_started(kExitLauncher, MessageId::kLimit, error.message());
    }
  } catch (const LaunchError& error) {
    not_started(error.exit_code(), error.id(), error.message());
  } catch (const Error& error) {
    const bool no_room = error.code() == Code::kOutOfMemory;
    not_started(no_room ? kExitUsage : kExitLauncher, no_room ? MessageId::kMemory : MessageId::kLimit,
                error.message());
  }
  return false;
}

void Agent::prepare(wire::StartJob job) {
  if (common_ || decided_.is_set()) throw Error(Code::kProtocol, "aiaccrun sent a second job");
  job_ = std::move(job);
  same_host_socket_->close();  // same-host detection has ended
  if (!try_to([this] { make_ready(); })) return decided_.set();
  wire::Prepared message;
  to_head_.send(message);
}

void Agent::start_ranks() {
  if (decided_.is_set()) return;  // the job was refused meanwhile
  if (!common_) throw Error(Code::kProtocol, "aiaccrun would start ranks before it sent the job");
  ranks_run_ = try_to([this] { spawn_ranks(); });
  if (ranks_run_) report_started(0);
  decided_.set();
}

void Agent::make_ready() {
  if (job_.version != version_text()) {
    throw LaunchError(MessageId::kRemoteVersion, kExitLauncher,
                      fmt::format("this agent is of {} and the job of another version; install the same version on all "
                                  "hosts",
                                  version_text().substr(0, version_text().find('\n'))));
  }
  const int ranks = static_cast<int>(job_.ranks.size());
  Common common;
  common.environment = common_of(job_, platform_.environment());
  provide_packages(job_.provide, platform_.program(), job_.host_name, common.environment);
  find_program(job_.argv.at(0), job_.cwd, common.environment.entries());
  common.placement = place_ranks(ranks, policy_of(job_), platform_.topology(), job_.host_name);
  common.slice_bytes = slice_bytes_of(common.environment);
  first_segment_ = platform_.make_segment(ranks, common.slice_bytes);
  common.wiring = serve_hellos();
  common_ = std::move(common);
  for (const Notice& notice : common_->placement.notices) notify(notice.id, notice.sentence);
}

void Agent::spawn_ranks() {
  started_ = loop_.now();
  std::vector<io::ProcessId> processes;
  for (std::size_t local = 0; local < job_.ranks.size(); ++local) {
    Rank& rank = ranks_.emplace_back();
    rank.rank = job_.ranks[local].rank;
    rank.process = spawn_rank(local, rank.rank == job_.input_rank);
    ++running_;
    processes.push_back(rank.process->id());
  }
  hellos_->set_processes(std::move(processes));
  for (CreditGate& gate : gates_) gate.add(job_.credit);
}

Wiring Agent::serve_hellos() {
  const io::Address address = io::Address::local(io::random_local_name(platform_.entropy()));
  listener_ = net_.listen(address);

  HelloServer::Config config;
  config.host_name = job_.host_name;
  config.user = platform_.user();
  config.agent = platform_.process();
  config.job = job_.job;
  config.hosts_of_ranks = job_.hosts_of_ranks;
  for (const wire::StartRank& rank : job_.ranks) config.ranks.push_back(rank.rank);
  config.secret = std::move(job_.secret);
  config.several_hosts = on_several_hosts(job_);
  config.elastic = job_.elastic;
  HelloServer::Owner& owner = *this;
  hellos_ = std::make_unique<HelloServer>(loop_, host_, std::move(config), owner);
  return {address.text(), job_.master_address, job_.master_port};
}

std::unique_ptr<io::Process> Agent::spawn_rank(std::size_t local, bool reads_input) {
  const wire::StartRank& planned = job_.ranks[local];
  const Binding& binding = common_->placement.binding;
  const auto place = static_cast<std::size_t>(planned.local_rank);
  io::SpawnSpec spec;
  spec.argv = job_.argv;
  spec.env = rank_environment(common_->environment, planned.environment, common_->wiring, binding.threads.at(place));
  spec.cwd = job_.cwd;
  if (reads_input) spec.in = io::SpawnSpec::Stdio::kPipe;
  spec.out = io::SpawnSpec::Stdio::kPipe;
  spec.err = io::SpawnSpec::Stdio::kPipe;
  spec.binding = binding.cpus.at(place);
  std::unique_ptr<io::Process> process = host_.spawn(spec);
  if (process->unbound != 0 && !std::exchange(said_unbound_, true)) {
    const std::string what = fmt::format(
        "the kernel refused to bind rank {} to cpus {} (a seccomp profile?), so ranks of "
        "host {} run unbound",
        planned.rank, format_cpus(spec.binding), job_.host_name);
    notify(MessageId::kUnbound, system_error(what, process->unbound).message());
  }
  return process;
}

// A rank in the place of another reads no standard input: what that one has read is gone. What that one left in its
// process group would hold memory and devices that the new one needs, so the new one waits until that is gone.
Task<void> Agent::respawn(std::size_t local, Stop& stop) {
  Rank& rank = ranks_[local];
  if (rank.process) co_await kill_group(loop_, host_, rank.process->id(), kKillLimit, stop);
  if (ending_ || living_ == nullptr) {
    count_exit();
    co_return;
  }
  std::unique_ptr<io::Process> process;
  try {
    process = spawn_rank(local, false);
  } catch (const Error& error) {
    notify(MessageId::kLimit, error.message());
    rank.unsettled = true;
    report_exit_of_unstarted(rank.rank);
    co_return;
  }
  replaced_.push_back(std::exchange(rank.process, std::move(process)));
  rank.exited = false;
  hellos_->replace(static_cast<int>(local), rank.process->id());
  const std::size_t pumps = pumps_.size();
  pump_output(rank);
  run_pumps(pumps);
  live_with(local);
}

void Agent::report_exit_of_unstarted(int rank) {
  wire::RankChanged message;
  message.rank = rank;
  message.phase = static_cast<std::uint8_t>(RankPhase::kExited);
  message.code = kExitLauncher;
  message.after_ns = (loop_.now() - started_).count();
  to_head_.send(message);
}

// For a process that is started while others run.
void Agent::live_with(std::size_t local) {
  living_->spawn(watch_exit(static_cast<int>(local), living_->stop()));
  living_->spawn(watch_stops(static_cast<int>(local), living_->stop()));
}

// Those from that one on.
void Agent::run_pumps(std::size_t first) {
  pumps_done_.reset();
  pumping_ += pumps_.size() - first;
  for (auto one = std::next(pumps_.begin(), static_cast<std::ptrdiff_t>(first)); one != pumps_.end(); ++one) {
    living_->spawn(pump(&*one, living_->stop()));
  }
}

// The ranks that run keep their binding; the new ones get that of their places among as many as there are now. Nothing is
// started once this host's ranks are being ended, whose exits aiaccrun will learn of.
void Agent::add_ranks(const wire::AddRanks& order) {
  if (living_ == nullptr || ending_ || head_gone_) return;
  std::size_t places = common_->placement.binding.cpus.size();
  for (const wire::StartRank& planned : order.ranks) {
    if (planned.local_rank < 0 || planned.rank <= ranks_.back().rank) {
      throw Error(Code::kProtocol, "aiaccrun adds a rank that this host has already, or without a place");
    }
    places = std::max(places, static_cast<std::size_t>(planned.local_rank) + 1);
  }
  common_->placement = place_ranks(static_cast<int>(places), policy_of(job_), platform_.topology(), job_.host_name);
  const std::size_t first = ranks_.size();
  for (const wire::StartRank& planned : order.ranks) add_rank(planned);
  const std::size_t pumps = pumps_.size();
  report_started(first);
  run_pumps(pumps);
  for (std::size_t local = first; local < ranks_.size(); ++local) {
    if (!ranks_[local].exited) live_with(local);
  }
}

// One that cannot be started is for aiaccrun a rank that exits.
void Agent::add_rank(const wire::StartRank& planned) {
  job_.ranks.push_back(planned);
  Rank& rank = ranks_.emplace_back();
  rank.rank = planned.rank;
  ++running_;
  try {
    rank.process = spawn_rank(ranks_.size() - 1, false);
    hellos_->add(rank.rank, rank.process->id());
  } catch (const Error& error) {
    notify(MessageId::kLimit, error.message());
    rank.exited = true;
    rank.unsettled = true;
    hellos_->add(rank.rank, -1);
    report_exit_of_unstarted(rank.rank);
  }
}

void Agent::dismiss(const wire::DismissRank& order) {
  const std::size_t local = place_of(order.rank);
  hellos_->dismiss(static_cast<int>(local), order.sentence);
  Rank& rank = ranks_[local];
  if (!order.now || rank.exited || living_ == nullptr) return;
  rank.process->signal_group(SIGTERM);
  rank.process->signal_group(SIGCONT);
  living_->spawn(kill_after_grace(local, living_->stop()));
}

Task<void> Agent::kill_after_grace(std::size_t local, Stop& stop) {
  co_await sleep_for(loop_, kShortGrace, stop);
  if (!ranks_[local].exited) ranks_[local].process->signal_group(SIGKILL);
}

std::size_t Agent::place_of(int rank) const {
  const auto place = std::find_if(ranks_.begin(), ranks_.end(), [&](const Rank& one) { return one.rank == rank; });
  if (place == ranks_.end()) throw Error(Code::kProtocol, "aiaccrun sent an order about a rank of another host");
  return static_cast<std::size_t>(place - ranks_.begin());
}

void Agent::settle(const wire::SettleRank& order) {
  const std::size_t local = place_of(order.rank);
  if (!std::exchange(ranks_[local].unsettled, false)) return;  // this host's ranks were ended meanwhile
  if (order.replace && living_ != nullptr) return living_->spawn(respawn(local, living_->stop()));
  hellos_->leave_out(static_cast<int>(local));
  count_exit();
}

void Agent::report_started(std::size_t first) {
  wire::Started started;
  for (std::size_t local = first; local < ranks_.size(); ++local) {
    Rank& rank = ranks_[local];
    if (rank.exited) continue;
    started.processes.push_back(rank.process->id());
    if (job_.report_bindings) {
      started.bindings.push_back(describe_binding(allowed_cpus(host_, rank.process->id()), platform_.topology()));
    }
    if (rank.process->in) input_.emplace(loop_, std::move(rank.process->in), to_head_);
    pump_output(rank);
  }
  to_head_.send(started);
}

void Agent::pump_output(Rank& rank) {
  const std::string tag = job_.tag_output ? fmt::format("[{}] ", rank.rank) : std::string();
  pumps_.emplace_back(loop_, rank.rank, 1, tag, std::move(rank.process->out), gates_[0], to_head_, dropped_);
  pumps_.emplace_back(loop_, rank.rank, 2, tag, std::move(rank.process->err), gates_[1], to_head_, dropped_);
}

void Agent::not_started(int exit_code, MessageId id, const std::string& sentence) {
  wire::NotStarted message;
  message.exit_code = exit_code;
  message.message = static_cast<std::uint8_t>(id);
  message.sentence = sentence;
  to_head_.send(message);
}

}  // namespace aiacc::launcher
