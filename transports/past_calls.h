// The last calls of a group, of which others may still speak. Each message asks for one of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transports/call_note.h"

namespace aiacc {

// Sequences with this bit belong to pairs of ranks, not to the whole group: two of one number may be different calls.
inline constexpr std::uint64_t kPairSequence = std::uint64_t{1} << 63;

class PastCalls {
 public:
  // A rank that only gives may be so many calls ahead of whoever finds that one was another.
  static constexpr std::size_t kMost = 32;

  void add(std::uint64_t sequence, std::uint64_t fingerprint, const CallNote& note) noexcept {
    (is_pair(sequence) ? pairs_[next_pair_++ % kMost] : collectives_[sequence % kMost]) = {sequence, fingerprint, note};
  }
  bool contains(std::uint64_t sequence) const noexcept {
    return find(sequence, [](std::uint64_t) { return true; }) != nullptr;
  }
  // One of that sequence with this fingerprint, or with another; null if there is none.
  const CallNote* like(std::uint64_t sequence, std::uint64_t fingerprint) const noexcept {
    return find(sequence, [=](std::uint64_t other) { return other == fingerprint; });
  }
  const CallNote* unlike(std::uint64_t sequence, std::uint64_t fingerprint) const noexcept {
    return find(sequence, [=](std::uint64_t other) { return other != fingerprint; });
  }

 private:
  struct PastCall {
    std::uint64_t sequence = ~std::uint64_t{0};  // no group has so many calls
    std::uint64_t fingerprint = 0;
    CallNote note;
  };

  static bool is_pair(std::uint64_t sequence) noexcept { return (sequence & kPairSequence) != 0; }

  template <class Fits>
  const CallNote* find(std::uint64_t sequence, Fits fits) const noexcept {
    const std::span<const PastCall> where =
        is_pair(sequence) ? std::span(pairs_) : std::span(collectives_).subspan(sequence % kMost, 1);
    for (const PastCall& call : where) {
      if (call.sequence == sequence && fits(call.fingerprint)) return &call.note;
    }
    return nullptr;
  }

  std::array<PastCall, kMost> collectives_;  // by sequence
  std::array<PastCall, kMost> pairs_;        // in a ring
  std::size_t next_pair_ = 0;
};

}  // namespace aiacc
