// LastCalls: how far this rank came in a group in which it makes no more calls: for members that wait for one.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "transports/past_calls.h"

namespace aiacc {

// How many messages of one tag this rank has sent to a rank of the world, or received from it.
struct PairCount {
  int rank;
  std::uint32_t tag;
  bool sent;
  std::uint64_t count;
};

struct LastCalls {
  static constexpr std::size_t kMostPairs = 1024;

  std::uint64_t collectives = ~std::uint64_t{0};  // the number of the last one
  std::array<std::uint64_t, PastCalls::kMost>
      fingerprints{};  // of the last ones, by sequence % kMost; 0 if it is not known
  std::vector<PairCount> pairs;
  bool pairs_are_known = false;  // there were not too many to keep

  bool was_another(std::uint64_t sequence, std::uint64_t fingerprint) const noexcept {
    const std::uint64_t mine = fingerprints[sequence % PastCalls::kMost];
    return sequence <= collectives && collectives - sequence < PastCalls::kMost && mine != 0 && mine != fingerprint;
  }
  // Returns how many there were.
  std::size_t forget_pairs() noexcept {
    pairs_are_known = false;
    return std::exchange(pairs, {}).size();
  }
  // Whether it made, or may have made, its half of message `number` of the pair: `sent` tells which half that is.
  bool made(int rank, std::uint32_t tag, bool sent, std::uint64_t number) const noexcept {
    if (!pairs_are_known) return true;
    return std::any_of(pairs.begin(), pairs.end(), [&](const PairCount& pair) {
      return pair.rank == rank && pair.tag == tag && pair.sent == sent && pair.count >= number;
    });
  }
};

}  // namespace aiacc
