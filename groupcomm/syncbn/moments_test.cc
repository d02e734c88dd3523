// Moments of a batch, against two passes in long double.
#include "groupcomm/syncbn/moments.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "groupcomm/syncbn/exact_moments_test.h"
#include "groupcomm/syncbn/kernels.h"

namespace aiacc::syncbn {
namespace {

TEST(SyncbnMoments, OfShapesAndLayouts) {
  for (const Layout layout : {Layout::kChannelsFirst, Layout::kChannelsLast}) {
    for (const std::size_t channels : {1, 3, 8, 31, 70}) {
      for (const std::size_t positions : {1, 7, 8, 49, 65}) {
        const Batch batch = batch_of(5, channels, positions, DType::kFloat32, layout);
        const auto x = normal<float>(batch.elements(), 3, 2, 1);
        Moments moments;
        moments_of(batch, x.data(), moments);
        expect_near(moments, exact(batch, x), 1e-12);
      }
    }
  }
}

TEST(SyncbnMoments, HoldWhereTheMeanIsTenThousandDeviations) {
  for (const Layout layout : {Layout::kChannelsFirst, Layout::kChannelsLast}) {
    const Batch batch = batch_of(64, 4, 100, DType::kFloat32, layout);
    const auto x = normal<float>(batch.elements(), 1e4, 1, 2);
    Moments moments;
    moments_of(batch, x.data(), moments);
    expect_near(moments, exact(batch, x), 1e-10);
    const Batch wide = batch_of(64, 4, 100, DType::kFloat64, layout);
    const auto of_wide = normal<double>(batch.elements(), 1e8, 1, 2);
    moments_of(wide, of_wide.data(), moments);
    expect_near(moments, exact(wide, of_wide), 1e-7);
  }
}

TEST(SyncbnMoments, HoldWhereTheShiftIsAnOutlier) {
  const Batch batch = batch_of(1, 1, 1'000'000, DType::kFloat32);
  for (const auto& [mean, outlier, relative] : {std::tuple(0.0, 1e6F, 1e-12), std::tuple(1e5, 101e3F, 1e-11)}) {
    auto x = normal<float>(batch.elements(), mean, 1, 3);
    x[0] = outlier;
    Moments moments;
    moments_of(batch, x.data(), moments);
    expect_near(moments, exact(batch, x), relative);
  }
}

// The mean of one channel is just less than 32 deviations, whose square is kFar, or just more.
TEST(SyncbnMoments, OneFarMeanAmongManyChannelsIsFoundOnEveryProcessor) {
  for (const std::size_t channels : {1, 7, 8, 13, 64}) {
    for (const std::size_t far : {std::size_t{0}, channels / 2, channels - 1}) {
      for (const double mean : {31.9, 32.1, std::numeric_limits<double>::infinity()}) {
        const Batch batch = batch_of(2, channels, 1'000, DType::kFloat64, Layout::kChannelsLast);
        std::vector<double> x(batch.elements());
        for (std::size_t i = 0; i < x.size(); ++i)
          x[i] = (i % channels == far ? mean : 0) + (i / channels % 2 == 0 ? 1 : -1);
        Moments sums;
        sum_up(batch, x.data(), sums);
        EXPECT_EQ(has_far(sums), mean > 32) << far << " of " << channels;
        for (const kernels::Table* table : kernels::tables()) {
          EXPECT_EQ(table->any_far(sums.count, sums.sum.data(), sums.square.data(), channels), mean > 32)
              << table->name << ", " << far << " of " << channels;
        }
      }
    }
  }
}

TEST(SyncbnMoments, OfOneElementAChannelTakeNoOtherPassIfItsSquareIsFinite) {
  for (const std::size_t channels : {1, 7, 8, 19}) {
    const Batch batch = batch_of(1, channels, 1, DType::kFloat64);
    auto x = normal<double>(channels, 0.1, 3, 7);
    x[channels / 2] = 0;
    Moments sums;
    sum_up(batch, x.data(), sums);
    EXPECT_FALSE(has_far(sums)) << channels;
    for (const DType statistics : {DType::kFloat32, DType::kFloat64}) {
      const Records records(channels, statistics);
      std::vector<std::byte> of_sums(records.bytes()), of_moments(records.bytes());
      records.write_sums(sums, of_sums.data());
      Moments moments;
      moments_of(batch, x.data(), moments);
      EXPECT_EQ(moments.mean, x);
      EXPECT_EQ(moments.square, std::vector<double>(channels));
      records.write(moments, of_moments.data());
      EXPECT_EQ(of_sums, of_moments) << channels;
    }
    using Limits = std::numeric_limits<double>;
    for (const double bad : {1e200, Limits::infinity(), Limits::quiet_NaN()}) {
      x.back() = bad;
      sum_up(batch, x.data(), sums);
      EXPECT_TRUE(has_far(sums)) << bad;
    }
  }
}

// Means on both sides of that bound, of some of the channels that are passed together.
TEST(SyncbnMoments, HoldAtTheBoundOfAnotherPass) {
  for (const Layout layout : {Layout::kChannelsFirst, Layout::kChannelsLast}) {
    for (const std::size_t channels : {1, 5, 8, 19, 64}) {
      for (const double mean : {31.0, 31.9, 32.1, 33.0, -31.9, -32.1, 1e4}) {
        const Batch batch = batch_of(6, channels, 50, DType::kFloat32, layout);
        auto x = normal<float>(batch.elements(), 0, 1, 6);
        for (std::size_t sample = 0; sample < batch.samples; ++sample) {
          for (std::size_t channel = 0; channel < channels; channel += 3) {
            for (std::size_t position = 0; position < batch.positions; ++position)
              x[place(batch, sample, channel, position)] += static_cast<float>(mean);
          }
        }
        SCOPED_TRACE(std::to_string(channels) + " channels, " + std::to_string(mean));
        Moments moments;
        moments_of(batch, x.data(), moments);
        expect_near(moments, exact(batch, x), 1e-11);
      }
    }
  }
}

// fp16 numbers around 1024 are whole; bf16 ones around 256 are even.
TEST(SyncbnMoments, OfSixteenBitsHoldWhereTheMeanIsManyDeviations) {
  for (const Layout layout : {Layout::kChannelsFirst, Layout::kChannelsLast}) {
    for (const DType type : {DType::kFloat16, DType::kBFloat16}) {
      const Batch batch = batch_of(6, 13, 50, type, layout);
      const bool fp16 = type == DType::kFloat16;
      const std::uint16_t first = fp16 ? 0x6400 : 0x4380;
      std::vector<std::uint16_t> x(batch.elements());
      std::vector<float> wide(x.size());
      for (std::size_t i = 0; i < x.size(); ++i) {
        const auto more = static_cast<std::uint16_t>(i * 7919 % 5);
        x[i] = static_cast<std::uint16_t>(first + more);
        wide[i] = fp16 ? 1024.0F + static_cast<float>(more) : 256.0F + 2 * static_cast<float>(more);
      }
      Moments moments;
      moments_of(batch, x.data(), moments);
      expect_near(moments, exact(batch, wide), 1e-11);
    }
  }
}

// Squares of these numbers are not finite, and those of their deviations are.
TEST(SyncbnMoments, HoldWhereSquaresOverflow) {
  for (const Layout layout : {Layout::kChannelsFirst, Layout::kChannelsLast}) {
    for (const double mean : {0x1p511, 0x1p520}) {
      const Batch batch = batch_of(4, 11, 20, DType::kFloat64, layout);
      std::vector<double> x(batch.elements());
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = mean * (1 + static_cast<double>(i * 31 % 17) * 0x1p-20);
      Moments moments;
      moments_of(batch, x.data(), moments);
      expect_near(moments, exact(batch, x), 1e-9);
    }
  }
}

TEST(SyncbnMoments, OfConstantChannelsAreExact) {
  const Batch batch = batch_of(7, 3, 11, DType::kFloat32);
  const std::vector<float> x(batch.elements(), 0.1F);
  Moments moments;
  moments_of(batch, x.data(), moments);
  for (std::size_t channel = 0; channel < 3; ++channel) {
    EXPECT_EQ(moments.mean[channel], static_cast<double>(0.1F));
    EXPECT_EQ(moments.square[channel], 0);
  }
}

TEST(SyncbnMoments, OfWhatIsNotFiniteAreNotNumbers) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const Batch batch = batch_of(2, 2, 9, DType::kFloat32);
    auto x = normal<float>(batch.elements(), 0, 1, 4);
    x[4] = bad;
    Moments moments;
    moments_of(batch, x.data(), moments);
    EXPECT_FALSE(std::isfinite(moments.mean[0]));
    EXPECT_TRUE(std::isnan(moments.square[0]));
    EXPECT_TRUE(std::isfinite(moments.mean[1]) && std::isfinite(moments.square[1]));
  }
}

}  // namespace
}  // namespace aiacc::syncbn
