// The kernels of SyncBN give the same bits with the instructions of every processor.
#include "groupcomm/syncbn/kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "groupcomm/syncbn/exact_moments_test.h"

namespace aiacc::syncbn {
namespace {

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

}  // namespace
}  // namespace aiacc::syncbn
