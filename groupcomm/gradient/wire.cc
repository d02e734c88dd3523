#include "groupcomm/gradient/wire.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/data/magnitude.h"

namespace aiacc::gradient {
namespace {

constexpr std::size_t kCachedElements = 4096;

}  // namespace

WireScales::Scale& WireScales::of(std::uint32_t index) {
  if (index >= scales_.size()) scales_.resize(index + 1);
  return scales_[index];
}

void WireScales::learn(std::uint32_t index, std::uint32_t greatest, double postscale) {
  Scale& scale = of(index);
  const double magnitude = static_cast<double>(std::bit_cast<float>(greatest)) / std::abs(postscale);
  scale.exponent = std::nullopt;
  if (greatest >= kInfinityBits || !std::isfinite(magnitude) || magnitude == 0) return;
  scale.exponent = std::clamp(scale.target - std::ilogb(magnitude), -120, 120);
}

bool WireScales::fits(std::uint32_t index, std::uint32_t greatest_half) {
  constexpr int kLeastNormal = -14, kLeastExponent = -24, kBias = 15, kDigits = 10;
  Scale& scale = of(index);
  const int least = scale.target - kMostShrinking;
  const std::uint32_t least_bits = least >= kLeastNormal ? static_cast<std::uint32_t>(least + kBias) << kDigits
                                                         : 1U << std::max(least - kLeastExponent, 0);
  const bool overflows = greatest_half >= kHalfInfinityBits;
  if (!overflows && greatest_half >= least_bits) return true;
  if (overflows) scale.target = std::max(scale.target - 7, kLeastTarget);
  scale.exponent = std::nullopt;
  return false;
}

void WireCodec::encode(DType wire, std::byte* to, const std::byte* from, std::size_t count, double factor) const {
  if (count == 0) return;
  Reduction how;
  how.type = wire;
  how.operands = DType::kFloat32;
  how.prescale = factor;
  const Buffer results[] = {Buffer{to, count * size_of(wire)}};
  const Buffer operands[] = {Buffer{const_cast<std::byte*>(from), count * sizeof(float)}};
  compute_.reduce_now(results, operands, count, how, {});
}

std::uint32_t WireCodec::decode(DType wire, std::byte* to, const std::byte* from, std::size_t count,
                                double factor) const {
  Reduction how;
  how.type = wire;
  how.results = DType::kFloat32;
  how.prescale = factor;
  std::uint32_t greatest = 0;
  for (std::size_t at = 0; at < count; at += kCachedElements) {
    const std::size_t now = std::min(kCachedElements, count - at);
    std::byte* const into = to + at * sizeof(float);
    const Buffer results[] = {Buffer{into, now * sizeof(float)}};
    const Buffer operands[] = {Buffer{const_cast<std::byte*>(from) + at * size_of(wire), now * size_of(wire)}};
    compute_.reduce_now(results, operands, now, how, {});
    greatest = std::max(greatest, greatest_magnitude(reinterpret_cast<const float*>(into), now));
  }
  return greatest;
}

}  // namespace aiacc::gradient
