// For tests: an operator that is associative, not commutative, and exact: the composition of the maps x -> a x + b
// modulo a prime, lower ranks applied first.
#pragma once

#include <cstdint>
#include <vector>

namespace aiacc::affine {

struct Map {
  std::uint32_t a = 1;
  std::uint32_t b = 0;
  std::uint32_t padding = 7;  // a record of 12 bytes, which no power of two is a multiple of
  bool operator==(const Map&) const = default;
};
inline constexpr std::uint64_t kPrime = 65521;

inline Map compose(const Map& first, const Map& then) {
  return {static_cast<std::uint32_t>(std::uint64_t{first.a} * then.a % kPrime),
          static_cast<std::uint32_t>((std::uint64_t{first.b} * then.a + then.b) % kPrime), 7};
}

inline void combine(void* inout, const void* in, std::size_t records, void*) {
  auto* maps = static_cast<Map*>(inout);
  const auto* others = static_cast<const Map*>(in);
  for (std::size_t i = 0; i < records; ++i) maps[i] = compose(maps[i], others[i]);
}

inline std::vector<Map> input(int rank, std::size_t count) {
  std::vector<Map> maps(count);
  for (std::size_t i = 0; i < count; ++i) {
    maps[i].a = static_cast<std::uint32_t>(2 + (i * 7 + static_cast<std::size_t>(rank) * 3) % 1000);
    maps[i].b = static_cast<std::uint32_t>(1 + (i * 5 + static_cast<std::size_t>(rank) * 11) % 1000);
  }
  return maps;
}

inline std::vector<Map> composed(int ranks, std::size_t count) {
  std::vector<Map> all = input(0, count);
  for (int rank = 1; rank < ranks; ++rank) {
    const std::vector<Map> next = input(rank, count);
    for (std::size_t i = 0; i < count; ++i) all[i] = compose(all[i], next[i]);
  }
  return all;
}

}  // namespace aiacc::affine
