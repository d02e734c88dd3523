#include "runtime/bootstrap/bootstrap_agent.h"

#include <fmt/format.h>
#include <unistd.h>

#include <utility>

#include "base/io/descriptor_passing.h"
#include "base/io/same_host.h"
#include "runtime/bootstrap/algorithm_table_file.h"
#include "runtime/bootstrap/data_port.h"
#include "transports/host/memfd_domain.h"

namespace aiacc {

AgentBootstrap::AgentBootstrap(io::RealLoop& loop, std::string address, int rank, int size, bool several_hosts,
                               std::string version, const NetworkSettings& network)
    : loop_(loop),
      net_(loop, network.tcp),
      address_(std::move(address)),
      rank_(rank),
      size_(size),
      version_(std::move(version)),
      ended_(loop) {
  if (several_hosts) networks_ = networks_of(loop_, net_, entropy_, listen_for_peers(net_), network);
}

AgentBootstrap::~AgentBootstrap() = default;

Task<BootstrapResult> AgentBootstrap::join(Stop& stop) {
  const io::Address address = io::Address::parse(address_);
  std::unique_ptr<io::Stream> stream;
  std::string unreachable;
  try {
    stream = co_await net_.connect(address, stop);
  } catch (const Error& error) {
    if (stop.requested()) throw;
    unreachable = error.message();
  }
  if (stream == nullptr) {
    throw Error(
        Code::kPeerFailed,
        fmt::format("rank {} cannot reach the agent of its job, AIACC_AGENT={}: {}. Either aiaccrun has ended, or the "
                    "variable was left over from another job: unset it then.",
                    rank_, address_, unreachable));
  }
  require_own_user(*stream);
  io::accept_descriptors(*stream);
  channel_ = std::make_unique<wire::Channel>(loop_, std::move(stream));

  wire::Hello hello;
  hello.library_version = version_;
  hello.rank = rank_;
  hello.size = size_;
  if (networks_) hello.ports = networks_->addresses();
  co_await channel_->send(hello, stop);
  std::optional<wire::Frame> answer = co_await wait_for_others(stop);
  if (!answer) {
    throw Error(Code::kPeerFailed,
                fmt::format("the agent closed its connection with rank {} before the job came together: "
                            "aiaccrun is ending",
                            rank_));
  }
  int lost = kNoPeer;
  if (answer->type == wire::RankLost::kType) {
    lost = answer->as<wire::RankLost>().rank;
    answer = co_await channel_->receive(stop);
    if (!answer) throw Error(Code::kPeerFailed, "the agent ended before it had said why this rank is refused", lost);
  }
  if (answer->type == wire::Refused::kType) {
    const auto refused = answer->as<wire::Refused>();
    throw Error(static_cast<Code>(refused.code), refused.sentence, lost);
  }
  const auto welcome = answer->as<wire::Welcome>();
  Fd segment = io::take_descriptor(channel_->stream());
  co_return bootstrapped_of(welcome, std::move(segment));
}

// The abstract name of an agent's socket is free again when the agent has ended; then any user of the host may take it.
void AgentBootstrap::require_own_user(const io::Stream& stream) const {
  const std::uint32_t user = ::geteuid();
  if (io::is_of_user(stream, user)) return;
  const std::optional<io::PeerIdentity> agent = stream.peer_identity();
  throw Error(
      Code::kPeerFailed,
      fmt::format("rank {} does not join the agent at AIACC_AGENT={}: it belongs to user {}, and this process to "
                  "user {}. The agent of this job serves the user who started it; the variable was left over from "
                  "another job, or somebody has taken its name: unset it then.",
                  rank_, address_, agent ? static_cast<std::int64_t>(agent->uid) : -1, user));
}

// Returns the agent's answer. Until then the agent reports which ranks are missing; the error at the deadline names them.
Task<std::optional<wire::Frame>> AgentBootstrap::wait_for_others(Stop& stop) {
  std::string missing = "perhaps another rank has not called aiacc_init";
  try {
    for (;;) {
      std::optional<wire::Frame> frame = co_await channel_->receive(stop);
      if (!frame || frame->type != wire::Missing::kType) co_return frame;
      missing = frame->as<wire::Missing>().sentence;
    }
  } catch (const Error& error) {
    if (error.code() != Code::kTimeout) throw;
    throw Error(Code::kTimeout, fmt::format("{}: {}", error.message(), missing));
  }
}

BootstrapResult AgentBootstrap::bootstrapped_of(const wire::Welcome& welcome, Fd segment) {
  const auto ranks = static_cast<std::int32_t>(welcome.hosts_of_ranks.size());
  if (welcome.size != ranks || welcome.rank < 0 || welcome.rank >= ranks) {
    throw Error(Code::kProtocol,
                fmt::format("the agent's welcome makes no sense: rank {} of {}, with hosts of {} ranks", welcome.rank,
                            welcome.size, ranks));
  }
  std::vector<Member> members;
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    members.push_back({static_cast<std::uint32_t>(rank), 0, welcome.hosts_of_ranks[static_cast<std::size_t>(rank)]});
  }
  BootstrapResult bootstrapped;
  bootstrapped.rank = rank_ = welcome.rank;
  size_ = welcome.size;  // of an elastic job, not what it was when this rank was started
  bootstrapped.world = std::make_shared<const View>(welcome.job, 0, 0, 0, std::move(members));
  bootstrapped.host_name = host_name_ = welcome.host_name;
  bootstrapped.job_name = fmt::format("{:016x}", welcome.job);
  const auto local = bootstrapped.world->ranks_on_host_of(welcome.rank);
  if (static_cast<std::int32_t>(local.size()) != welcome.local_size || welcome.local_rank < 0 ||
      welcome.local_rank >= welcome.local_size || local[static_cast<std::size_t>(welcome.local_rank)] != welcome.rank) {
    throw Error(Code::kProtocol,
                fmt::format("the agent's welcome makes no sense: local rank {} of {}, but {} ranks on this "
                            "host",
                            welcome.local_rank, welcome.local_size, local.size()));
  }
  if (bootstrapped.world->hosts() > 1) {
    bootstrapped.port = port_of(welcome, *bootstrapped.world);
    bootstrapped.transport = networks_->opened_transport();
    bootstrapped.network = networks_->opened();
    take_algorithm_table(*networks_, bootstrapped);
  }
  if (welcome.local_size == 1) return bootstrapped;
  if (segment.get() < 0) {
    throw Error(Code::kProtocol,
                "the agent's welcome came without the host's segment: it was at this process's limit of "
                "descriptors (ulimit -n)");
  }
  bootstrapped.host =
      MemfdDomain::attach(segment.get(), welcome.segment_nonce, welcome.local_rank, welcome.local_size, loop_);
  return bootstrapped;
}

std::unique_ptr<MessagePort> AgentBootstrap::port_of(const wire::Welcome& welcome, const View& world) {
  if (!networks_) {
    throw Error(Code::kProtocol,
                fmt::format("the agent's welcome makes no sense: {} hosts, but AIACC_LOCAL_SIZE says that all {} ranks "
                            "are on this one",
                            world.hosts(), welcome.size));
  }
  JobPlaces places;
  for (const wire::HostEntry& host : welcome.hosts) places.hosts.push_back({host.name, host.addresses});
  places.ports = welcome.ports;
  places.secret = wire::Secret::from(welcome.secret);
  std::unique_ptr<MessagePort> port = open_data_port(*networks_, world, welcome.rank, places, kNotifiedOfFailures);
  port_ = port.get();
  return port;
}

void AgentBootstrap::observe(BootstrapObserver& observer) noexcept {
  observer_ = &observer;
  listener_ = std::make_unique<Root>(loop_, listen(), static_cast<Root::Owner&>(*this));
  listener_->start();
}

Task<void> AgentBootstrap::listen() {
  while (true) {
    std::optional<wire::Frame> frame;
    std::string broken = "closed its connection";
    try {
      frame = co_await channel_->receive(stop_);
    } catch (const Error& error) {
      if (stop_.requested()) co_return;
      broken = error.message();
    }
    if (!frame) {
      if (!leaving_) agent_is_gone(broken);
      co_return;
    }
    if (frame->type == wire::Gone::kType) co_return;
    if (frame->type == wire::HostsUpdated::kType) {
      observer_->on_hosts_updated(frame->as<wire::HostsUpdated>().what);
      continue;
    }
    const auto lost = frame->as<wire::RankLost>();
    if (lost.rank < 0 || lost.rank >= size_ || lost.rank == rank_) {
      throw Error(Code::kProtocol,
                  fmt::format("the agent tells of the loss of rank {}, of {} ranks", lost.rank, size_));
    }
    observer_->on_rank_lost(lost.rank, std::make_exception_ptr(Error(Code::kPeerFailed, lost.sentence, lost.rank)));
  }
}

void AgentBootstrap::agent_is_gone(const std::string& how) noexcept {
  // This rank counts as lost, which ends all its groups, because it is a member of each. The other members lose this rank and
  // report that to their agents, so their own failures count as consequences.
  observer_->on_rank_lost(
      rank_, std::make_exception_ptr(
                 Error(Code::kPeerFailed,
                       fmt::format("the agent of host {} is gone ({}): aiaccrun or its agent was killed, and the "
                                   "job ends",
                                   host_name_, how),
                       rank_)));
}

void AgentBootstrap::lost_peer(int rank) noexcept {
  if (report_ != nullptr || leaving_ || ended_.is_set() || rank == rank_) return;
  send_in_place(report_lost_peer(rank));
}

void AgentBootstrap::lost_path(const std::string& sentence) noexcept {
  if (report_ != nullptr || leaving_ || ended_.is_set()) return;
  send_in_place(report_lost_path(sentence));
}

// Sends without waiting. The message is small, so it is in the socket's buffer before this returns, and the agent reads it even
// if this process ends at once.
void AgentBootstrap::send_in_place(Task<void> sending) noexcept {
  loop_.allow_one_in_place();
  report_ = std::make_unique<Root>(loop_, std::move(sending), static_cast<Root::Owner&>(*this));
  report_->start();
}

Task<void> AgentBootstrap::report_lost_path(std::string sentence) {
  wire::PathLost message;
  message.sentence = std::move(sentence);
  if (port_ != nullptr) message.unauthenticated = port_->refused();
  co_await channel_->send(message, stop_);
}

Task<void> AgentBootstrap::report_lost_peer(int rank) {
  wire::PeerLost message;
  message.rank = rank;
  if (port_ != nullptr) message.unauthenticated = port_->refused();
  co_await channel_->send(message, stop_);
}

void AgentBootstrap::root_ended(Root& root, std::exception_ptr error) noexcept {
  if (&root == report_.get()) return;  // if the agent is gone, the listener reports it
  if (error && !leaving_) agent_is_gone(as_error(error).message());
  ended_.set();
}

Task<void> AgentBootstrap::leave(Instant, Stop& stop) {
  leaving_ = true;
  if (!ended_.is_set()) {
    wire::Leave last;
    if (port_ != nullptr) last.unauthenticated = port_->refused();
    co_await channel_->send(last, stop);
    co_await ended_.wait(stop);
  }
}

}  // namespace aiacc
