#include "launcher/agent.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include "base/task/scope.h"
#include "launcher/process_tree.h"

namespace aiacc::launcher {

namespace {

constexpr Duration kKillLimit = std::chrono::seconds(10);
constexpr Duration kDrainLook = std::chrono::seconds(1);

std::uint64_t random_number(io::Entropy& entropy) {
  std::uint64_t number = 0;
  entropy.fill(std::as_writable_bytes(std::span(&number, 1)));
  return number;
}

Plan plan_of(const wire::StartJob& job) {
  Plan plan;
  plan.argv = job.argv;
  plan.cwd = job.cwd;
  plan.environment = job.environment;
  plan.hosts.push_back({job.host_name});
  for (const wire::StartRank& rank : job.ranks) {
    RankPlan& planned = plan.ranks.emplace_back();
    planned.rank = rank.rank;
    planned.local_rank = rank.local_rank;
    planned.host = job.host;
    planned.binding.assign(rank.binding.begin(), rank.binding.end());
    planned.environment = rank.environment;
  }
  return plan;
}

// "Cpus_allowed_list:	0-3,8" of /proc/PID/status.
std::vector<std::uint32_t> allowed_cpus(io::Host& host, io::ProcessId process) {
  constexpr std::string_view kKey = "Cpus_allowed_list:";
  const std::string text = host.read_file(fmt::format("/proc/{}/status", process)).value_or("");
  std::vector<std::uint32_t> cpus;
  std::size_t at = text.find(kKey);
  if (at == std::string::npos) return cpus;
  const char* next = text.c_str() + at + kKey.size();
  for (;;) {
    char* end = nullptr;
    const unsigned long first = std::strtoul(next, &end, 10);
    if (end == next) return cpus;
    unsigned long last = first;
    if (*end == '-') last = std::strtoul(end + 1, &end, 10);
    for (unsigned long cpu = first; cpu <= last; ++cpu) cpus.push_back(static_cast<std::uint32_t>(cpu));
    if (*end != ',') return cpus;
    next = end + 1;
  }
}

}  // namespace

Agent::Agent(Loop& loop, io::Net& net, io::Host& host, AgentPlatform& platform, io::Stream& from_head,
             io::Stream& to_head, io::Stream& keeper)
    : loop_(loop),
      net_(net),
      host_(host),
      platform_(platform),
      from_head_(from_head, wire::kLargestFrameBytes),
      keeper_(keeper),
      to_head_(loop, to_head),
      memory_kills_(host),
      gates_{CreditGate(loop), CreditGate(loop)},
      kill_now_(loop),
      all_exited_(loop),
      pumps_done_(loop) {}

Task<void> Agent::run(Stop& stop) {
  auto first = co_await from_head_.next(stop);
  if (!first) co_return;
  const auto job = first->as<wire::StartJob>();

  Scope scope(loop_, stop);
  scope.spawn(to_head_.run(scope.stop()));
  if (!start_ranks(job)) {
    co_await kill_descendants(loop_, host_, kKillLimit, stop);
    to_head_.close();
    co_await scope.join();
    co_return;
  }
  scope.spawn(control(scope.stop()));
  scope.spawn(watch_keeper(scope.stop()));
  scope.spawn(hellos_->serve(std::move(listener_), scope.stop()));
  scope.spawn(killer(scope.stop()));
  for (int local = 0; local < static_cast<int>(ranks_.size()); ++local) {
    scope.spawn(watch_exit(local, scope.stop()));
    scope.spawn(watch_stops(local, scope.stop()));
  }
  pumping_ = pumps_.size();
  for (OutputPump& one : pumps_) scope.spawn(pump(&one, scope.stop()));

  bool finished = false;
  try {
    co_await finish(scope.stop());
    finished = true;
  } catch (const Error&) {
    // A child failed: join() has its error.
  }
  scope.stop().request(std::make_exception_ptr(Error(Code::kAborted, "the job has ended")));
  try {
    co_await scope.join();
  } catch (const Error&) {
    if (!finished) throw;
  }
}

bool Agent::start_ranks(const wire::StartJob& job) {
  try {
    first_segment_ = platform_.make_segment(static_cast<int>(job.ranks.size()));
    const std::uint64_t id = random_number(platform_.entropy());
    const io::Address address = io::Address::local(fmt::format("aiacc-{:016x}", random_number(platform_.entropy())));
    listener_ = net_.listen(address);

    HelloServer::Config config;
    config.host_name = job.host_name;
    config.user = platform_.user();
    config.agent = platform_.process();
    config.job = id;
    config.hosts_of_ranks = job.hosts_of_ranks;
    for (const wire::StartRank& rank : job.ranks) config.ranks.push_back(rank.rank);
    HelloServer::Owner& owner = *this;
    hellos_ = std::make_unique<HelloServer>(loop_, host_, std::move(config), owner);

    Wiring wiring;
    wiring.agent = address.text();
    wiring.master_port = platform_.hold_port();
    const Plan plan = plan_of(job);
    started_ = loop_.now();
    std::vector<io::ProcessId> processes;
    for (std::size_t local = 0; local < plan.ranks.size(); ++local) {
      spawn_rank(plan, wiring, local);
      processes.push_back(ranks_[local].process->id());
    }
    hellos_->set_processes(std::move(processes));
  } catch (const io::SpawnError& error) {
    const int number = error.errno_value();
    if (number == ENOENT || number == ENOTDIR) {
      not_started(kExitNotFound, MessageId::kProgram, error.message());
    } else if (number == EACCES || number == ENOEXEC || number == EPERM || number == ELIBBAD) {
      not_started(kExitNotExecutable, MessageId::kNotExecutable, error.message());
    } else {
      not_started(kExitLauncher, MessageId::kLimit, error.message());
    }
    return false;
  } catch (const LaunchError& error) {
    not_started(error.exit_code(), error.id(), error.message());
    return false;
  } catch (const Error& error) {
    const bool no_room = error.code() == Code::kOutOfMemory;
    not_started(no_room ? kExitUsage : kExitLauncher, no_room ? MessageId::kMemory : MessageId::kLimit,
                error.message());
    return false;
  }
  gates_[0].add(job.credit);
  gates_[1].add(job.credit);
  report_started(job);
  return true;
}

void Agent::spawn_rank(const Plan& plan, const Wiring& wiring, std::size_t local) {
  const RankPlan& planned = plan.ranks[local];
  io::SpawnSpec spec;
  spec.argv = plan.argv;
  spec.env = rank_environment(plan, static_cast<int>(local), wiring);
  spec.cwd = plan.cwd;
  spec.out = io::SpawnSpec::Stdio::kPipe;
  spec.err = io::SpawnSpec::Stdio::kPipe;
  spec.binding = planned.binding;
  Rank rank;
  rank.rank = planned.rank;
  rank.process = host_.spawn(spec);
  if (rank.process->unbound != 0 && !std::exchange(said_unbound_, true)) {
    notify(MessageId::kUnbound,
           system_error(fmt::format("the kernel refused to bind rank {} to cpus {} (a seccomp profile?), so ranks of host "
                                    "{} run unbound",
                                    planned.rank, format_cpus(planned.binding), plan.hosts.front().name),
                        rank.process->unbound)
               .message());
  }
  ranks_.push_back(std::move(rank));
  ++running_;
}

void Agent::report_started(const wire::StartJob& job) {
  wire::Started started;
  for (Rank& rank : ranks_) {
    started.processes.push_back(rank.process->id());
    if (job.report_bindings) started.bindings.push_back(allowed_cpus(host_, rank.process->id()));
    const std::string tag = job.tag_output ? fmt::format("[{}] ", rank.rank) : std::string();
    pumps_.emplace_back(loop_, rank.rank, 1, tag, std::move(rank.process->out), gates_[0], to_head_, dropped_);
    pumps_.emplace_back(loop_, rank.rank, 2, tag, std::move(rank.process->err), gates_[1], to_head_, dropped_);
  }
  to_head_.send(started);
}

void Agent::not_started(int exit_code, MessageId id, const std::string& sentence) {
  wire::NotStarted message;
  message.exit_code = exit_code;
  message.message = static_cast<std::uint8_t>(id);
  message.sentence = sentence;
  to_head_.send(message);
}

Task<void> Agent::control(Stop& stop) {
  try {
    for (;;) {
      auto frame = co_await from_head_.next(stop);
      if (!frame) break;
      handle(*frame);
    }
  } catch (const Error&) {
    if (stop.requested()) throw;
  }
  head_lost();
}

void Agent::handle(const wire::Frame& frame) {
  switch (frame.type) {
    case wire::SignalRanks::kType: return signal_ranks(frame.as<wire::SignalRanks>().number);
    case wire::EndRanks::kType: return end_ranks(frame.as<wire::EndRanks>());
    case wire::Credit::kType: {
      const auto credit = frame.as<wire::Credit>();
      return gates_[credit.stream == 2].add(credit.bytes);
    }
    case wire::DropOutput::kType:
      for (CreditGate& gate : gates_) gate.drop();
      return;
    default: throw Error(Code::kProtocol, fmt::format("aiaccrun sent a message of the unknown type {}", frame.type));
  }
}

void Agent::signal_ranks(int number) {
  if (number == SIGSTOP) stopped_by_user_ = true;
  if (number == SIGCONT) stopped_by_user_ = false;
  for (Rank& rank : ranks_) {
    if (!rank.exited) rank.process->signal_group(number);
  }
}

void Agent::end_ranks(const wire::EndRanks& order) {
  ending_ = true;
  if (order.everyone) {
    const std::vector<io::ProcessId> all = host_.descendants();
    for (int number : order.signals) {
      for (io::ProcessId process : all) host_.signal(process, number);
    }
  } else {
    for (int number : order.signals) signal_ranks(number);
  }
  if (order.kill_after_ms < 0) return;
  kill_at_ = std::min(kill_at_, after(loop_.now(), std::chrono::milliseconds(order.kill_after_ms)));
  loop_.arm(kill_timer_, kill_at_);
}

void Agent::lost() {
  Escalation escalation(kShortGrace);
  const Escalation::Step step = escalation.lost();
  wire::EndRanks order;
  order.signals.assign(step.signals.begin(), step.signals.end());
  order.kill_after_ms = std::chrono::duration_cast<std::chrono::milliseconds>(step.kill_after).count();
  order.everyone = true;
  end_ranks(order);
}

void Agent::head_lost() {
  for (CreditGate& gate : gates_) gate.drop();
  to_head_.discard();
  lost();
}

Task<void> Agent::watch_keeper(Stop& stop) {
  std::byte nothing[1];
  try {
    while (co_await keeper_.read_some(nothing, stop) > 0) {
    }
  } catch (const Error&) {
    if (stop.requested()) throw;
  }
  wire::KeeperLost message;
  to_head_.send(message);
  lost();
}

Task<void> Agent::watch_exit(int local, Stop& stop) {
  Rank& rank = ranks_[static_cast<std::size_t>(local)];
  const io::ExitStatus status = co_await rank.process->wait(stop);
  rank.exited = true;
  wire::RankChanged message;
  message.rank = rank.rank;
  message.phase = static_cast<std::uint8_t>(RankPhase::kExited);
  message.code = status.code;
  message.signal = status.signal;
  message.after_ns = (loop_.now() - started_).count();
  message.by_memory = status.signal == SIGKILL && memory_kills_.take_one();
  hellos_->rank_exited(local, describe_status(status));
  to_head_.send(message);
  if (--running_ == 0) all_exited_.set();
}

Task<void> Agent::watch_stops(int local, Stop& stop) {
  Rank& rank = ranks_[static_cast<std::size_t>(local)];
  for (;;) {
    const int number = co_await rank.process->stopped(stop);
    if (stopped_by_user_) continue;
    wire::RankStopped message;
    message.rank = rank.rank;
    message.process = rank.process->id();
    message.signal = number;
    to_head_.send(message);
  }
}

SharedSegment Agent::make_segment() {
  if (first_segment_) return *std::exchange(first_segment_, std::nullopt);
  return platform_.make_segment(static_cast<int>(ranks_.size()));
}

void Agent::notify(MessageId id, const std::string& sentence) {
  wire::Notice notice;
  notice.message = static_cast<std::uint8_t>(id);
  notice.sentence = sentence;
  to_head_.send(notice);
}

void Agent::report_phase(int local, RankPhase phase) {
  wire::RankChanged message;
  message.rank = ranks_[static_cast<std::size_t>(local)].rank;
  message.phase = static_cast<std::uint8_t>(phase);
  message.after_ns = (loop_.now() - started_).count();
  to_head_.send(message);
}

Task<void> Agent::pump(OutputPump* one, Stop& stop) {
  try {
    co_await one->run(stop);
  } catch (const Error&) {
    if (stop.requested()) throw;  // a pipe that cannot be read is a pipe that has ended
  }
  if (--pumping_ == 0) pumps_done_.set();
}

Task<void> Agent::killer(Stop& stop) {
  co_await kill_now_.wait(stop);
  const std::vector<io::ProcessId> left = co_await kill_descendants(loop_, host_, kKillLimit, stop);
  if (left.empty()) co_return;
  notify(MessageId::kLeftover, fmt::format("cannot end {}: the kernel holds them in a system call (state D)",
                                           describe_processes(host_, left)));
  all_exited_.set();
}

// Whatever the ranks left behind, then what is still in their pipes, then the good-bye.
Task<void> Agent::finish(Stop& stop) {
  co_await all_exited_.wait(stop);
  const std::vector<io::ProcessId> left = host_.descendants();
  if (!left.empty()) {
    if (!ending_) {
      notify(MessageId::kLeftover, fmt::format("ended {} process{} that ranks left behind: {}", left.size(),
                                               left.size() == 1 ? "" : "es", describe_processes(host_, left)));
    }
    co_await end_descendants(loop_, host_, kShortGrace, stop);
  }
  co_await drain(stop);
  wire::JobEnded message;
  message.dropped_bytes = dropped_;
  to_head_.send(message);
  co_await to_head_.flushed(stop);
}

// With nobody left to write, each pipe ends at once, unless a descriptor of it was handed to a process outside the job.
Task<void> Agent::drain(Stop& stop) {
  while (pumping_ > 0) {
    {
      Stop look(stop);
      Deadline deadline(loop_, after(loop_.now(), kDrainLook), look, "output is still open");
      try {
        co_await pumps_done_.wait(look);
        break;
      } catch (const Error&) {
        stop.throw_if_requested();
      }
    }
    auto waits = [](const OutputPump& one) { return one.finished() || one.waits_for_data(); };
    if (std::all_of(pumps_.begin(), pumps_.end(), waits)) break;
  }
}

}  // namespace aiacc::launcher
