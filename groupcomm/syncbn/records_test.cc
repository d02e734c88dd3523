// Records: moments in messages, and their merging.
#include "groupcomm/syncbn/moments.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "groupcomm/syncbn/exact_moments_test.h"
#include "groupcomm/syncbn/kernels.h"

namespace aiacc::syncbn {
namespace {

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
