#include "launcher/agent/agent.h"

#include <fmt/format.h>

#include <csignal>
#include <utility>

#include "launcher/agent/process_tree.h"
#include "launcher/channel/marker.h"
#include "launcher/cli/options.h"

namespace aiacc::launcher {

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
      decided_(loop),
      kill_now_(loop),
      exits_queried_(loop),
      same_host_asked_(loop),
      all_exited_(loop),
      pumps_done_(loop),
      head_closed_(loop) {}

Task<void> Agent::run(Stop& stop) {
  auto first = co_await from_head_.next(stop);
  if (!first) co_return;
  greet(first->as<wire::Greeting>());

  Scope scope(loop_, stop);
  scope.spawn(to_head_.run(scope.stop()));
  if (lease_) scope.spawn(beat(scope.stop()));
  scope.spawn(same_host_socket_->serve(scope.stop()));
  scope.spawn(find_same_host(scope.stop()));
  scope.spawn(control(scope.stop()));
  std::exception_ptr failure;
  try {
    co_await decided_.wait(scope.stop());
    if (ranks_run_) {
      co_await live(scope);
    } else {
      co_await kill_descendants(loop_, host_, kKillLimit, scope.stop());
      co_await delivered(scope.stop());
    }
  } catch (const Error&) {
    failure = std::current_exception();
  }
  const Error ended(Code::kAborted, "the job has ended");
  scope.stop().request(failure ? failure : std::make_exception_ptr(ended));
  try {
    co_await scope.join();
  } catch (const Error&) {
    // It ended with `failure`, or because the job did.
  }
  if (failure) std::rethrow_exception(failure);
}

void Agent::greet(const wire::Greeting& greeting) {
  to_head_.send_text(answer_to(greeting.marker));
  wire::AgentUp message;
  message.version = version_text();
  message.addresses = platform_.addresses();
  message.master_port = platform_.hold_port();
  same_host_socket_.emplace(net_, platform_.entropy(), platform_.user());
  message.machine = platform_.machine();
  message.same_host_socket = same_host_socket_->name();
  message.token = same_host_socket_->token();
  to_head_.send(message);
  if (greeting.lease_ms > 0) lease_.emplace(std::chrono::milliseconds(greeting.lease_ms));
}

Task<void> Agent::live(Scope& scope) {
  scope.spawn(watch_keeper(scope.stop()));
  scope.spawn(hellos_->serve(std::move(listener_), scope.stop()));
  scope.spawn(killer(scope.stop()));
  scope.spawn(answer_exit_queries(scope.stop()));
  for (int local = 0; local < static_cast<int>(ranks_.size()); ++local) {
    scope.spawn(watch_exit(local, scope.stop()));
    scope.spawn(watch_stops(local, scope.stop()));
  }
  pumping_ = pumps_.size();
  for (OutputPump& one : pumps_) scope.spawn(pump(&one, scope.stop()));
  if (input_) scope.spawn(input_->run(scope.stop()));
  living_ = &scope;
  co_await finish(scope.stop());
  living_ = nullptr;
}

Task<void> Agent::control(Stop& stop) {
  try {
    for (;;) {
      auto frame = co_await from_head_.next(stop);
      if (!frame) break;
      if (lease_) lease_->renew();
      handle(*frame);
    }
  } catch (const Error&) {
    if (stop.requested()) throw;
  }
  head_lost();
}

void Agent::handle(const wire::Frame& frame) {
  switch (frame.type) {
    case wire::Beat::kType: return;
    case wire::FindSameHost::kType: {
      if (same_host_query_) throw Error(Code::kProtocol, "aiaccrun asks for other agents a second time");
      same_host_query_ = frame.as<wire::FindSameHost>();
      return same_host_asked_.set();
    }
    case wire::StartJob::kType: return prepare(frame.as<wire::StartJob>());
    case wire::StartRanks::kType: return start_ranks();
    case wire::SignalRanks::kType: return signal_ranks(frame.as<wire::SignalRanks>().number);
    case wire::EndRanks::kType: return end_ranks(frame.as<wire::EndRanks>());
    case wire::Credit::kType: {
      const auto credit = frame.as<wire::Credit>();
      return gates_[credit.stream == 2].add(credit.bytes);
    }
    case wire::Input::kType: return input().add(frame.as<wire::Input>().bytes);
    case wire::OpenWorld::kType: return start_barrier().open_world(frame.as<wire::OpenWorld>());
    case wire::RefuseWorld::kType: {
      const auto refusal = frame.as<wire::RefuseWorld>();
      return start_barrier().refuse_world(static_cast<Code>(refusal.code), refusal.sentence);
    }
    case wire::LoseRank::kType: {
      const auto lost = frame.as<wire::LoseRank>();
      return start_barrier().lose_remote(lost.rank, lost.sentence);
    }
    case wire::RanksMissing::kType: return start_barrier().send_missing(frame.as<wire::RanksMissing>().sentence);
    case wire::SettleRank::kType: return settle(frame.as<wire::SettleRank>());
    case wire::AddRanks::kType: return add_ranks(frame.as<wire::AddRanks>());
    case wire::UpdateHosts::kType: return start_barrier().update_hosts(frame.as<wire::UpdateHosts>().what);
    case wire::DismissRank::kType: return dismiss(frame.as<wire::DismissRank>());
    case wire::QueryExits::kType: return exits_queried_.set();
    case wire::DropOutput::kType:
      for (CreditGate& gate : gates_) gate.discard();
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

HelloServer& Agent::start_barrier() {
  if (hellos_ == nullptr) throw Error(Code::kProtocol, "aiaccrun sent a message about other hosts before the job");
  return *hellos_;
}

InputFeed& Agent::input() {
  if (!input_) throw Error(Code::kProtocol, "aiaccrun sent input, and no rank of this host reads any");
  return *input_;
}

// Silence is no loss while the user has stopped the job.
Task<void> Agent::beat(Stop& stop) {
  for (;;) {
    co_await sleep_for(loop_, lease_->interval(), stop);
    wire::Beat message;
    to_head_.send(message);
    if (stopped_by_user_) lease_->renew();
    if (lease_->tick()) head_lost();
  }
}

Task<void> Agent::watch_exit(int local, Stop& stop) {
  Rank& rank = ranks_[static_cast<std::size_t>(local)];
  const io::ExitStatus status = co_await rank.process->wait(stop);
  rank.exited = true;
  if (input_ && rank.rank == job_.input_rank) input_->close();
  wire::RankChanged message;
  message.rank = rank.rank;
  message.phase = static_cast<std::uint8_t>(RankPhase::kExited);
  message.code = status.code;
  message.signal = status.signal;
  message.after_ns = (loop_.now() - started_).count();
  message.by_memory = status.signal == SIGKILL && memory_kills_.take_one();
  co_await hellos_->drain_session(local, stop);
  message.lost_peer = hellos_->lost_peer_of(local);
  message.lost_path = hellos_->lost_path_of(local);
  hellos_->rank_exited(local, describe_status(status));
  to_head_.send(message);
  if (job_.elastic && !ending_ && !head_gone_) {
    rank.unsettled = true;
  } else {
    count_exit();
  }
}

void Agent::count_exit() {
  if (--running_ == 0) all_exited_.set();
}

// The delay lets the agent learn of, and report, each exit that happened before the question; then it answers.
Task<void> Agent::answer_exit_queries(Stop& stop) {
  for (;;) {
    co_await exits_queried_.wait(stop);
    exits_queried_.reset();
    co_await sleep_for(loop_, 2 * kExitNotificationDelay, stop);
    wire::ExitsReported message;
    to_head_.send(message);
  }
}

Task<void> Agent::find_same_host(Stop& stop) {
  co_await same_host_asked_.wait(stop);
  wire::SameHostFound message;
  for (const std::string& name : same_host_query_->same_host_sockets) {
    std::string token = co_await token_at(loop_, net_, name, platform_.user(), stop);
    message.tokens.push_back(std::move(token));
  }
  to_head_.send(message);
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

SharedSegment Agent::make_segment(int ranks) {
  const std::optional<SharedSegment> first = std::exchange(first_segment_, std::nullopt);
  if (first && ranks == static_cast<int>(ranks_.size())) return *first;
  return platform_.make_segment(ranks, common_->slice_bytes);
}

void Agent::host_ready(const std::string& library_version, std::vector<wire::RankPorts> ports, std::uint32_t number) {
  wire::HostReady message;
  message.library_version = library_version;
  message.ports = std::move(ports);
  message.number = number;
  to_head_.send(message);
}

void Agent::rank_lost(int rank, const std::string& sentence) {
  wire::LoseRank message;
  message.rank = rank;
  message.sentence = sentence;
  to_head_.send(message);
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
    if (stop.requested()) throw;  // a pipe that cannot be read has ended
  }
  if (--pumping_ == 0) pumps_done_.set();
}

}  // namespace aiacc::launcher
