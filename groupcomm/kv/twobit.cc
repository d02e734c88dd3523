#include "groupcomm/kv/twobit.h"

#include <cstring>

namespace aiacc::kv {
namespace {

constexpr unsigned kPositive = 3, kNegative = 2;
constexpr unsigned shift_of(std::size_t at) noexcept { return 6 - 2 * static_cast<unsigned>(at % 4); }

}  // namespace

void twobit_encode(float threshold, const float* gradient, float* residual, std::size_t count, std::byte* to) noexcept {
  std::memset(to, 0, twobit_bytes(count));
  for (std::size_t i = 0; i < count; ++i) {
    residual[i] += gradient[i];
    unsigned code = 0;
    if (residual[i] >= threshold) {
      code = kPositive;
      residual[i] -= threshold;
    } else if (residual[i] <= -threshold) {
      code = kNegative;
      residual[i] += threshold;
    }
    to[i / 4] |= static_cast<std::byte>(code << shift_of(i));
  }
}

void twobit_decode(float threshold, const std::byte* from, std::size_t count, float* to) noexcept {
  const float values[4] = {0, 0, -threshold, threshold};
  for (std::size_t i = 0; i < count; ++i) to[i] = values[static_cast<unsigned>(from[i / 4]) >> shift_of(i) & 3];
}

}  // namespace aiacc::kv
