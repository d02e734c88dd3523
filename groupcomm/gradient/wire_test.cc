#include "groupcomm/gradient/wire.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/data/magnitude.h"

namespace aiacc::gradient {
namespace {

std::uint32_t bits(float value) { return std::bit_cast<std::uint32_t>(value); }

TEST(GradientMagnitude, FindsTheGreatestWhereverItIs) {
  for (const std::size_t count : {1U, 7U, 16U, 17U, 100U}) {
    for (std::size_t at = 0; at < count; ++at) {
      std::vector<float> elements(count, -1.5F);
      EXPECT_EQ(greatest_magnitude(elements.data(), count), bits(1.5F));
      elements[at] = -3.0F;
      EXPECT_EQ(greatest_magnitude(elements.data(), count), bits(3.0F));
      EXPECT_TRUE(all_finite(DType::kFloat32, reinterpret_cast<const std::byte*>(elements.data()), count));
      for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
        elements[at] = bad;
        EXPECT_GE(greatest_magnitude(elements.data(), count), kInfinityBits);
        EXPECT_FALSE(all_finite(DType::kFloat32, reinterpret_cast<const std::byte*>(elements.data()), count));
      }
      std::vector<double> wide(count, 1e300);
      EXPECT_TRUE(all_finite(DType::kFloat64, reinterpret_cast<const std::byte*>(wide.data()), count));
      wide[at] = std::numeric_limits<double>::infinity();
      EXPECT_FALSE(all_finite(DType::kFloat64, reinterpret_cast<const std::byte*>(wide.data()), count));
      std::vector<std::uint16_t> half(count, 0xfbff);  // -65504
      EXPECT_TRUE(all_finite(DType::kFloat16, reinterpret_cast<const std::byte*>(half.data()), count));
      half[at] = 0xfc00;
      EXPECT_FALSE(all_finite(DType::kFloat16, reinterpret_cast<const std::byte*>(half.data()), count));
    }
  }
  EXPECT_EQ(greatest_magnitude(nullptr, 0), 0U);
  const std::int32_t whole = -1;
  EXPECT_TRUE(all_finite(DType::kInt32, reinterpret_cast<const std::byte*>(&whole), 1));
}

TEST(GradientWire, ScalesByTheLastResult) {
  WireScales scales;
  EXPECT_FALSE(scales.exponent(3));
  scales.learn(3, bits(1e-6F), 1.0);
  ASSERT_TRUE(scales.exponent(3));
  const double scaled = std::ldexp(1e-6, *scales.exponent(3));
  EXPECT_GE(scaled, 1 << WireScales::kTarget);
  EXPECT_LT(scaled, 2 << WireScales::kTarget);
  EXPECT_TRUE(scales.fits(3, 0x0c00)) << "2^-12";
  EXPECT_TRUE(scales.exponent(3));
  for (const std::uint32_t outside : {0x0U, 0x0bffU, kHalfInfinityBits, 0x7e00U}) {
    scales.learn(3, bits(1e-6F), 1.0);
    EXPECT_FALSE(scales.fits(3, outside)) << outside;
    EXPECT_FALSE(scales.exponent(3)) << "travels as it is";
  }
  scales.learn(3, bits(0.0F), 1.0);
  EXPECT_FALSE(scales.exponent(3)) << "of zeros nothing is learned";
  scales.learn(3, bits(1e-6F), 0.5);
  EXPECT_LT(std::ldexp(2e-6, *scales.exponent(3)), 1 << WireScales::kTarget) << "with more room than before";
  scales.learn(3, kInfinityBits, 1.0);
  EXPECT_FALSE(scales.exponent(3));
}

TEST(GradientWire, EncodesAndDecodesWithOneRounding) {
  const WireCodec codec;
  for (const DType wire : {DType::kFloat16, DType::kBFloat16}) {
    const double most = wire == DType::kFloat16 ? 0x1p-11 : 0x1p-8;
    std::vector<float> from(10001), to(from.size());
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(std::sin(static_cast<double>(i)) * 1e-7);
    std::vector<std::uint16_t> half(from.size());
    codec.encode(wire, reinterpret_cast<std::byte*>(half.data()), reinterpret_cast<const std::byte*>(from.data()),
                 from.size(), 0x1p30);
    const std::uint32_t greatest = codec.decode(wire, reinterpret_cast<std::byte*>(to.data()),
                                                reinterpret_cast<const std::byte*>(half.data()), from.size(), 0x1p-30);
    EXPECT_EQ(greatest, greatest_magnitude(to.data(), to.size()));
    for (std::size_t i = 1; i < from.size(); ++i)
      ASSERT_LE(std::abs(to[i] - from[i]), most * std::abs(from[i]) + 1e-18) << i;
  }
}

}  // namespace
}  // namespace aiacc::gradient
