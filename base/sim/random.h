// The simulator's only random generator: xoshiro256** (Blackman, Vigna, 2018), seeded through SplitMix64. The standard
// library's distributions differ between its versions, but a seed must always replay the same run.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "base/hash.h"

namespace aiacc::sim {

class Random {
 public:
  explicit constexpr Random(std::uint64_t seed) noexcept {
    for (std::uint64_t& word : state_) {
      seed += 0x9e3779b97f4a7c15ULL;
      word = Hash64::mix(seed);
    }
  }

  constexpr std::uint64_t next() noexcept {
    const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
    const std::uint64_t shifted = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= shifted;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }

  // Uniform below `bound` up to a bias of bound / 2^64 (Lemire's multiplication without the rejection step); 0 for 0.
  constexpr std::uint64_t below(std::uint64_t bound) noexcept {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>((static_cast<Wide>(next()) * bound) >> 64);
  }

 private:
  std::array<std::uint64_t, 4> state_{};
};

}  // namespace aiacc::sim
