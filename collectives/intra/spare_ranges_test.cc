#include "collectives/intra/spare_ranges.h"

#include <gtest/gtest.h>

#include <vector>

namespace aiacc {
namespace {

constexpr std::uint64_t kKiB = 1024;

class SpareRangesTest : public ::testing::Test {
 protected:
  void keep(std::uint64_t offset, std::uint64_t bytes) {
    spare_.keep({offset, bytes}, [this](HostRange range) { freed_.push_back(range.offset); });
  }
  // -1: none.
  std::int64_t take(std::uint64_t size) {
    const std::optional<HostRange> range = spare_.take(size);
    return range ? static_cast<std::int64_t>(range->offset) : -1;
  }

  SpareRanges spare_{64 * kKiB};
  std::vector<std::uint64_t> freed_;
};

TEST_F(SpareRangesTest, RoundSizesUpByAQuarterAtMost) {
  const SpareRanges spare(64 << 20);
  for (std::uint64_t bytes = 1; bytes <= 64 << 20; bytes += 1 + bytes / 7) {
    const std::uint64_t size = spare.size_for(bytes);
    ASSERT_GE(size, bytes);
    ASSERT_LE(size, std::max<std::uint64_t>(bytes + bytes / 4 + 1, bytes + 4095)) << bytes;
    ASSERT_EQ(spare.size_for(size), size) << bytes;
  }
  EXPECT_EQ(spare.size_for((1 << 20) + 32), (1 << 20) + (256 << 10));
  EXPECT_EQ(spare.size_for((64 << 20) + 1), (64u << 20) + 1) << "it is not kept";
}

TEST_F(SpareRangesTest, GiveTheLastOfASizeOrOneOfAtMostTwiceIt) {
  keep(1, 8 * kKiB);
  keep(2, 8 * kKiB);
  keep(3, 16 * kKiB);
  EXPECT_EQ(take(8 * kKiB), 2);
  EXPECT_EQ(take(8 * kKiB), 1);
  EXPECT_EQ(take(4 * kKiB), -1) << "four times as long";
  EXPECT_EQ(take(8 * kKiB), 3);
  EXPECT_EQ(take(8 * kKiB), -1);
  EXPECT_EQ(spare_.bytes(), 0u);
}

TEST_F(SpareRangesTest, KeepWhatWasReleasedLastWhateverTheSizesBefore) {
  for (std::uint64_t i = 0; i < 16; ++i) keep(i, 4 * kKiB);
  EXPECT_TRUE(freed_.empty());
  keep(100, 32 * kKiB);
  EXPECT_EQ(freed_, (std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(take(32 * kKiB), 100);
  EXPECT_EQ(take(4 * kKiB), 15);
}

TEST_F(SpareRangesTest, LeaveWhatIsLongerThanAllTheyKeep) {
  keep(1, 4 * kKiB);
  keep(2, 65 * kKiB);
  EXPECT_EQ(freed_, std::vector<std::uint64_t>{2});
  spare_.drop_all([this](HostRange range) { freed_.push_back(range.offset); });
  EXPECT_EQ(freed_, (std::vector<std::uint64_t>{2, 1}));
  EXPECT_EQ(spare_.bytes(), 0u);
}

}  // namespace
}  // namespace aiacc
