// 2-bit gradients with the bit layout of MXNet: 16 elements a 32-bit word, four a byte, the first in the highest pair of bits. 11
// stands for +threshold, 10 for -threshold, 00 for 0. What is not sent stays in the sender's residual and is added to the next
// gradient (Seide et al., Interspeech 2014).
#pragma once

#include <cstddef>

namespace aiacc::kv {

constexpr std::size_t twobit_bytes(std::size_t count) noexcept { return (count + 15) / 16 * 4; }
// `to` has twobit_bytes(count) bytes.
void twobit_encode(float threshold, const float* gradient, float* residual, std::size_t count, std::byte* to) noexcept;
void twobit_decode(float threshold, const std::byte* from, std::size_t count, float* to) noexcept;

}  // namespace aiacc::kv
