// PastCalls: the last calls of a group, which messages of slower members may still refer to. They are looked up for
// each message.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transports/call_note.h"

namespace aiacc {

// Sequences with this bit belong to pairs of ranks, not to the whole group: two calls with the same number may be
// different.
inline constexpr std::uint64_t kPairSequence = std::uint64_t{1} << 63;

class PastCalls {
 public:
  // A rank that only sends may be this many calls ahead of the member that detects a mismatch.
  static constexpr std::size_t kMost = 32;

  void add(std::uint64_t sequence, std::uint64_t fingerprint, const CallNote& note) noexcept {
    (is_pair(sequence) ? pairs_[next_pair_++ % kMost] : collectives_[sequence % kMost]) = {sequence, fingerprint, note};
  }
  // Of the collectives up to `last`, by sequence % kMost; 0 of one that is not among these.
  std::array<std::uint64_t, kMost> fingerprints(std::uint64_t last) const noexcept {
    std::array<std::uint64_t, kMost> all{};
    for (std::size_t i = 0; i < kMost; ++i) {
      if (last - collectives_[i].sequence < kMost) all[i] = collectives_[i].fingerprint;
    }
    return all;
  }
  bool contains(std::uint64_t sequence) const noexcept {
    return find(sequence, [](std::uint64_t) { return true; }) != nullptr;
  }
  // like(): a call with that sequence and this fingerprint. unlike(): one with that sequence and another fingerprint.
  // Null if there is none.
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
