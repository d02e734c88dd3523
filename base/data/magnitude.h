// The greatest magnitude among elements, and whether all of them are finite, in one pass.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/data/dtype.h"

namespace aiacc {

// As the bits of an fp32 number without its sign: they order as the numbers do, infinity and NaN above all others.
inline constexpr std::uint32_t kInfinityBits = 0x7f800000;
std::uint32_t greatest_magnitude(const float* elements, std::size_t count) noexcept;

// As the bits of an fp16 number without its sign.
inline constexpr std::uint32_t kHalfInfinityBits = 0x7c00;
std::uint32_t greatest_half(const std::byte* elements, std::size_t count) noexcept;

// True for types that have no infinity.
bool all_finite(DType type, const std::byte* elements, std::size_t count) noexcept;

}  // namespace aiacc
