// Peers: what a rank knows of the ranks of other hosts that it has exchanged messages with. Matching keeps the credit of
// eager messages here, and leaving who else leaves.
#pragma once

#include <cstdint>
#include <exception>
#include <map>

#include "base/task/loop.h"

namespace aiacc {

struct Peer {
  static constexpr std::uint64_t kCreditBytes = 256 << 10;

  // Eager messages (transports/mailbox.h).
  std::uint64_t eager_sent = 0;           // bytes, ever
  std::uint64_t may_send = kCreditBytes;  // bytes, ever: the limit that the peer sent last
  std::uint64_t stored = 0;               // bytes of unexpected messages, now
  std::uint64_t freed = 0;                // bytes, ever: eager payloads whose memory was freed
  bool holds = false;                     // the port holds messages because `stored` is at its limit
  // Leaving (transports/control/leaving.h).
  bool told = false;   // this rank has sent Leaving
  bool heard = false;  // the peer has acknowledged it
  bool left = false;   // the peer leaves too
  std::exception_ptr lost;
};

class Peers {
 public:
  explicit Peers(Loop& loop) noexcept : changed(loop) {}

  Peer& operator[](int rank) { return known[rank]; }
  bool lost(int rank) const noexcept {
    const auto peer = known.find(rank);
    return peer != known.end() && peer->second.lost != nullptr;
  }

  std::map<int, Peer> known;  // by rank in the world
  bool leaving = false;       // this rank leaves: a peer that disappears has left earlier
  Event changed;              // set when a peer is lost or leaves, and when a group ends
};

}  // namespace aiacc
