// Rank 0's end of the rendezvous: gathers all ranks, sends the roster to all, and later reports lost ranks. Messages to
// all ranks have one order and are kept, so that a rank that reconnects receives those that it missed
// (docs/wire-protocol.md, "Reconnecting"). rendezvous_server.cc covers the time until all ranks have arrived,
// rendezvous_server_life.cc the time after that.
#pragma once

#include <algorithm>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/io/clock.h"
#include "base/task/scope.h"
#include "base/wire/acceptor.h"
#include "base/wire/agent_messages.h"
#include "base/wire/secure_channel.h"
#include "runtime/bootstrap/losses.h"
#include "runtime/rendezvous/reconnect_acceptor.h"
#include "runtime/rendezvous/rendezvous.h"
#include "runtime/rendezvous/rendezvous_arrivals.h"
#include "runtime/watch/local_peer_watch.h"

namespace aiacc {

class RendezvousServer final : public Rendezvous,
                               private wire::Acceptor::Owner,
                               private ReconnectAcceptor::Owner,
                               private LocalPeerWatch::Owner,
                               private Root::Owner {
 public:
  struct Listeners {
    std::unique_ptr<io::Listener> endpoint;
    std::unique_ptr<io::Listener> back;  // on a free port, for ranks that reconnect
  };
  // `me` describes rank 0 like a client's Arrive, `endpoint` names the endpoint in messages, `limit` is the time limit
  // of the rendezvous. Net and entropy outlive the rendezvous.
  RendezvousServer(Loop& loop, io::Net& net, Listeners listeners, const wire::Secret& secret, io::Entropy& entropy,
                   const wire::Arrive& me, std::string endpoint, Duration limit);
  ~RendezvousServer() override;

  Task<wire::Roster> gather(Stop& stop) override;
  std::string awaited() const override { return waiting_text(); }
  Task<std::vector<std::int32_t>> agree_on_hosts(std::int32_t first, Stop& stop) override;
  void watch_local_peers(io::Processes& processes, const wire::Roster& roster,
                         const std::vector<std::int32_t>& firsts) override;
  void observe(BootstrapObserver& observer) noexcept override { losses_.observe(observer); }
  Task<void> leave(Instant end, Stop& stop) override;
  std::vector<std::string> remarks() const override;

 private:
  struct Client {
    Client(Loop& loop, std::unique_ptr<io::Stream> stream, const wire::SessionKeys& keys, std::string address)
        : channel(loop, std::move(stream), keys.to_dialer, keys.to_listener), from(std::move(address)) {}
    wire::SecureChannel channel;
    std::string from;  // its address as seen from here
    wire::Arrive arrive;
    bool reconnected = false;  // this connection replaces a broken one
    bool admitted = false;     // takes part in the rendezvous
    bool left = false;         // it left in order
    std::size_t sent = 0;      // how many of the messages to all it was sent
    bool sending = false;
    Stop stop;
    std::optional<Root> reader;  // last: its frames refer to the members above
  };
  struct Sending {
    std::optional<Root> root;
  };
  // A rank that lost its connection and may reconnect.
  struct Disconnected {
    Disconnected(int its_rank, std::string why) : rank(its_rank), sentence(std::move(why)) {}
    int rank;
    std::string sentence;
    Instant until{};            // deadline, before the last messages
    Stop stop;                  // of the watch; requested when the rank is back
    std::optional<Root> watch;  // none if its process is watched directly
  };
  using Broadcast = std::variant<wire::Roster, wire::ReconnectPort, wire::HostMap, wire::RankLost, wire::Gone>;

  Task<void> greet(std::unique_ptr<io::Stream> stream, wire::Acceptor::Newcomer& newcomer, Stop& stop) override;
  void peer_refused() noexcept override { ++unauthenticated_; }
  bool may_reconnect(int rank) const noexcept override { return !gone_[static_cast<std::size_t>(rank)]; }
  void reconnected(int rank, std::unique_ptr<io::Stream> stream, const wire::SessionKeys& keys) override;
  void root_ended(Root& root, std::exception_ptr error) noexcept override;

  void add_client(std::shared_ptr<Client> client);
  Task<void> serve(Client* client);
  void handle_resume(Client& client, const wire::Frame& frame);
  void handle_arrive(Client& client, const wire::Frame& frame);
  void refuse(Client& client, const Error& why);
  void refuse_all(const Error& why);
  void admit(Client& client);
  void end_earlier_connection(const Client& by);
  void connection_ended(const Client& client, const std::string& how);
  void fail_if_not_reconnected();
  void watch_disconnected(int rank, const std::string& sentence);
  Task<void> watch(Disconnected* disconnected, io::Address address);
  bool watch_ended(const Root& root, bool found);
  void end_watch_of(int rank);
  bool all_connected() const noexcept;
  void local_peer_ended(int rank, const std::string& sentence) override;
  void end_reported(const Client& from, const wire::RankLost& lost);
  void process_ended(int rank, const std::string& sentence);
  void lose(int rank, const std::string& sentence);
  template <wire::Message T>
  void send(const std::shared_ptr<Client>& client, const T& message);
  template <wire::Message T>
  static Task<void> send_one(std::shared_ptr<Client> client, T message);
  void send_waiting();
  void broadcast(Broadcast message);
  Task<void> send_missed(std::shared_ptr<Client> client);
  void send_in_background(Task<void> sending);
  Task<void> wait_for_sends(Duration limit);
  Task<bool> wait_for_change(Stop& stop);

  std::string waiting_text() const;
  std::uint64_t unauthenticated() const noexcept {
    return unauthenticated_ - std::min(reported_by_ranks_, unauthenticated_);
  }
  wire::Roster make_roster();

  Loop& loop_;
  io::Net& net_;
  wire::Secret secret_;
  io::Entropy& entropy_;
  Arrivals arrivals_;
  std::string endpoint_;
  Duration limit_;
  Event changed_;
  Event send_ended_;
  std::uint64_t unauthenticated_ = 0;
  std::uint64_t reported_by_ranks_ = 0;  // how many of them, as reconnected ranks report
  std::vector<std::string> remarks_;
  bool old_version_noted_ = false;
  std::optional<Error> failed_;         // why the job cannot start
  std::optional<wire::Roster> roster_;  // once all ranks have arrived
  std::deque<Broadcast> broadcasts_;    // messages to all, the roster first
  std::list<Disconnected> disconnected_;
  std::vector<bool> gone_;  // by rank: lost, or left in order
  bool hosts_known_ = false;
  bool leaves_alone_ = false;  // can_leave_alone()
  bool leaving_ = false;
  std::vector<std::optional<std::int32_t>> firsts_;
  Losses losses_;
  std::list<std::shared_ptr<Client>> clients_;
  std::list<Sending> sends_;
  std::optional<wire::Acceptor> acceptor_;
  ReconnectAcceptor reconnect_acceptor_;
  LocalPeerWatch local_peers_;
};

}  // namespace aiacc
