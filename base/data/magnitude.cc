#include "base/data/magnitude.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace aiacc {
namespace {

// The greatest of the elements' bits, as signed numbers, without their signs. The compiler's vectors hold for each instruction
// set: a loop over an array is not turned into them at this level of optimization.
template <class Int>
Int greatest_bits(const std::byte* elements, std::size_t count) noexcept {
  constexpr std::size_t kBytes = 32, kEach = kBytes / sizeof(Int);
  typedef Int Vector __attribute__((vector_size(kBytes)));  // NOLINT(modernize-use-using)
  constexpr Int kMagnitude = static_cast<Int>(~(std::make_unsigned_t<Int>{1} << (sizeof(Int) * 8 - 1)));
  Vector most{}, other{};
  std::size_t at = 0;
  for (; at + 2 * kEach <= count; at += 2 * kEach) {
    Vector one, two;
    std::memcpy(&one, elements + at * sizeof(Int), kBytes);
    std::memcpy(&two, elements + at * sizeof(Int) + kBytes, kBytes);
    one &= kMagnitude;
    two &= kMagnitude;
    most = one > most ? one : most;
    other = two > other ? two : other;
  }
  Int greatest = 0;
  for (std::size_t lane = 0; lane < kEach; ++lane) greatest = std::max({greatest, most[lane], other[lane]});
  for (; at < count; ++at) {
    Int one;
    std::memcpy(&one, elements + at * sizeof(Int), sizeof one);
    greatest = std::max(greatest, static_cast<Int>(one & kMagnitude));
  }
  return greatest;
}

}  // namespace

std::uint32_t greatest_magnitude(const float* elements, std::size_t count) noexcept {
  return static_cast<std::uint32_t>(greatest_bits<std::int32_t>(reinterpret_cast<const std::byte*>(elements), count));
}

std::uint32_t greatest_half(const std::byte* elements, std::size_t count) noexcept {
  return static_cast<std::uint32_t>(greatest_bits<std::int16_t>(elements, count));
}

bool all_finite(DType type, const std::byte* elements, std::size_t count) noexcept {
  switch (type) {
    case DType::kFloat32: return greatest_bits<std::int32_t>(elements, count) < 0x7f800000;
    case DType::kFloat64: return greatest_bits<std::int64_t>(elements, count) < 0x7ff0000000000000;
    case DType::kFloat16: return greatest_bits<std::int16_t>(elements, count) < 0x7c00;
    case DType::kBFloat16: return greatest_bits<std::int16_t>(elements, count) < 0x7f80;
    default: return true;
  }
}

}  // namespace aiacc
