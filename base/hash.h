// A 64-bit hash for identities that processes must agree on (views, fingerprints, traces): the same on every machine and
// in every build. Not for secrets. Mixing is the finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
#pragma once

#include <cstdint>
#include <string_view>

namespace aiacc {

class Hash64 {
 public:
  constexpr Hash64& add(std::uint64_t word) noexcept {
    state_ = mix(state_ + 0x9e3779b97f4a7c15ULL + mix(word + 0x632be59bd9b4e019ULL));
    return *this;
  }
  constexpr Hash64& add(std::string_view text) noexcept {
    add(static_cast<std::uint64_t>(text.size()));
    for (char byte : text) add(static_cast<std::uint64_t>(static_cast<unsigned char>(byte)));
    return *this;
  }
  constexpr std::uint64_t value() const noexcept { return state_; }

  static constexpr std::uint64_t mix(std::uint64_t word) noexcept {
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9ULL;
    word = (word ^ (word >> 27)) * 0x94d049bb133111ebULL;
    return word ^ (word >> 31);
  }

 private:
  std::uint64_t state_ = 0;
};

}  // namespace aiacc
