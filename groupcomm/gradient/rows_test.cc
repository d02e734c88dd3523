#include "groupcomm/gradient/rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <vector>

#include "base/data/reference_reduce.h"
#include "base/sim/random.h"

namespace aiacc::gradient {
namespace {

template <class T>
RowsView view_of(const std::vector<std::int64_t>& numbers, const std::vector<T>& elements) {
  return {numbers, reinterpret_cast<const std::byte*>(elements.data())};
}

template <class T>
std::vector<T> row_elements_of(const Rows& rows, std::size_t row_elements) {
  std::vector<T> elements(rows.size() * row_elements);
  if (!elements.empty()) std::memcpy(elements.data(), rows.elements(), elements.size() * sizeof(T));
  return elements;
}

std::vector<std::int64_t> numbers_of(const Rows& rows) { return {rows.numbers(), rows.numbers() + rows.size()}; }

Reduction sum_of(DType type) {
  Reduction sum;
  sum.type = type;
  return sum;
}

using Dense = std::map<std::int64_t, std::vector<double>>;

// Small whole numbers, whose sums are exact.
struct Given {
  std::vector<std::int64_t> numbers;
  std::vector<float> elements;

  Given(sim::Random& random, std::size_t count, std::uint64_t of, std::size_t row_elements) {
    for (std::size_t row = 0; row < count; ++row) numbers.push_back(static_cast<std::int64_t>(random.below(of)));
    for (std::size_t at = 0; at < count * row_elements; ++at)
      elements.push_back(static_cast<float>(random.below(100)) - 50);
  }
  void add_to(Dense& dense, std::size_t row_elements) const {
    for (std::size_t row = 0; row < numbers.size(); ++row) {
      std::vector<double>& sum = dense.try_emplace(numbers[row], row_elements).first->second;
      for (std::size_t at = 0; at < row_elements; ++at)
        sum[at] += static_cast<double>(elements[row * row_elements + at]);
    }
  }
};

void expect_equal(const Rows& rows, const Dense& dense, std::size_t row_elements, double factor) {
  ASSERT_EQ(rows.size(), dense.size());
  const std::vector<float> elements = row_elements_of<float>(rows, row_elements);
  std::size_t row = 0;
  for (const auto& [number, sum] : dense) {
    ASSERT_EQ(rows.numbers()[row], number);
    for (std::size_t at = 0; at < row_elements; ++at)
      ASSERT_EQ(elements[row * row_elements + at], static_cast<float>(sum[at] * factor));
    ++row;
  }
}

TEST(GradientRows, CollectsRowsInAnyOrderAndAddsUpThoseThatComeSeveralTimes) {
  sim::Random random(1);
  for (int turn = 0; turn < 300; ++turn) {
    const std::size_t row_elements = 1 + random.below(40);
    const Given given(random, random.below(60), 1 + random.below(80), row_elements);
    Dense dense;
    given.add_to(dense, row_elements);
    Rows rows;
    rows.collect(DType::kFloat32, row_elements, view_of(given.numbers, given.elements));
    expect_equal(rows, dense, row_elements, 1);
    EXPECT_EQ(rows.bytes(), dense.size() * (sizeof(std::int64_t) + row_elements * sizeof(float)));
    if (HasFatalFailure()) return;
  }
}

TEST(GradientRows, SumsWhatAnyNumberOfRanksHave) {
  sim::Random random(2);
  for (int turn = 0; turn < 300; ++turn) {
    const std::size_t row_elements = 1 + random.below(20), ranks = random.below(9);
    const std::uint64_t of = 1 + random.below(100);
    std::vector<Rows> each(ranks);
    Dense dense;
    for (Rows& rows : each) {
      const Given given(random, random.below(50), of, row_elements);
      given.add_to(dense, row_elements);
      rows.collect(DType::kFloat32, row_elements, view_of(given.numbers, given.elements));
    }
    std::vector<RowsView> views(ranks);
    std::transform(each.begin(), each.end(), views.begin(), [](const Rows& rows) { return rows.view(); });
    Rows sum;
    Reduction reduction = sum_of(DType::kFloat32);
    const bool scales = turn % 2 == 0;
    if (scales) reduction.prescale = 0.5, reduction.postscale = 4, reduction.op = ReduceOp::kAvg;
    sum.sum(reduction, row_elements, views, 4);
    expect_equal(sum, dense, row_elements, scales ? 0.5 : 1);
    if (HasFatalFailure()) return;
    // The same by adding one to the other.
    Rows added;
    for (const Rows& rows : each) added.add(DType::kFloat32, row_elements, rows.view());
    expect_equal(added, dense, row_elements, 1);
    if (HasFatalFailure()) return;
  }
}

TEST(GradientRows, AddSixteenBitElementsInFp32AndRoundOnce) {
  const std::vector<std::int64_t> number = {3};
  const std::vector<std::uint16_t> large = {reference::float_to_half(2048)}, one = {reference::float_to_half(1)};
  const RowsView ranks[] = {view_of(number, large), view_of(number, one), view_of(number, one)};
  Rows sum;
  sum.sum(sum_of(DType::kFloat16), 1, ranks, 3);
  EXPECT_EQ(reference::half_to_float(row_elements_of<std::uint16_t>(sum, 1).at(0)), 2050) << "2048 + 1 is 2048 in fp16";
  const std::vector<std::int64_t> thrice = {7, 7, 7};
  const std::vector<std::uint16_t> all = {large[0], one[0], one[0]};
  sum.collect(DType::kFloat16, 1, view_of(thrice, all));
  EXPECT_EQ(numbers_of(sum), std::vector<std::int64_t>{7});
  EXPECT_EQ(reference::half_to_float(row_elements_of<std::uint16_t>(sum, 1).at(0)), 2050);
}

TEST(GradientRows, AreAddedInTheOrderOfRanks) {
  const std::vector<std::int64_t> number = {0};
  const std::vector<float> large = {1e8F}, one = {3}, minus = {-1e8F};
  const RowsView ranks[] = {view_of(number, large), view_of(number, one), view_of(number, minus)};
  Rows sum;
  sum.sum(sum_of(DType::kFloat32), 1, ranks, 3);
  EXPECT_EQ(row_elements_of<float>(sum, 1).at(0), 1e8F + 3 - 1e8F);
  const RowsView others[] = {view_of(number, large), view_of(number, minus), view_of(number, one)};
  sum.sum(sum_of(DType::kFloat32), 1, others, 3);
  EXPECT_EQ(row_elements_of<float>(sum, 1).at(0), 3);
}

TEST(GradientRows, ArePickedFromATableByTheirBits) {
  for (const std::size_t of : {1U, 63U, 64U, 65U, 200U}) {
    std::vector<std::int64_t> table(of * 2), numbers, elements;
    std::iota(table.begin(), table.end(), 0);
    std::vector<std::uint64_t> bits((of + 63) / 64);
    for (std::size_t row = 0; row < of; row += 3) {
      bits[row / 64] |= std::uint64_t{1} << row % 64;
      numbers.push_back(static_cast<std::int64_t>(row));
      elements.insert(elements.end(), {table[2 * row], table[2 * row + 1]});
    }
    Rows rows;
    rows.pick(2 * sizeof(std::int64_t), bits, reinterpret_cast<const std::byte*>(table.data()));
    EXPECT_EQ(numbers_of(rows), numbers);
    EXPECT_EQ(row_elements_of<std::int64_t>(rows, 2), elements);
  }
}

// n ranks with a share of the rows each move n times that share, and the whole table twice.
TEST(GradientRows, TravelAsRowsIfThatMovesNoMore) {
  EXPECT_TRUE(moves_less_as_rows(0, 0, 4));
  EXPECT_TRUE(moves_less_as_rows(1996, 1000, 4096));
  EXPECT_FALSE(moves_less_as_rows(1997, 1000, 4096)) << "each has its number, too";
  EXPECT_TRUE(moves_less_as_rows(687, 1000, 4)) << "a number takes twice the bytes of a row of one fp32";
  EXPECT_FALSE(moves_less_as_rows(688, 1000, 4));
  EXPECT_TRUE(moves_less_as_rows(1 << 20, std::uint64_t{1} << 40, 1 << 20));
}

}  // namespace
}  // namespace aiacc::gradient
