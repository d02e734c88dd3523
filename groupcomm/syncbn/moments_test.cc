// Moments of a batch and their merging, against two passes in long double.
#include "groupcomm/syncbn/moments.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <tuple>
#include <utility>

#include "groupcomm/syncbn/kernels.h"

namespace aiacc::syncbn {
namespace {

struct Exact {
  std::vector<long double> mean, square;
};

Batch batch_of(std::size_t samples, std::size_t channels, std::size_t positions, DType type,
               Layout layout = Layout::kChannelsFirst) {
  Batch batch;
  batch.samples = samples;
  batch.channels = channels;
  batch.positions = positions;
  batch.type = type;
  batch.layout = layout;
  return batch;
}

std::size_t place(const Batch& batch, std::size_t sample, std::size_t channel, std::size_t position) {
  if (batch.layout == Layout::kChannelsLast) return (sample * batch.positions + position) * batch.channels + channel;
  return (sample * batch.channels + channel) * batch.positions + position;
}

template <class T>
Exact exact(const Batch& batch, const std::vector<T>& x) {
  Exact found;
  for (std::size_t channel = 0; channel < batch.channels; ++channel) {
    long double sum = 0, square = 0;
    const auto each = [&](auto&& use) {
      for (std::size_t s = 0; s < batch.samples; ++s) {
        for (std::size_t p = 0; p < batch.positions; ++p) use(static_cast<long double>(x[place(batch, s, channel, p)]));
      }
    };
    each([&](long double value) { sum += value; });
    const long double mean = sum / static_cast<long double>(batch.count());
    each([&](long double value) { square += (value - mean) * (value - mean); });
    found.mean.push_back(mean);
    found.square.push_back(square);
  }
  return found;
}

template <class T>
std::vector<T> normal(std::size_t elements, double mean, double deviation, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> draw(mean, deviation);
  std::vector<T> x(elements);
  for (T& value : x) value = static_cast<T>(draw(random));
  return x;
}

void expect_near(const Moments& have, const Exact& want, double relative) {
  for (std::size_t channel = 0; channel < want.mean.size(); ++channel) {
    const auto square = static_cast<double>(want.square[channel]);
    const double deviation = std::sqrt(square / static_cast<double>(have.count));
    EXPECT_NEAR(have.mean[channel], static_cast<double>(want.mean[channel]), relative * deviation) << channel;
    EXPECT_NEAR(have.square[channel], square, relative * square) << channel;
  }
}

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

// All finite numbers of fp16, and as many of bf16.
std::vector<std::uint16_t> finite_halves(std::size_t elements) {
  std::vector<std::uint16_t> halves(elements);
  for (std::size_t i = 0; i < elements; ++i) {
    halves[i] = static_cast<std::uint16_t>(i * 7919 + 0x3800);
    if ((halves[i] & 0x7c00) == 0x7c00) halves[i] ^= 0x4000;
  }
  return halves;
}

struct Results {
  Results(const kernels::Table& table, const Batch& batch, const void* x, const void* dy)
      : shift(batch.channels), sums(6 * batch.channels), y(batch.elements() * size_of(batch.type)), dx(y.size()) {
    const std::size_t channels = batch.channels;
    const std::vector<double> scale(channels, 1.7), bias(channels, -0.3);
    const std::vector<std::uint8_t> all((channels + 7) / 8, 1);
    table.sums_from_first(batch, x, all.data(), shift.data(), &sums[0], &sums[channels]);
    std::vector<double> given(2 * channels);
    table.sums_from(batch, x, all.data(), shift.data(), &given[0], &given[channels]);
    EXPECT_EQ(std::memcmp(given.data(), sums.data(), given.size() * 8), 0) << table.name;
    table.sums(batch, x, &sums[4 * channels], &sums[5 * channels]);
    table.gradient_sums(batch, x, dy, shift.data(), &sums[2 * channels], &sums[3 * channels]);
    const auto both = [&](const void* of_x, const void* of_dy, void* to_y, void* to_dx) {
      if (to_y != nullptr) table.normalize(batch, of_x, to_y, shift.data(), scale.data(), bias.data());
      if (to_dx == nullptr) return;
      table.input_gradient(batch, of_x, of_dy, to_dx, shift.data(), scale.data(), bias.data(), shift.data());
    };
    both(x, dy, y.data(), dx.data());
    const auto copy_of = [&](const void* array) {
      const auto* const bytes = static_cast<const std::byte*>(array);
      return std::vector<std::byte>(bytes, bytes + y.size());
    };
    std::vector<std::byte> in_x = copy_of(x), in_dy = copy_of(dy);
    both(in_x.data(), in_dy.data(), nullptr, in_dy.data());
    both(in_x.data(), dy, in_x.data(), nullptr);
    EXPECT_TRUE(in_x == y && in_dy == dx) << "in place: " << table.name;
    in_x = copy_of(x);
    both(in_x.data(), dy, nullptr, in_x.data());
    EXPECT_TRUE(in_x == dx) << "in place: " << table.name;
  }
  bool operator==(const Results& other) const {
    return y == other.y && dx == other.dx && std::memcmp(sums.data(), other.sums.data(), sums.size() * 8) == 0;
  }
  std::vector<double> shift, sums;
  std::vector<std::byte> y, dx;
};

TEST(SyncbnKernels, GiveTheSameBitsOnEveryProcessor) {
  for (const DType type : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    for (const Layout layout : {Layout::kChannelsFirst, Layout::kChannelsLast}) {
      for (const auto& [channels, positions] :
           std::vector<std::pair<std::size_t, std::size_t>>{{13, 37}, {64, 600}, {5, 3}, {1030, 8}}) {
        const Batch batch = batch_of(3, channels, positions, type, layout);
        const auto drawn = normal<float>(2 * batch.elements(), 0.5, 1, 5);
        const std::vector<std::uint16_t> halves = finite_halves(2 * batch.elements());
        const std::vector<double> doubles(drawn.begin(), drawn.end());
        const void* const x = type == DType::kFloat64   ? static_cast<const void*>(doubles.data())
                              : type == DType::kFloat32 ? static_cast<const void*>(drawn.data())
                                                        : static_cast<const void*>(halves.data());
        const void* const dy = static_cast<const std::byte*>(x) + batch.elements() * size_of(type);
        const Results first(*kernels::tables()[0], batch, x, dy);
        for (const kernels::Table* table : kernels::tables().subspan(1)) {
          EXPECT_TRUE(Results(*table, batch, x, dy) == first)
              << table->name << ", " << channels << " channels, type " << static_cast<int>(type);
        }
      }
    }
  }
}

// Records of three batches, one of them empty, of one form.
struct RecordsOf {
  RecordsOf(const kernels::RecordForm& of, std::size_t channels, unsigned seed)
      : form(of), bytes(sizeof(std::uint64_t) + channels * of.channel_bytes), channels_(channels), records(3) {
    std::mt19937 random(seed);
    std::normal_distribution<double> draw(1e3, 1);
    for (std::size_t i = 0; i < records.size(); ++i) {
      std::vector<double> mean(channels), square(channels);
      for (std::size_t channel = 0; channel < channels && i != 1; ++channel) {
        mean[channel] = draw(random);
        square[channel] = std::abs(draw(random));
      }
      records[i].resize(2 * bytes);  // both alike, to be merged in one call
      form.write(i == 1 ? 0 : i + 5, mean.data(), square.data(), channels, channels, records[i].data());
      std::memcpy(records[i].data() + bytes, records[i].data(), bytes);
    }
  }
  // All into that of this place; elsewhere: into memory of their own.
  std::vector<std::byte> merged(std::size_t place = 3) const {
    std::vector<std::vector<std::byte>> copy = records;
    copy.emplace_back(2 * bytes);
    const std::byte* const operands[] = {copy[0].data(), copy[1].data(), copy[2].data()};
    form.merge_all(copy[place].data(), operands, 3, 2, reinterpret_cast<void*>(bytes));
    return copy[place];
  }
  std::vector<std::byte> merged_in_pairs() const {
    std::vector<std::byte> all = records[0];
    for (const std::size_t i : {1, 2}) form.merge(all.data(), records[i].data(), 2, reinterpret_cast<void*>(bytes));
    return all;
  }
  std::vector<double> numbers(const std::vector<std::byte>& message) const {
    std::vector<double> read(2 * channels_);
    form.read(message.data() + bytes, channels_, channels_, read.data(), read.data() + channels_);
    return read;
  }
  const kernels::RecordForm& form;
  const std::size_t bytes;
  std::size_t channels_;
  std::vector<std::vector<std::byte>> records;
};

TEST(SyncbnKernels, MergeRecordsToTheSameBitsOnEveryProcessor) {
  for (const auto form : {&kernels::Table::narrow, &kernels::Table::wide}) {
    for (const std::size_t channels : {1, 5, 7, 8, 9, 13, 16, 31}) {
      const RecordsOf first(kernels::tables()[0]->*form, channels, 8);
      const std::vector<std::byte> want = first.merged();
      EXPECT_EQ(std::vector(want.begin(), want.begin() + static_cast<std::ptrdiff_t>(first.bytes)),
                std::vector(want.begin() + static_cast<std::ptrdiff_t>(first.bytes), want.end()));
      for (const std::size_t place : {0, 1, 2}) EXPECT_EQ(first.merged(place), want) << channels << ", in " << place;
      // One of the three is empty, so pairs are rounded once, as all are at once.
      EXPECT_EQ(first.numbers(first.merged_in_pairs()), first.numbers(want)) << channels;
      for (const kernels::Table* table : kernels::tables().subspan(1)) {
        const RecordsOf other(table->*form, channels, 8);
        EXPECT_EQ(other.records, first.records) << table->name << ", " << channels;
        EXPECT_EQ(other.merged(), want) << table->name << ", " << channels;
        EXPECT_EQ(other.numbers(want), first.numbers(want)) << table->name << ", " << channels;
      }
    }
  }
}

// Splits the samples of a batch as given, and merges the moments of the parts in order: in pairs and all at once, with results that
// differ by less than pairs are rounded.
Moments merged(const Batch& batch, DType statistics, const std::vector<float>& x,
               const std::vector<std::size_t>& parts) {
  const Records records(batch.channels, statistics);
  const UserOp op = records.merging();
  std::vector<std::byte> all(records.bytes()), one(records.bytes());
  std::vector<std::vector<std::byte>> messages;
  std::size_t sample = 0;
  bool first = true;
  for (const std::size_t part : parts) {
    Batch own = batch;
    own.samples = part;
    Moments moments;
    moments_of(own, x.data() + sample * batch.channels * batch.positions, moments);
    records.write(moments, one.data());
    Moments sums;
    sum_up(own, x.data() + sample * batch.channels * batch.positions, sums);
    std::vector<std::byte> of_sums(records.bytes());
    if (has_far(sums)) {
      finish(own, x.data() + sample * batch.channels * batch.positions, sums);
      records.write(sums, of_sums.data());
    } else {
      records.write_sums(sums, of_sums.data());
    }
    EXPECT_EQ(of_sums, one);
    if (first) {
      all = one;
    } else {
      op.function(all.data(), one.data(), records.count(), op.arg);
    }
    first = false;
    sample += part;
    messages.push_back(one);
  }
  Moments result, at_once;
  records.read(all.data(), result);
  std::vector<const std::byte*> operands;
  for (const auto& message : messages) operands.push_back(message.data());
  op.of_all(one.data(), operands.data(), operands.size(), records.count(), op.arg);
  records.read(one.data(), at_once);
  EXPECT_EQ(at_once.count, result.count);
  Moments in_place;
  records.merge(operands, in_place);
  EXPECT_TRUE(in_place.count == at_once.count && in_place.mean == at_once.mean && in_place.square == at_once.square);
  for (std::size_t channel = 0; channel < batch.channels; ++channel) {
    EXPECT_NEAR(at_once.mean[channel], result.mean[channel], 0x1p-38 * std::abs(result.mean[channel])) << channel;
    EXPECT_NEAR(at_once.square[channel], result.square[channel], 0x1p-20 * result.square[channel]) << channel;
  }
  return result;
}

TEST(SyncbnRecords, AreInWholeVectorsUnlessEvenPartsAreMuchShorter) {
  for (const auto& [channels, count, bytes] : std::vector<std::tuple<std::size_t, std::size_t, std::size_t>>{
           {5, 1, 58}, {49, 1, 498}, {64, 2, 656}, {100, 2, 1016}, {256, 8, 2624}, {1024, 32, 10496}}) {
    const Records records(channels, DType::kFloat32);
    EXPECT_EQ(std::pair(records.count(), records.bytes()), std::pair(count, bytes)) << channels;
  }
}

TEST(SyncbnRecords, AreTheSameOfSumsAndOfTheirMoments) {
  for (const DType statistics : {DType::kFloat64, DType::kFloat32}) {
    for (const std::size_t channels : {1, 7, 31, 100}) {
      const Batch batch = batch_of(12, channels, 6, DType::kFloat32);
      const auto x = normal<float>(batch.elements(), 3, 1, 6);
      Moments moments, sums;
      moments_of(batch, x.data(), moments);
      sum_up(batch, x.data(), sums);
      EXPECT_FALSE(has_far(sums));
      const Records records(channels, statistics);
      std::vector<std::byte> of_sums(records.bytes()), of_moments(records.bytes());
      records.write_sums(sums, of_sums.data());
      records.write(moments, of_moments.data());
      EXPECT_EQ(of_sums, of_moments) << channels;
    }
  }
}

TEST(SyncbnRecords, MergeUnevenAndEmptyParts) {
  for (const auto& [statistics, relative] : {std::pair(DType::kFloat64, 1e-10), std::pair(DType::kFloat32, 2e-7)}) {
    for (const std::size_t channels : {1, 2, 31, 32, 49, 50, 51, 63, 100}) {
      const Batch batch = batch_of(12, channels, 6, DType::kFloat32);
      const auto x = normal<float>(batch.elements(), 1e4, 1, 6);
      const Exact want = exact(batch, x);
      for (const auto& parts :
           std::vector<std::vector<std::size_t>>{{12}, {6, 6}, {1, 11}, {0, 5, 0, 7, 0}, {1, 2, 3, 6}}) {
        const Moments have = merged(batch, statistics, x, parts);
        EXPECT_EQ(have.count, batch.count());
        expect_near(have, want, relative);
      }
    }
  }
}

TEST(SyncbnRecords, OfFp32StatisticsKeepMeansOfManyDeviationsAndWhatIsNotFinite) {
  const double infinite = std::numeric_limits<double>::infinity(), not_a_number = std::nan("");
  const std::vector<double> means = {1e4 + 1.0 / 3, -1e-30, 1 - 0x1p-50, infinite, not_a_number, 0, 1e18};
  const std::vector<double> squares = {1.0 / 3, 0, 1e40, not_a_number, not_a_number, 1e-50, 1e39};
  const Records records(means.size(), DType::kFloat32);
  std::vector<std::byte> message(records.bytes());
  records.write({7, means, squares}, message.data());
  Moments have;
  records.read(message.data(), have);
  EXPECT_EQ(have.count, 7U);
  for (const std::size_t channel : {0, 1, 2})
    EXPECT_NEAR(have.mean[channel], means[channel], std::abs(means[channel]) * 0x1p-40) << channel;
  EXPECT_EQ(have.mean[3], infinite);
  EXPECT_TRUE(std::isnan(have.mean[4]));
  EXPECT_EQ(have.mean[5], 0.0);
  EXPECT_NEAR(have.square[0], squares[0], squares[0] * 0x1p-23);
  EXPECT_EQ(have.square[2], infinite);
  EXPECT_NEAR(have.square[6], squares[6], squares[6] * 0x1p-23) << "a sum beyond fp32, of a variance within it";
  EXPECT_TRUE(std::isnan(have.square[3]) && std::isnan(have.square[4]));
  EXPECT_EQ(have.square[5], 0.0);
}

TEST(SyncbnRecords, NothingMergedWithNothingIsNothing) {
  for (const DType statistics : {DType::kFloat32, DType::kFloat64}) {
    const Batch batch = batch_of(0, 3, 6, DType::kFloat32);
    const Moments have = merged(batch, statistics, {}, {0, 0});
    EXPECT_EQ(have.count, 0U);
    EXPECT_EQ(have.mean, std::vector<double>(3, 0.0));
  }
}

TEST(SyncbnRecords, CountsAreExactBeyondTwoToThe24) {
  for (const DType statistics : {DType::kFloat32, DType::kFloat64}) {
    const Records records(1, statistics);
    const UserOp op = records.merging();
    std::vector<std::byte> a(records.bytes()), b(records.bytes());
    const std::uint64_t many = (std::uint64_t{1} << 40) + 1;
    records.write({many, {2.0}, {4.0}}, a.data());
    records.write({3, {2.0}, {1.0}}, b.data());
    op.function(a.data(), b.data(), 1, op.arg);
    Moments have;
    records.read(a.data(), have);
    EXPECT_EQ(have.count, many + 3);
    EXPECT_EQ(have.mean[0], 2.0);
    EXPECT_NEAR(have.square[0], 5.0, 5.0 * 0x1p-23);
  }
}

TEST(SyncbnRecords, ThatHaveUnlikeCountsAreMergedEachByItsOwnAndAreNoMoments) {
  for (const DType statistics : {DType::kFloat64, DType::kFloat32}) {
    const std::size_t channels = 100;
    const Records records(channels, statistics);
    ASSERT_GE(records.count(), 2U);
    const std::size_t last = records.bytes() - records.record_bytes();
    for (const std::uint64_t count : {std::uint64_t{3}, std::uint64_t{0}}) {
      std::vector<std::byte> good(records.bytes()), bad(good), merged(good);
      records.write({count, std::vector<double>(channels, 1.0), std::vector<double>(channels, 0.0)}, good.data());
      records.write({count, std::vector<double>(channels, 3.0), std::vector<double>(channels, 0.0)}, bad.data());
      const std::uint64_t altered = count + 6, both = count + altered;
      std::memcpy(bad.data() + last, &altered, sizeof altered);
      const std::byte* const operands[] = {good.data(), bad.data()};
      Moments have;
      records.merge(operands, have);
      EXPECT_EQ(have.count, kernels::kCountsDiffer);
      const UserOp op = records.merging();
      op.of_all(merged.data(), operands, 2, records.count(), op.arg);
      EXPECT_EQ(std::memcmp(merged.data() + last, &both, sizeof both), 0) << count;
      records.read(merged.data(), have);
      EXPECT_EQ(have.count, kernels::kCountsDiffer);
      EXPECT_NEAR(have.mean.back(),
                  (static_cast<double>(count) * 1.0 + static_cast<double>(altered) * 3.0) / static_cast<double>(both),
                  1e-9);
      op.function(good.data(), bad.data(), records.count(), op.arg);
      EXPECT_EQ(good, merged) << "in place of an operand";
    }
  }
}

TEST(SyncbnRecords, FitIntoRecordsOfOperators) {
  for (const auto& [statistics, bytes] : {std::pair(DType::kFloat64, 16U), std::pair(DType::kFloat32, 10U)}) {
    for (std::size_t channels = 1; channels < 300; ++channels) {
      const Records records(channels, statistics);
      EXPECT_LE(records.record_bytes(), UserOp::kMostRecordBytes);
      EXPECT_GE(records.count() * (records.record_bytes() - 8) / bytes, channels);
    }
  }
}

}  // namespace
}  // namespace aiacc::syncbn
