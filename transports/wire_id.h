// WireId: identifies an operation within its group, in messages and in questions about it.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "base/hash.h"
#include "transports/message.h"
#include "transports/past_calls.h"

namespace aiacc {

// A collective is identified by its sequence number. A point-to-point message is identified by its number among the
// messages of its pair and tag (kPairSequence), by the tag, and by the other rank of the pair: thousands of messages
// with the same number may be outstanding.
struct WireId {
  WireId(std::uint64_t its_sequence, Tag its_tag = {}, int its_peer = kNoPeer) noexcept
      : sequence(its_sequence), tag(its_tag), peer(its_peer) {}

  bool is_pair() const noexcept { return (sequence & kPairSequence) != 0; }
  bool operator==(const WireId&) const = default;
  std::uint64_t hash() const noexcept { return hash_of(sequence, tag, peer); }
  static std::uint64_t hash_of(std::uint64_t sequence, Tag tag, int peer) noexcept {
    return Hash64::mix(Hash64::mix(sequence ^ std::uint64_t{tag.step} << 31 ^ std::uint64_t{tag.algorithm} << 15) +
                       static_cast<std::uint64_t>(peer));
  }

  std::uint64_t sequence;
  Tag tag;   // point to point
  int peer;  // rank in the group
};

}  // namespace aiacc
