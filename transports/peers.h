// Peers: what a rank knows of the ranks of other hosts that it has sent messages to or had some from: the credit of eager messages
// (transports/mailbox.h), and which of them leave the job (transports/control/leaving.h).
#pragma once

#include <cstdint>
#include <exception>
#include <map>

#include "base/task/loop.h"

namespace aiacc {

struct Peer {
  static constexpr std::uint64_t kCreditBytes = 256 << 10;
  // Of a peer with which this rank swaps long messages (Mailbox::kLongSwapBytes). An allreduce of 1 MiB between two hosts sends
  // four of 256 KiB, of which the last two may leave before the peer's answers to the first have brought credit back.
  static constexpr std::uint64_t kSwapCreditBytes = 1 << 20;
  // The first so many peers have it for as long as the job lasts: of 65,536 ranks, all with which halving and doubling swaps.
  static constexpr int kMostSwapPeers = 16;

  // Eager messages.
  std::uint64_t eager_sent = 0;           // total bytes
  std::uint64_t may_send = kCreditBytes;  // limit of it, from the peer's last header
  std::uint64_t credit = kCreditBytes;    // the most that this rank stores of the peer's messages
  std::uint64_t stored = 0;               // bytes of unexpected messages at present
  std::uint64_t freed = 0;                // total bytes of eager payloads whose memory was freed
  bool holds = false;                     // the port holds messages because `stored` is at its limit
  // Leaving.
  bool awaited = false;               // this rank does not leave before it: see transports/control/leaving.h
  bool leaving_sent = false;          // this rank has sent Leaving
  bool leaving_acknowledged = false;  // the peer has acknowledged it
  bool leaves = false;                // the peer has sent Leaving
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
  int swap_peers = 0;         // that have kSwapCreditBytes
  bool leaving = false;       // this rank leaves: a peer that disappears has left earlier
  Event changed;              // set when a peer is lost or leaves, and when a group ends
};

}  // namespace aiacc
