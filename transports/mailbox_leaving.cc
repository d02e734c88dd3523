// How a rank leaves. It has met all others before (runtime/real_context.cc), but they may still wait for its last messages
// and acknowledgements, and a connection that ends looks like a death.
//
// So it says kLeaving, after all else that it had to say, to everybody it has exchanged messages with, and goes when all of
// those have said it too. Whoever says it has got all it needs; from then on it takes a peer that is gone as one that was
// quicker. The last messages of all may be lost without harm.
#include <optional>

#include "transports/exchange.h"
#include "transports/mailbox.h"

namespace aiacc {
namespace {

constexpr Duration kAfterAbort = std::chrono::seconds(1);
constexpr Duration kFarewell = std::chrono::seconds(1);

}  // namespace

void Mailbox::tell_leaving(int rank) noexcept {
  Peer& peer = peers_[rank];
  if (peer.told || peer.lost) return;
  peer.told = true;
  AbortNotice leaving;
  leaving.stage = AbortNotice::Stage::kLeaving;
  leaving.rank = rank_;
  post_notice(group(world_->id()), rank, 0, leaving);
}

void Mailbox::peer_leaves(int rank) noexcept {
  peers_[rank].left = true;
  news_.set();
  if (leaving_) {
    tell_leaving(rank);
    return;
  }
  AbortNotice heard;
  heard.stage = AbortNotice::Stage::kHeard;
  heard.rank = rank_;
  post_notice(group(world_->id()), rank, 0, heard);
}

bool Mailbox::needed_by(int rank) noexcept {
  bool waited = false;
  for (auto& [id, group] : groups_) {
    for (Bucket& bucket : group.buckets) {
      bucket.parts.for_each([&](Part& part) { waited = waited || part.peer() == rank; });
    }
  }
  return waited;
}

bool Mailbox::anybody_stays() noexcept {
  const bool aborted = error_of(world_->id()) != nullptr;
  for (const auto& [rank, peer] : peers_) {
    if (!peer.lost && !peer.left && !(aborted && peer.heard)) return true;
  }
  return false;
}

Task<void> Mailbox::leave(Stop& stop) {
  co_await say_leaving(stop);
  co_await port_.leave(kFarewell, stop);
}

Task<void> Mailbox::say_leaving(Stop& stop) {
  leaving_ = true;
  std::vector<int> known;
  for (const auto& [rank, peer] : peers_) known.push_back(rank);
  for (const int rank : known) tell_leaving(rank);
  Stop limit(stop);
  std::optional<Deadline> deadline;
  while (anybody_stays()) {
    if (!deadline && error_of(world_->id()) != nullptr) {
      deadline.emplace(loop_, after(loop_.now(), kAfterAbort), limit, "members of an aborted world do not answer");
    }
    news_.reset();
    try {
      co_await news_.wait(limit);
    } catch (const Error&) {
      if (stop.requested()) throw;
      co_return;
    }
  }
}

}  // namespace aiacc
