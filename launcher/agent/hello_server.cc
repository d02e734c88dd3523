#include "launcher/agent/hello_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/io/same_host.h"
#include "base/wire/arrivals_text.h"
#include "base/wire/handshake.h"
#include "launcher/agent/process_tree.h"

namespace aiacc::launcher {

namespace {

// The pause after accept() has failed, for example because no descriptors are left.
constexpr Duration kAcceptRetryPause = std::chrono::milliseconds(100);
// The most connections of other users at a time that get an answer, as an Acceptor limits unauthenticated peers.
constexpr std::size_t kMaxForeignConnections = 64;
constexpr std::uint32_t kForeignFrameBytes = 4096;

}  // namespace

HelloServer::HelloServer(Loop& loop, io::Host& host, Config config, Owner& owner)
    : loop_(loop),
      host_(host),
      config_(std::move(config)),
      owner_(owner),
      session_drained_(loop),
      lost_peers_(config_.ranks.size(), -1),
      lost_paths_(config_.ranks.size()),
      left_out_(config_.ranks.size()),
      arriving_(config_.ranks.size()),
      dismissed_(config_.ranks.size()) {}

Task<void> HelloServer::serve(std::unique_ptr<io::Listener> listener, Stop& stop) {
  Scope sessions(loop_, stop);
  std::exception_ptr error;
  try {
    for (;;) {
      std::unique_ptr<io::Stream> stream;
      try {
        stream = co_await listener->accept(sessions.stop());
      } catch (const Error& failure) {
        if (sessions.stop().requested()) throw;
        report_to_user(MessageId::kLimit, failure.message());
      }
      if (stream == nullptr) {
        co_await sleep_for(loop_, kAcceptRetryPause, sessions.stop());
        continue;
      }
      const bool foreign = !io::is_of_user(*stream, config_.user);
      if (foreign) ++unauthenticated_;
      if (foreign && foreign_connections_ >= kMaxForeignConnections) continue;
      Task<void> body = foreign ? refuse_foreign_user(this, std::move(stream), sessions.stop())
                                : session(this, std::move(stream), sessions.stop());
      sessions.spawn(std::move(body));
    }
  } catch (...) {
    error = std::current_exception();
  }
  sessions.stop().request(error);
  co_await sessions.join();
  std::rethrow_exception(error);
}

// The name of the socket is no secret on this machine, so processes of other users can connect. Such a process gets one
// answer that says why it is refused; the number of these connections and their time are limited.
Task<void> HelloServer::refuse_foreign_user(HelloServer* self, std::unique_ptr<io::Stream> from, Stop& stop) {
  const std::unique_ptr<io::Stream> stream =
      std::move(from);  // owned here: a parameter would live until the scope forgets the coroutine
  ++self->foreign_connections_;
  try {
    Stop limited(stop);
    const Deadline deadline(self->loop_, after(self->loop_.now(), wire::kHandshakeLimit), limited, "it says nothing");
    FrameReader frames(*stream, kForeignFrameBytes);
    const auto hello = co_await frames.next(limited);
    if (hello) {
      const auto caller = stream->peer_identity();
      wire::Refused message;
      message.code = static_cast<std::int32_t>(Code::kInvalidArgument);
      message.sentence = fmt::format("the agent of this job serves user {} only, and this process belongs to user {}",
                                     self->config_.user, caller ? static_cast<std::int64_t>(caller->uid) : -1);
      const wire::Bytes frame = wire::encode_frame(message);
      co_await io::write_all(*stream, frame, limited);
    }
  } catch (const Error&) {
    // It sent nothing, or disconnected.
  }
  --self->foreign_connections_;
}

Task<void> HelloServer::session(HelloServer* self, std::unique_ptr<io::Stream> stream, Stop& stop) {
  Session session(self->loop_, std::move(stream));
  auto place = self->sessions_.insert(self->sessions_.end(), &session);
  Scope scope(self->loop_, stop);
  scope.spawn(session.sender.run(scope.stop()));
  try {
    co_await self->serve_messages(session, scope.stop());
  } catch (const Error&) {
    // A broken connection or a peer that does not keep the protocol: the same as an end of stream.
  }
  session.sender.close();
  session.drained = true;
  self->session_drained_.set();
  self->session_drained_.reset();
  try {
    // If this is the rank's own process, its exit status is known in a moment, and is the better report.
    const bool is_rank =
        session.local >= 0 && self->processes_[static_cast<std::size_t>(session.local)] == session.process;
    if (session.state == Session::State::kWelcomed && is_rank)
      co_await sleep_for(self->loop_, kExitNotificationDelay, stop);
    co_await scope.join();
  } catch (const Error&) {
  }
  self->sessions_.erase(place);
  self->session_ended(session);
}

Task<void> HelloServer::serve_messages(Session& session, Stop& stop) {
  FrameReader frames(*session.stream);
  auto first = co_await frames.next(stop);
  if (!first) co_return;
  const auto hello = first->as<wire::Hello>();
  if (auto refusal = check(session, hello)) {
    // The rank has said hello. If aiaccrun did not know, it would not see that this rank waits for one that left
    // before, and would report the exit that the refusal causes as the job's first failure.
    if (refusal->lost >= 0) owner_.rank_connected(session.local);
    refuse(session, *refusal);
    co_return;
  }
  session.state = Session::State::kWaiting;
  session.version = hello.library_version;
  session.ports = hello.ports;
  lost_peers_[static_cast<std::size_t>(session.local)] = -1;
  lost_paths_[static_cast<std::size_t>(session.local)].clear();
  arriving_[static_cast<std::size_t>(session.local)] = false;
  owner_.rank_connected(session.local);
  complete_start_barrier();

  while (session.state == Session::State::kWaiting || session.state == Session::State::kWelcomed) {
    auto frame = co_await frames.next(stop);
    if (!frame) co_return;
    handle_frame(session, *frame);
  }
}

void HelloServer::handle_frame(Session& session, const wire::Frame& frame) {
  if (frame.type == wire::PeerLost::kType) {
    const auto message = frame.as<wire::PeerLost>();
    int lost = message.rank;
    if (config_.elastic) {
      lost = lost < 0 || lost >= static_cast<int>(world_.size()) ? -1 : world_[static_cast<std::size_t>(lost)];
    }
    if (lost < 0 || (!config_.elastic && lost >= size()) || lost == rank_of(session.local)) {
      throw Error(Code::kProtocol,
                  fmt::format("rank {} has lost rank {} of {}", rank_of(session.local), message.rank, size()));
    }
    int& first = lost_peers_[static_cast<std::size_t>(session.local)];
    if (first < 0) first = lost;
    return count_unauthenticated(session, message.unauthenticated);
  }
  if (frame.type == wire::PathLost::kType) {
    auto message = frame.as<wire::PathLost>();
    std::string& first = lost_paths_[static_cast<std::size_t>(session.local)];
    if (first.empty()) first = std::move(message.sentence);
    return count_unauthenticated(session, message.unauthenticated);
  }
  count_unauthenticated(session, frame.as<wire::Leave>().unauthenticated);
  session.state = Session::State::kLeft;
  owner_.rank_finalized(session.local);
  wire::Gone gone;
  session.sender.send(gone);
}

void HelloServer::count_unauthenticated(Session& session, std::uint64_t so_far) {
  if (so_far <= session.unauthenticated) return;
  unauthenticated_ += so_far - std::exchange(session.unauthenticated, so_far);
}

Task<void> HelloServer::drain_session(int local, Stop& stop) {
  Stop limited(stop);
  const Deadline deadline(loop_, after(loop_.now(), kExitNotificationDelay), limited, "its connection is still open");
  const auto open = [local](const Session* session) { return session->local == local && !session->drained; };
  try {
    while (std::any_of(sessions_.begin(), sessions_.end(), open)) co_await session_drained_.wait(limited);
  } catch (const Error&) {
    stop.throw_if_requested();
  }
}

std::optional<HelloServer::Refusal> HelloServer::check(Session& session, const wire::Hello& hello) {
  session.process = session.stream->peer_identity()->pid;
  if (hello.protocol != wire::kAgentProtocol) {
    return Refusal{Code::kMismatch,
                   fmt::format("process {} speaks version {} of the agent's protocol and aiaccrun version {}: "
                               "use the libaiacc that was installed with aiaccrun",
                               session.process, hello.protocol, wire::kAgentProtocol)};
  }

  const Ancestry ancestry = find_ancestry(host_, session.process, processes_, config_.agent);
  const auto claimed = std::find(config_.ranks.begin(), config_.ranks.end(), hello.rank);
  if (ancestry.root >= 0) {
    session.local = ancestry.root;
  } else if (ancestry.adopted && claimed != config_.ranks.end()) {
    session.local = static_cast<int>(claimed - config_.ranks.begin());
  } else {
    return Refusal{Code::kInvalidArgument,
                   fmt::format("process {} does not descend from a rank of this job: AIACC_AGENT in its environment is "
                               "another job's; unset it",
                               session.process)};
  }
  const int rank = rank_of(session.local);
  if (hello.rank >= 0 && hello.rank != rank) {
    return Refusal{Code::kMismatch,
                   fmt::format("process {} says that it is rank {}, but it descends from rank {} (process {})",
                               session.process, hello.rank, rank, processes_[static_cast<std::size_t>(session.local)])};
  }
  if (hello.size >= 0 && hello.size != size() && !config_.elastic) {
    Refusal refusal{Code::kMismatch, fmt::format("rank {} says that the job has {} rank{}, and aiaccrun started {}",
                                                 rank, hello.size, hello.size == 1 ? "" : "s", size())};
    refuse_waiting(refusal);
    start_refusal_ = refusal;
    return refusal;
  }
  if (start_refusal_) return start_refusal_;
  const std::string& dismissed = dismissed_[static_cast<std::size_t>(session.local)];
  if (!dismissed.empty()) return Refusal{Code::kAborted, dismissed};
  if (auto refusal = check_claim(session)) return refusal;
  for (const Session* other : sessions_) {
    if (other->state != Session::State::kWaiting || other->version == hello.library_version) continue;
    Refusal refusal{Code::kMismatch,
                    wire::version_mismatch_text(fmt::format("rank {} uses", rank_of(other->local)), other->version,
                                                fmt::format("rank {}", rank), hello.library_version),
                    MessageId::kVersions};
    refuse_waiting(refusal);
    start_refusal_ = refusal;
    return refusal;
  }
  return std::nullopt;
}

std::optional<HelloServer::Refusal> HelloServer::check_claim(Session& session) {
  Session* holder = claim_of(session.local);
  if (holder == nullptr) return std::nullopt;
  const char state = host_.state(holder->process);
  if (state != 0 && state != 'Z' && state != 'X') {
    return Refusal{Code::kInvalidState,
                   fmt::format("process {} claims rank {}, which process {} already is: start one process a rank, or "
                               "finalize in the first before the second initialises",
                               session.process, rank_of(session.local), holder->process),
                   MessageId::kClaim};
  }
  // The holder is dead; only a child of it still has a copy of its connection.
  session_ended(*holder);
  return start_refusal_;
}

HelloServer::Session* HelloServer::claim_of(int local) noexcept {
  for (Session* session : sessions_) {
    const bool claims = session->state == Session::State::kWaiting || session->state == Session::State::kWelcomed;
    if (claims && session->local == local) return session;
  }
  return nullptr;
}

void HelloServer::refuse(Session& session, const Refusal& refusal) {
  if (refusal.lost >= 0) session.sender.send(wire::RankLost{refusal.lost, refusal.sentence});
  wire::Refused message;
  message.code = static_cast<std::int32_t>(refusal.code);
  message.sentence = refusal.sentence;
  session.sender.send(message);
  session.sender.close();
  session.state = Session::State::kLeft;
  if (refusal.lost >= 0 && session.local >= 0) lost_peers_[static_cast<std::size_t>(session.local)] = refusal.lost;
  if (refusal.tell_user) report_to_user(*refusal.tell_user, refusal.sentence);
}

void HelloServer::report_to_user(MessageId id, const std::string& sentence) {
  if (sentence == last_reported_) return;
  last_reported_ = sentence;
  owner_.hello_refused(id, sentence);
}

void HelloServer::refuse_waiting(const Refusal& refusal) {
  for (Session* session : sessions_) {
    if (session->state == Session::State::kWaiting) refuse(*session, refusal);
  }
}

std::vector<HelloServer::Session*> HelloServer::waiting() {
  std::vector<Session*> found;
  for (Session* session : sessions_) {
    if (session->state == Session::State::kWaiting) found.push_back(session);
  }
  return found;
}

void HelloServer::complete_start_barrier() {
  const std::vector<Session*> all = waiting();
  std::ptrdiff_t expected = 0;
  for (std::size_t local = 0; local < left_out_.size(); ++local) expected += !left_out_[local] && !arriving_[local];
  if (all.empty() || all.size() != static_cast<std::size_t>(expected)) return;
  if (!aiaccrun_holds_barrier()) {
    wire::OpenWorld world;
    world.hosts.push_back({config_.host_name, {}});
    world.ports.resize(config_.hosts_of_ranks.size());
    return welcome(all, world);
  }
  std::vector<wire::RankPorts> ports;
  for (std::size_t local = 0; local < config_.ranks.size(); ++local) {
    const auto one = std::find_if(all.begin(), all.end(),
                                  [&](const Session* session) { return session->local == static_cast<int>(local); });
    if (one != all.end()) ports.push_back((*one)->ports);
  }
  reported_ready_ = true;
  owner_.host_ready(all.front()->version, std::move(ports), ++reports_);
}

void HelloServer::open_world(const wire::OpenWorld& world) {
  if (config_.elastic) return open_elastic_world(world);
  // If one of them is gone by now, the others were told at that time.
  if (std::exchange(reported_ready_, false)) welcome(waiting(), world);
}

// A rank that exited after the report it answers makes the world void before it begins: for the other hosts all ranks of
// this one are lost, so that they ask for the next world, as those that wait here do already.
void HelloServer::open_elastic_world(const wire::OpenWorld& world) {
  if (reported_ready_ && world.answers == reports_) {
    reported_ready_ = false;
    world_ = world.ranks;
    return welcome(waiting(), world);
  }
  for (const std::int32_t rank : config_.ranks) {
    if (std::find(world.ranks.begin(), world.ranks.end(), rank) == world.ranks.end()) continue;
    owner_.rank_lost(rank, fmt::format("rank {} on host {} did not enter the world, because another rank of its host "
                                       "exited meanwhile",
                                       rank, config_.host_name));
  }
}

int HelloServer::number_in_world(int rank) const noexcept {
  if (!config_.elastic) return rank;
  const auto place = std::find(world_.begin(), world_.end(), rank);
  return place == world_.end() ? -1 : static_cast<int>(place - world_.begin());
}

void HelloServer::replace(int local, io::ProcessId process) {
  const auto index = static_cast<std::size_t>(local);
  processes_[index] = process;
  lost_peers_[index] = -1;
  lost_paths_[index].clear();
}

void HelloServer::leave_out(int local) {
  left_out_[static_cast<std::size_t>(local)] = true;
  complete_start_barrier();
}

void HelloServer::add(int rank, io::ProcessId process) {
  config_.ranks.push_back(rank);
  processes_.push_back(process);
  lost_peers_.push_back(-1);
  lost_paths_.emplace_back();
  left_out_.push_back(false);
  arriving_.push_back(true);
  dismissed_.emplace_back();
}

void HelloServer::update_hosts(std::uint8_t what) {
  wire::HostsUpdated message;
  message.what = what;
  for (Session* session : sessions_) {
    if (session->state == Session::State::kWelcomed) session->sender.send(message);
  }
}

void HelloServer::dismiss(int local, const std::string& sentence) {
  const auto index = static_cast<std::size_t>(local);
  left_out_[index] = true;
  dismissed_[index] = sentence;
  for (Session* session : sessions_) {
    if (session->local == local && session->state == Session::State::kWaiting) {
      reported_ready_ = false;
      refuse(*session, {Code::kAborted, sentence});
    }
  }
  complete_start_barrier();
}

void HelloServer::refuse_world(Code code, const std::string& sentence) {
  reported_ready_ = false;
  start_refusal_ = Refusal{code, sentence};
  refuse_waiting(*start_refusal_);
}

void HelloServer::send_missing(const std::string& sentence) {
  wire::Missing message;
  message.sentence = sentence;
  for (Session* session : waiting()) session->sender.send(message);
}

void HelloServer::welcome(const std::vector<Session*>& sessions, const wire::OpenWorld& world) {
  SharedSegment segment;
  try {
    segment = owner_.make_segment(static_cast<int>(sessions.size()));
  } catch (const Error& error) {
    refuse_waiting({error.code(), error.message(), MessageId::kMemory});
    return;
  }
  wire::Welcome message;
  message.size = static_cast<std::int32_t>(world.ports.size());
  message.local_size = static_cast<std::int32_t>(sessions.size());
  message.job = config_.job;
  message.segment_nonce = segment.nonce;
  message.host_name = config_.host_name;
  message.hosts_of_ranks = config_.elastic ? world.hosts_of_ranks : config_.hosts_of_ranks;
  message.hosts = world.hosts;
  message.ports = world.ports;
  message.secret = config_.secret;
  for (Session* session : sessions) {
    message.rank = number_in_world(rank_of(session->local));
    message.local_rank =
        static_cast<std::int32_t>(std::count_if(sessions.begin(), sessions.end(), [&](const Session* other) {
          return number_in_world(rank_of(other->local)) < message.rank;
        }));
    session->state = Session::State::kWelcomed;
    session->sender.send(message, segment.descriptor);
    owner_.rank_initialised(session->local);
  }
}

void HelloServer::send_lost(int rank, const std::string& sentence) {
  wire::RankLost message;
  message.rank = number_in_world(rank);
  if (message.rank < 0) return;  // it was not in the world, or nobody is in one
  message.sentence = sentence;
  for (Session* session : sessions_) {
    if (session->state == Session::State::kWelcomed && rank_of(session->local) != rank) session->sender.send(message);
  }
}

void HelloServer::lose_local(int local, const std::string& sentence) {
  send_lost(rank_of(local), sentence);
  if (aiaccrun_holds_barrier()) owner_.rank_lost(rank_of(local), sentence);
}

void HelloServer::lose_remote(int rank, const std::string& sentence) {
  send_lost(rank, sentence);
  if (config_.elastic) return;
  if (!start_refusal_)
    start_refusal_ = Refusal{Code::kPeerFailed, sentence + " and takes no part any more", std::nullopt, rank};
  reported_ready_ = false;
  refuse_waiting(*start_refusal_);
}

// The connection of a session or its process has ended.
void HelloServer::session_ended(Session& session) {
  const auto state = std::exchange(session.state, Session::State::kLeft);
  if (state != Session::State::kWaiting && state != Session::State::kWelcomed) return;
  const std::string sentence =
      fmt::format("rank {} on host {} (process {}) closed its connection to the agent without finalize",
                  rank_of(session.local), config_.host_name, session.process);
  if (state == Session::State::kWelcomed) return lose_local(session.local, sentence);
  if (!reported_ready_) return;  // it may come again
  if (config_.elastic) {
    reported_ready_ = false;
    return;
  }
  lose_local(session.local, sentence);
  lose_remote(rank_of(session.local), sentence);
}

void HelloServer::rank_exited(int local, const std::string& what) {
  const std::string sentence = fmt::format("rank {} on host {} {}", rank_of(local), config_.host_name, what);
  Session* claim = claim_of(local);
  const bool in_world = claim != nullptr && claim->state == Session::State::kWelcomed;
  if (claim != nullptr) claim->state = Session::State::kLeft;
  if (config_.elastic) {
    const bool awaited = !left_out_[static_cast<std::size_t>(local)] && !arriving_[static_cast<std::size_t>(local)];
    if (awaited) reported_ready_ = false;  // aiaccrun settles what becomes of the others
    if (!in_world) return;
  } else if (!start_refusal_) {
    start_refusal_ = Refusal{Code::kPeerFailed, sentence + " and takes no part any more", std::nullopt, rank_of(local)};
    reported_ready_ = false;
    refuse_waiting(*start_refusal_);
  }
  if (claim != nullptr) lose_local(local, sentence);
}

}  // namespace aiacc::launcher
