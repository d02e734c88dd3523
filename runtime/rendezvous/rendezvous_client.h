// RendezvousClient: the rendezvous end of every rank except 0. It dials rank 0 until that has authenticated, and then
// receives its messages; after a broken connection it reconnects and receives what it has missed.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/io/clock.h"
#include "base/task/scope.h"
#include "base/wire/agent_messages.h"
#include "base/wire/secure_channel.h"
#include "runtime/bootstrap/losses.h"
#include "runtime/rendezvous/reconnect.h"
#include "runtime/rendezvous/rendezvous.h"
#include "runtime/watch/local_peer_watch.h"

namespace aiacc {

class RendezvousClient final : public Rendezvous, private LocalPeerWatch::Owner, private Root::Owner {
 public:
  // `limit` is the time limit of the rendezvous. `net`, `endpoint` and `entropy` outlive the client.
  RendezvousClient(Loop& loop, io::Net& net, RendezvousEndpoint& endpoint, io::Entropy& entropy, wire::Arrive me,
                   Duration limit);
  ~RendezvousClient() override;

  Task<wire::Roster> gather(Stop& stop) override;
  std::string awaited() const override { return channel_ != nullptr ? "" : arrivals(); }
  Task<std::vector<std::int32_t>> agree_on_hosts(std::int32_t first, Stop& stop) override;
  void watch_local_peers(io::Processes& processes, const wire::Roster& roster,
                         const std::vector<std::int32_t>& firsts) override;
  void observe(BootstrapObserver& observer) noexcept override;
  Task<void> leave(Instant end, Stop& stop) override;
  std::vector<std::string> remarks() const override { return remarks_; }

 private:
  enum class Attempt : std::uint8_t { kRoster, kRefused, kFailed };

  Task<wire::Roster> dial_until_answered(Stop& stop);
  Task<Attempt> attempt(io::Address address, wire::Secret secret, wire::Roster* roster, Stop& stop);
  Task<void> dial_and_arrive(RendezvousDial& dial, io::Address address, Stop& stop);
  Task<wire::Frame> receive_or_throw(Stop& stop);
  static std::string host_address(const io::Address& reached, const wire::Roster& roster);
  void prefer_address(const io::Address& reached, wire::Roster& roster) const;
  void give_up_if_refused(bool refused);
  Task<std::optional<wire::Frame>> receive(Stop& stop);
  Task<void> reconnect(std::string broken, std::string_view when, LivenessProbe::Unreachable unreachable, Stop& stop);
  Task<void> send_leave(Stop& stop);
  std::string arrivals() const;
  Task<void> listen();
  void local_peer_ended(int rank, const std::string& sentence) override;
  Task<void> report();
  void root_ended(Root& root, std::exception_ptr error) noexcept override;

  Loop& loop_;
  io::Net& net_;
  RendezvousEndpoint& endpoint_;
  io::Entropy& entropy_;
  wire::Arrive me_;
  Duration limit_;
  Instant end_;  // deadline of the rendezvous
  Duration handshake_limit_ = wire::kHandshakeLimit;
  std::optional<Instant> refused_since_;
  std::string host_name_;  // of rank 0
  std::vector<std::string> remarks_;
  std::string reason_;        // why the last attempt failed
  std::string last_waiting_;  // rank 0's last message while it waited for other ranks
  unsigned attempts_ = 0;
  std::optional<Reconnect> reconnect_;  // once this rank has the roster
  std::uint32_t received_ = 0;          // number of rank 0's messages to all that were received
  bool leaves_alone_ = false;           // can_leave_alone()
  bool leaving_ = false;
  bool rank_0_gone_ = false;                      // rank 0 has left in order, or is lost
  Event ended_;                                   // set when the listener has ended
  std::shared_ptr<wire::SecureChannel> channel_;  // shared with a coroutine that sends on it
  Losses losses_;
  std::vector<wire::RankLost> ended_local_peers_;  // to be reported to rank 0
  std::size_t reported_ = 0;                       // how many of them were reported on this connection
  Event to_report_;
  Stop stop_;
  LocalPeerWatch local_peers_;
  std::optional<Root> reporter_;
  std::optional<Root> listener_;  // last: its frames refer to the members above
};

}  // namespace aiacc
