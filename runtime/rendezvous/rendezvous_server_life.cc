// The rendezvous server after all ranks have arrived: messages to all ranks, broken connections, lost ranks, and leaving.
#include <fmt/format.h>

#include <utility>

#include "runtime/rendezvous/rendezvous_dial.h"
#include "runtime/rendezvous/rendezvous_server.h"
#include "runtime/watch/liveness_probe.h"

namespace aiacc {

// --- messages to clients -------------------------------------------------------------------------------------------------

// Sends in the background, so that a client that does not read delays nobody.
void RendezvousServer::send_in_background(Task<void> sending) {
  Sending& one = sends_.emplace_back();
  one.root.emplace(loop_, std::move(sending), static_cast<Root::Owner&>(*this));
  one.root->start();
}

void RendezvousServer::broadcast(Broadcast message) {
  broadcasts_.push_back(std::move(message));
  for (const std::shared_ptr<Client>& each : clients_) {
    if (each->admitted && !each->left) send_in_background(send_missed(each));
  }
}

// Sends the client those messages to all ranks that it has not got yet.
Task<void> RendezvousServer::send_missed(std::shared_ptr<Client> client) {
  if (client->sending) co_return;
  client->sending = true;
  while (client->sent < broadcasts_.size()) {
    const Broadcast& next = broadcasts_[client->sent++];
    Task<void> sending =
        std::visit([&](const auto& message) { return client->channel.send(message, client->stop); }, next);
    co_await std::move(sending);
  }
  client->sending = false;
}

Task<void> RendezvousServer::wait_for_sends(Duration limit) {
  Stop stop;
  const Deadline deadline(loop_, after(loop_.now(), limit), stop, "somebody does not listen");
  try {
    while (!sends_.empty()) {
      send_ended_.reset();
      co_await send_ended_.wait(stop);
    }
  } catch (const Error&) {
  }
}

// --- broken connections -------------------------------------------------------------------------------------------------

void RendezvousServer::connection_ended(const Client& client, const std::string& how) {
  const int rank = client.arrive.rank;
  const bool left = client.left || losses_.leaving(rank);  // its Leave may have been lost with the connection
  if (left) gone_[static_cast<std::size_t>(rank)] = true;
  if (left || failed_) return;
  const std::string sentence = fmt::format("{} went away: {}", Arrivals::describe(client.arrive, client.from), how);
  if (hosts_known_) return watch_disconnected(rank, sentence);
  arrivals_.disconnected(rank);  // it may arrive again
  if (roster_) disconnected_.emplace_back(rank, sentence).until = after(loop_.now(), kReturnLimit);
}

// Watches a rank whose connection broke. A rank of this host may have no data port to probe; if its process cannot be watched
// either, the broken connection counts as its end.
void RendezvousServer::watch_disconnected(int rank, const std::string& sentence) {
  if (gone_[static_cast<std::size_t>(rank)]) return;  // its process had ended before
  const std::optional<std::uint16_t> port = wire::tcp_port_of(arrivals_.arrive_of(rank).ports);
  const bool here = firsts_[static_cast<std::size_t>(rank)] == firsts_[0];
  const std::string where = arrivals_.host_address(rank);
  const bool seen = local_peers_.sees(rank);
  if (here && !seen) return lose(rank, sentence);
  Disconnected& disconnected = disconnected_.emplace_back(rank, sentence);
  if (seen || !port) return;
  disconnected.watch.emplace(loop_, watch(&disconnected, io::Address::tcp(where, *port)),
                             static_cast<Root::Owner&>(*this));
  disconnected.watch->start();
}

Task<void> RendezvousServer::watch(Disconnected* disconnected, io::Address address) {
  const RendezvousDialer me{loop_, net_, entropy_, wire::Secret::from(roster_->secret), roster_->job, 0};
  const std::string how = co_await watch_until_gone(me, disconnected->rank, std::move(address), disconnected->stop);
  disconnected->sentence += "; " + how;
}

// `found`: the watch found that the process has ended; otherwise the watch was stopped.
bool RendezvousServer::watch_ended(const Root& root, bool found) {
  const auto disconnected = std::find_if(disconnected_.begin(), disconnected_.end(),
                                         [&](const Disconnected& one) { return one.watch && &*one.watch == &root; });
  if (disconnected == disconnected_.end()) return false;
  const bool lost = found && !disconnected->stop.requested();
  const int rank = disconnected->rank;
  const std::string sentence = std::move(disconnected->sentence);
  disconnected_.erase(disconnected);
  if (lost) lose(rank, sentence);
  changed_.set();
  return true;
}

void RendezvousServer::end_watch_of(int rank) {
  for (Disconnected& disconnected : disconnected_) {
    if (disconnected.rank == rank)
      disconnected.stop.request(std::make_exception_ptr(Error(Code::kAborted, "the rank is back")));
  }
  disconnected_.remove_if(
      [](const Disconnected& disconnected) { return disconnected.stop.requested() && !disconnected.watch; });
}

bool RendezvousServer::all_connected() const noexcept {
  return std::all_of(disconnected_.begin(), disconnected_.end(),
                     [](const Disconnected& disconnected) { return disconnected.stop.requested(); });
}

void RendezvousServer::fail_if_not_reconnected() {
  for (const Disconnected& disconnected : disconnected_) {
    if (loop_.now() < disconnected.until) continue;
    return refuse_all(
        Error(Code::kPeerFailed, disconnected.sentence + ", while the job came together", disconnected.rank));
  }
}

void RendezvousServer::reconnected(int rank, std::unique_ptr<io::Stream> stream, const wire::SessionKeys& keys) {
  if (!may_reconnect(rank)) return;  // it was lost meanwhile
  std::string from = stream->describe();
  auto client = std::make_shared<Client>(loop_, std::move(stream), keys, std::move(from));
  client->arrive = arrivals_.arrive_of(rank);
  client->reconnected = true;
  add_client(std::move(client));
}

void RendezvousServer::handle_resume(Client& client, const wire::Frame& frame) {
  const auto back = frame.as<wire::Resume>();
  if (back.received > broadcasts_.size()) throw Error(Code::kProtocol, "it has received more messages than were sent");
  if (failed_) return refuse(client, *failed_);
  if (!may_reconnect(client.arrive.rank)) throw Error(Code::kPeerFailed, "it was lost before it was back");
  client.sent = back.received;
  admit(client);
}

void RendezvousServer::watch_local_peers(io::Processes& processes, const wire::Roster& roster,
                                         const std::vector<std::int32_t>& firsts) {
  leaves_alone_ = can_leave_alone(roster, firsts);
  local_peers_.watch(processes, roster, firsts, 0);
}

void RendezvousServer::local_peer_ended(int rank, const std::string& sentence) {
  if (!losses_.leaving(rank)) return process_ended(rank, sentence);
  gone_[static_cast<std::size_t>(rank)] = true;  // its Leave may have been lost with its connection
  end_watch_of(rank);
  changed_.set();
}

// A rank reports that a local peer's process has ended. It knows this from its kernel, so no probe is needed.
void RendezvousServer::end_reported(const Client& from, const wire::RankLost& lost) {
  const bool known = hosts_known_ && lost.rank > 0 && lost.rank < static_cast<int>(firsts_.size());
  const bool local_peers =
      known && firsts_[static_cast<std::size_t>(lost.rank)] == firsts_[static_cast<std::size_t>(from.arrive.rank)];
  if (!local_peers || lost.rank == from.arrive.rank) {
    throw Error(Code::kProtocol, fmt::format("it tells of the end of rank {}, which is not on its host", lost.rank));
  }
  process_ended(lost.rank, lost.sentence);
}

void RendezvousServer::process_ended(int rank, const std::string& sentence) {
  if (gone_[static_cast<std::size_t>(rank)]) return;
  lose(rank, sentence);
  gone_[static_cast<std::size_t>(rank)] = true;  // also while this rank leaves, so that it waits for it no longer
  end_watch_of(rank);
  changed_.set();
  for (const std::shared_ptr<Client>& each : clients_) {  // a child process of it may keep its connection open
    if (each->admitted && each->arrive.rank == rank) {
      each->stop.request(std::make_exception_ptr(Error(Code::kPeerFailed, sentence, rank)));
    }
  }
}

void RendezvousServer::lose(int rank, const std::string& sentence) {
  if (leaving_) return;
  gone_[static_cast<std::size_t>(rank)] = true;
  broadcast(wire::RankLost{rank, sentence});
  losses_.lose(rank, sentence);
}

// --- life -----------------------------------------------------------------------------------------------------------------

// Returns when every rank knows that rank 0 leaves, also ranks that had to reconnect for it, or at `end`. Where ranks leave alone, it
// returns once the kernel has the messages: one that is lost with its connection tells no more than the shared memory does.
Task<void> RendezvousServer::leave(Instant end, Stop& stop) {
  leaving_ = true;
  broadcast(wire::Gone{});
  if (leaves_alone_) {
    co_await wait_for_sends(end - loop_.now());
    co_return;
  }
  Stop waiting(stop);
  const Deadline deadline(loop_, end, waiting, "somebody does not listen");
  const auto admitted = [](const std::shared_ptr<Client>& client) { return client->admitted; };
  try {
    while (!disconnected_.empty() || std::any_of(clients_.begin(), clients_.end(), admitted)) {
      changed_.reset();
      co_await changed_.wait(waiting);
    }
  } catch (const Error&) {
    if (stop.requested()) throw;
  }
}

}  // namespace aiacc
