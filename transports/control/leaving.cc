#include "transports/control/leaving.h"

#include <algorithm>
#include <optional>
#include <vector>

namespace aiacc {
namespace {

constexpr Duration kAgain = std::chrono::seconds(5);

}  // namespace

Leaving::Leaving(Loop& loop, MessagePort& port, ControlChannel& channel, Mailbox& mailbox, Peers& peers,
                 std::uint64_t world)
    : loop_(loop), port_(port), channel_(channel), mailbox_(mailbox), peers_(peers), world_(world) {
  channel_.on<wire::Leaving>([this](int from, const auto&, const auto&) { peer_leaves(from); });
  channel_.on<wire::LeavingHeard>([this](int from, const auto&, const auto&) {
    peers_[from].leaving_acknowledged = true;
    peers_.changed.set();
  });
}

void Leaving::tell(int rank) noexcept {
  Peer& peer = peers_[rank];
  if (peer.leaving_sent || peer.lost) return;
  peer.leaving_sent = true;
  channel_.send(rank, {world_}, wire::Leaving{});
}

void Leaving::peer_leaves(int rank) noexcept {
  peers_[rank].leaves = true;
  peers_.changed.set();
  if (peers_.leaving) {
    tell(rank);
  } else {
    channel_.send(rank, {world_}, wire::LeavingHeard{});
  }
}

bool Leaving::anybody_stays() noexcept {
  const bool aborted = mailbox_.error_of(world_) != nullptr;
  return std::any_of(peers_.known.begin(), peers_.known.end(), [aborted](const auto& entry) {
    const Peer& peer = entry.second;
    if (peer.lost || peer.leaves) return false;
    return aborted ? !peer.leaving_acknowledged : peer.awaited;
  });
}

void Leaving::remind() noexcept {
  for (auto& [rank, peer] : peers_.known) {
    if (peer.awaited && !peer.lost && !peer.leaves) channel_.send(rank, {world_}, wire::Leaving{});
  }
  loop_.arm(reminder_, after(loop_.now(), kAgain));
}

Task<void> Leaving::leave(LeaveDeadline& deadline, Stop& stop) {
  try {
    co_await say_leaving(deadline, stop);
  } catch (...) {
    reminder_.disarm();
    throw;
  }
  reminder_.disarm();
  deadline.start();
  co_await port_.leave(std::max(deadline.of_connections() - loop_.now(), Duration(0)), stop);
}

Task<void> Leaving::say_leaving(LeaveDeadline& deadline, Stop& stop) {
  peers_.leaving = true;
  std::vector<int> known;
  for (const auto& [rank, peer] : peers_.known) known.push_back(rank);
  for (const int rank : known) tell(rank);
  loop_.arm(reminder_, after(loop_.now(), kAgain));
  Stop limit(stop);
  std::optional<Deadline> over;
  while (anybody_stays()) {
    if (!over && mailbox_.error_of(world_) != nullptr) {
      deadline.start();
      over.emplace(loop_, deadline.of_messages(), limit, "members of an aborted world do not answer");
    }
    peers_.changed.reset();
    try {
      co_await peers_.changed.wait(limit);
    } catch (const Error&) {
      if (stop.requested()) throw;
      co_return;
    }
  }
}

}  // namespace aiacc
