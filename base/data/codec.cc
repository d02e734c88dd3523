#include "base/data/codec.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/data/cpu_compute.h"
#include "base/data/magnitude.h"
#include "base/error.h"

namespace aiacc {
namespace {

constexpr int kTarget = 14;         // below the 2^16 of fp16, to which an element may be rounded up
constexpr int kMostExponent = 120;  // 2^±120 is a normal number of fp32
constexpr std::size_t kHalf = 2, kFloat = sizeof(float);

Buffer buffer_of(const std::byte* data, std::size_t bytes) noexcept {
  Buffer buffer;
  buffer.data = const_cast<std::byte*>(data);  // of an operand: only read
  buffer.bytes = bytes;
  return buffer;
}

std::size_t blocks_of(std::size_t count) noexcept { return (count + kCodedBlock - 1) / kCodedBlock; }

std::uint32_t greatest_finite(const std::byte* elements, std::size_t count) noexcept {
  std::uint32_t greatest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t bits;
    std::memcpy(&bits, elements + i * kFloat, sizeof bits);
    bits &= 0x7fffffff;
    if (bits < kInfinityBits) greatest = std::max(greatest, bits);
  }
  return greatest;
}

int exponent_of(const std::byte* elements, std::size_t count) noexcept {
  std::uint32_t greatest = greatest_magnitude(reinterpret_cast<const float*>(elements), count);
  if (greatest >= kInfinityBits) greatest = greatest_finite(elements, count);
  if (greatest == 0) return 0;
  return std::clamp(std::ilogb(std::bit_cast<float>(greatest)) - kTarget, -kMostExponent, kMostExponent);
}

bool has_exponents(Codec codec) noexcept { return codec == Codec::kFloat16; }

// Between fp32 and what travels.
Reduction conversion(Codec codec, ElementTypes operands, ElementTypes results) noexcept {
  Reduction how;
  how.type = codec == Codec::kBFloat16 ? DType::kBFloat16 : DType::kFloat16;
  how.operands = operands;
  how.results = results;
  return how;
}

void check(Codec codec, std::size_t bytes, std::size_t count) {
  AIACC_INVARIANT(codec != Codec::kNone, "only elements with a codec are encoded");
  AIACC_INVARIANT(bytes == encoded_bytes(codec, count), "a message has the bytes of its elements");
}

}  // namespace

std::size_t encoded_bytes(Codec codec, std::size_t count) noexcept {
  if (codec == Codec::kNone) return count * kFloat;
  return count * kHalf + (has_exponents(codec) ? blocks_of(count) : 0);
}

void encode(const CpuCompute& compute, Codec codec, std::span<std::byte> to, const std::byte* from, std::size_t count) {
  check(codec, to.size(), count);
  std::byte* exponents = to.data() + count * kHalf;
  Reduction how = conversion(codec, DType::kFloat32, {});
  for (std::size_t at = 0; at < count; at += kCodedBlock) {
    const std::size_t now = std::min(kCodedBlock, count - at);
    if (has_exponents(codec)) {
      const int exponent = exponent_of(from + at * kFloat, now);
      how.prescale = std::ldexp(1.0, -exponent);
      *exponents++ = static_cast<std::byte>(static_cast<std::int8_t>(exponent));
    }
    const Buffer result = buffer_of(to.data() + at * kHalf, now * kHalf);
    const Buffer operand = buffer_of(from + at * kFloat, now * kFloat);
    compute.reduce_now({&result, 1}, {&operand, 1}, now, how, {});
  }
}

void decode(const CpuCompute& compute, Codec codec, std::byte* to, std::span<const std::byte> from, std::size_t count,
            bool adds) {
  check(codec, from.size(), count);
  const std::byte* exponents = from.data() + count * kHalf;
  alignas(64) std::array<std::byte, kCodedBlock * kFloat> wide;  // stays in the cache
  Reduction how = conversion(codec, {}, DType::kFloat32);
  for (std::size_t at = 0; at < count; at += kCodedBlock) {
    const std::size_t now = std::min(kCodedBlock, count - at);
    if (has_exponents(codec)) how.prescale = std::ldexp(1.0, static_cast<std::int8_t>(*exponents++));
    const Buffer place = buffer_of(to + at * kFloat, now * kFloat);
    const Buffer result = adds ? buffer_of(wide.data(), now * kFloat) : place;
    const Buffer operand = buffer_of(from.data() + at * kHalf, now * kHalf);
    compute.reduce_now({&result, 1}, {&operand, 1}, now, how, {});
    if (!adds) continue;
    const Buffer both[] = {place, result};
    compute.reduce_now({&place, 1}, both, now, Reduction{}, {});
  }
}

}  // namespace aiacc
