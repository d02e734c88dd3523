// The encoding of fp32 elements in messages (Codec).
//
// kFloat16: the elements in fp16, and after them an exponent of one byte for each block of kCodedBlock elements. A block is multiplied
// by 2^-exponent, so that its greatest finite magnitude is between 2^14 and 2^15: no finite element overflows, and one that is 2^28
// times smaller still has all digits of fp16. The multiplication is exact, so an element is rounded once. Infinities and NaNs stay
// what they are, and the other elements of their block are as exact as without them. Each block brings its own exponent: the ends
// agree on nothing, and the receiver adds blocks of different exponents in fp32.
//
// kBFloat16: the elements in bf16, which has the range of fp32, and nothing after them.
#pragma once

#include <cstddef>
#include <span>

#include "base/data/reduction.h"

namespace aiacc {

class CpuCompute;

inline constexpr std::size_t kCodedBlock = 4096;

// Bytes of `count` encoded elements; they need no alignment.
std::size_t encoded_bytes(Codec codec, std::size_t count) noexcept;

void encode(const CpuCompute& compute, Codec codec, std::span<std::byte> to, const std::byte* from, std::size_t count);
// Writes the elements to `to`, or adds them to what is there.
void decode(const CpuCompute& compute, Codec codec, std::byte* to, std::span<const std::byte> from, std::size_t count,
            bool adds);

}  // namespace aiacc
