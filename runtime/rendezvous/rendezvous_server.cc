#include "runtime/rendezvous/rendezvous_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace aiacc {
namespace {

constexpr Duration kWaitingInterval = std::chrono::seconds(1);  // between messages to waiting ranks

}  // namespace

RendezvousServer::RendezvousServer(Loop& loop, io::Net& net, Listeners listeners, const wire::Secret& secret,
                                   io::Entropy& entropy, const wire::Arrive& me, std::string endpoint, Duration limit)
    : loop_(loop),
      net_(net),
      secret_(secret),
      entropy_(entropy),
      arrivals_(me, endpoint),
      endpoint_(std::move(endpoint)),
      limit_(limit),
      changed_(loop),
      send_ended_(loop),
      gone_(static_cast<std::size_t>(me.size)),
      firsts_(static_cast<std::size_t>(me.size)),
      reconnect_acceptor_(loop, static_cast<ReconnectAcceptor::Owner&>(*this), std::move(listeners.back), entropy),
      local_peers_(loop, static_cast<LocalPeerWatch::Owner&>(*this)) {
  acceptor_.emplace(loop_, static_cast<wire::Acceptor::Owner&>(*this), std::move(listeners.endpoint));
}

RendezvousServer::~RendezvousServer() = default;

// --- clients ---------------------------------------------------------------------------------------------------------

// Any rank number is accepted in the handshake: a client that knows the secret but has another number of ranks gets the error
// sentence from handle_arrive().
Task<void> RendezvousServer::greet(std::unique_ptr<io::Stream> stream, wire::Acceptor::Newcomer& newcomer, Stop& stop) {
  const wire::ListenerHandshake::Expected expected{wire::Purpose::kControl, kRendezvousJob, 0,
                                                   std::numeric_limits<std::int32_t>::max()};
  wire::ListenerHandshake handshake(secret_, expected, entropy_);
  const bool proved = co_await wire::accept_proof(handshake, *stream, stop, newcomer.heard);
  if (!proved) co_return;
  newcomer.unauthenticated = false;
  const int rank = handshake.who().from;
  if (handshake.version() < wire::kFirstWithShares && !std::exchange(old_version_noted_, true))
    remarks_.push_back(wire::old_version_remark(fmt::format("rank {} ({})", rank, stream->describe())));
  const wire::Bytes verdict = handshake.decide(wire::Verdict::kAccepted, "");
  co_await io::write_all(*stream, verdict, stop);
  std::string from = stream->describe();
  auto client = std::make_shared<Client>(loop_, std::move(stream), handshake.keys(), std::move(from));
  client->arrive.rank = rank;
  add_client(std::move(client));
}

void RendezvousServer::add_client(std::shared_ptr<Client> client) {
  Client* raw = client.get();
  clients_.push_back(std::move(client));
  raw->reader.emplace(loop_, serve(raw), static_cast<Root::Owner&>(*this));
  raw->reader->start();
}

Task<void> RendezvousServer::serve(Client* client) {
  std::optional<wire::Frame> frame = co_await client->channel.receive(client->stop);
  if (!frame) co_return;
  client->reconnected ? handle_resume(*client, *frame) : handle_arrive(*client, *frame);
  while ((frame = co_await client->channel.receive(client->stop))) {
    if (frame->type == wire::Leave::kType) {
      frame->as<wire::Leave>();
      client->left = true;
      continue;
    }
    if (frame->type == wire::RankLost::kType) {
      end_reported(*client, frame->as<wire::RankLost>());
      continue;
    }
    const auto local_peers = frame->as<wire::LocalPeers>();
    if (!client->admitted || !roster_) throw Error(Code::kProtocol, "it sent LocalPeers before it had the roster");
    firsts_[static_cast<std::size_t>(client->arrive.rank)] = local_peers.first;
    changed_.set();
  }
  const bool answers = leaving_;  // its farewell answers this rank's
  if (client->left) co_await client->channel.farewell(client->stop);
  client->left = client->left || answers;
}

void RendezvousServer::root_ended(Root& root, std::exception_ptr error) noexcept {
  if (watch_ended(root, error == nullptr)) return;
  const auto sending =
      std::find_if(sends_.begin(), sends_.end(), [&](const Sending& one) { return &*one.root == &root; });
  if (sending != sends_.end()) {
    sends_.erase(sending);
    send_ended_.set();
    return;
  }
  const auto found = std::find_if(clients_.begin(), clients_.end(),
                                  [&](const std::shared_ptr<Client>& one) { return &*one->reader == &root; });
  const std::shared_ptr<Client> client = *found;  // a send to it may still be in progress
  clients_.erase(found);
  client->stop.request(std::make_exception_ptr(Error(Code::kAborted, "the other end is gone")));
  if (client->admitted) connection_ended(*client, error ? as_error(error).message() : "it closed its connection");
  changed_.set();
}

void RendezvousServer::handle_arrive(Client& client, const wire::Frame& frame) {
  wire::Arrive head;
  if (frame.type == wire::Arrive::kType) {
    wire::Reader reader(frame.body, "the first message of a rank");
    reader.get(head.protocol);
    reader.get(head.version);
  }
  const int claimed = client.arrive.rank;
  std::optional<Arrivals::Refusal> refusal = arrivals_.check_version(head, claimed, client.from);
  if (!refusal) {
    client.arrive = frame.as<wire::Arrive>();
    if (client.arrive.rank != claimed) throw Error(Code::kProtocol, "it changed its rank");
    refusal = arrivals_.check(client.arrive, client.from);
  }
  if (refusal) {
    refusal->for_all ? refuse_all(refusal->why) : remarks_.push_back(refusal->why.message());
    return refuse(client, refusal->why);
  }
  if (failed_) return refuse(client, *failed_);
  if (roster_ && !arrivals_.is_same_process(client.arrive)) {
    const Error why(
        Code::kPeerFailed,
        fmt::format("{} began anew while the job came together", Arrivals::describe(client.arrive, client.from)),
        client.arrive.rank);
    refuse_all(why);
    return refuse(client, why);
  }
  reported_by_ranks_ += client.arrive.dropped;
  admit(client);
}

void RendezvousServer::admit(Client& client) {
  end_earlier_connection(client);
  client.admitted = true;
  arrivals_.add(client.arrive, client.from);
  end_watch_of(client.arrive.rank);
  for (const std::shared_ptr<Client>& each : clients_) {
    if (each.get() == &client) send_in_background(send_missed(each));
  }
  changed_.set();
}

// Ends an earlier connection of the same rank, which may be broken without this end having noticed it.
void RendezvousServer::end_earlier_connection(const Client& by) {
  for (const std::shared_ptr<Client>& each : clients_) {
    if (each.get() == &by || !each->admitted || each->arrive.rank != by.arrive.rank) continue;
    each->admitted = false;
    each->stop.request(std::make_exception_ptr(Error(Code::kAborted, "the rank has come on another connection")));
  }
}

void RendezvousServer::refuse(Client& client, const Error& why) {
  const wire::JoinRefused refusal{static_cast<std::int32_t>(why.code()), why.message()};
  for (const std::shared_ptr<Client>& each : clients_) {
    if (each.get() == &client) send(each, refusal);
  }
}

void RendezvousServer::refuse_all(const Error& why) {
  if (failed_) return;
  failed_ = why;
  for (const std::shared_ptr<Client>& each : clients_) {
    if (each->admitted) refuse(*each, why);
  }
  changed_.set();
}

template <wire::Message T>
Task<void> RendezvousServer::send_one(std::shared_ptr<Client> client, T message) {
  co_await client->channel.send(message, client->stop);
}

template <wire::Message T>
void RendezvousServer::send(const std::shared_ptr<Client>& client, const T& message) {
  send_in_background(send_one(client, message));
}

void RendezvousServer::send_waiting() {
  const wire::Waiting waiting{waiting_text()};
  for (const std::shared_ptr<Client>& each : clients_) {
    if (each->admitted) send(each, waiting);
  }
}

// --- rendezvous -----------------------------------------------------------------------------------------------------------

// Waits for a change, for kWaitingInterval at most; false if nothing changed.
Task<bool> RendezvousServer::wait_for_change(Stop& stop) {
  Stop waiting(stop);
  const Deadline deadline(loop_, after(loop_.now(), kWaitingInterval), waiting, "");
  changed_.reset();
  try {
    co_await changed_.wait(waiting);
  } catch (const Error&) {
    if (stop.requested()) throw;
    co_return false;
  }
  co_return true;
}

Task<wire::Roster> RendezvousServer::gather(Stop& stop) {
  acceptor_->open();
  std::exception_ptr ended;
  try {
    while (arrivals_.missing() > 0 && !failed_) {
      const bool changed = co_await wait_for_change(stop);
      if (!changed) send_waiting();
    }
  } catch (...) {
    ended = std::current_exception();
  }
  if (ended && as_error(ended).code() == Code::kTimeout) {
    refuse_all(Error(Code::kTimeout, too_late(limit_, waiting_text())));
  }
  if (failed_) {
    co_await wait_for_sends(kFinalMessagesLimit);
    throw Error(*failed_);
  }
  if (ended) std::rethrow_exception(ended);
  roster_ = make_roster();
  reconnect_acceptor_.open(*roster_);
  broadcast(*roster_);
  broadcast(wire::ReconnectPort{reconnect_acceptor_.port()});
  co_return *roster_;
}

Task<std::vector<std::int32_t>> RendezvousServer::agree_on_hosts(std::int32_t first, Stop& stop) {
  firsts_[0] = first;
  const auto unknown = [](const std::optional<std::int32_t>& one) { return !one.has_value(); };
  while (!failed_ && (!all_connected() || std::any_of(firsts_.begin(), firsts_.end(), unknown))) {
    co_await wait_for_change(stop);
    fail_if_not_reconnected();
  }
  if (failed_) {
    co_await wait_for_sends(kFinalMessagesLimit);
    throw Error(*failed_);
  }
  hosts_known_ = true;
  acceptor_.reset();  // the endpoint is now free for the next job
  wire::HostMap host_map;
  for (const std::optional<std::int32_t>& one : firsts_) host_map.firsts.push_back(*one);
  broadcast(host_map);
  check_firsts(host_map.firsts, static_cast<int>(firsts_.size()));
  co_return host_map.firsts;
}

std::string RendezvousServer::waiting_text() const {
  std::string text = arrivals_.text();
  if (const std::uint64_t count = unauthenticated(); count > 0) {
    text += fmt::format("; {} connection{} did not prove to know the secret", count, count == 1 ? "" : "s");
  }
  for (const std::string& remark : remarks_) text += "; " + remark;
  return text;
}

wire::Roster RendezvousServer::make_roster() {
  wire::Roster roster;
  entropy_.fill(std::as_writable_bytes(std::span(&roster.job, 1)));
  roster.secret = wire::Secret::fresh(entropy_).text();
  roster.ranks = arrivals_.roster();
  return roster;
}

std::vector<std::string> RendezvousServer::remarks() const {
  std::vector<std::string> all = remarks_;
  if (const std::uint64_t count = unauthenticated(); count > 0) {
    all.push_back(
        fmt::format("{} unauthenticated peer{} turned away at {}", count, count == 1 ? " was" : "s were", endpoint_));
  }
  return all;
}

}  // namespace aiacc
