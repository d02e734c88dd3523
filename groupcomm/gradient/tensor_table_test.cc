#include "groupcomm/gradient/tensor_table.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace aiacc::gradient {
namespace {

TensorRecord record(std::string name, std::uint64_t bytes = 4, std::uint64_t key = 1) {
  return {std::move(name), bytes, key, true, "float32"};
}

using Lists = std::vector<std::vector<TensorRecord>>;

TEST(TensorTable, AppendsByTheFirstRankAndThenItsOrder) {
  TensorTable table;
  EXPECT_EQ(table.add(record("c")), 0U);
  EXPECT_EQ(table.add(record("a", 4, 2)), 1U);
  EXPECT_EQ(table.add(record("c")), 0U) << "the same tensor";
  EXPECT_EQ(table.new_records(), (std::vector{record("c"), record("a", 4, 2)}));
  std::vector<std::uint32_t> mapped;
  table.append(Lists{{record("b"), record("a", 4, 2)}, {record("c"), record("a", 4, 2)}, {record("d")}}, mapped);
  EXPECT_EQ(mapped, (std::vector<std::uint32_t>{1, 0}));
  EXPECT_FALSE(table.has_new());
  EXPECT_EQ(table.agreed_tensors(), 4U);
  EXPECT_EQ(table.index_of(0), 2U);
  EXPECT_EQ(table.index_of(1), 1U);
  EXPECT_EQ(table.local_of(2), 0U);
  EXPECT_EQ(table.local_of(3), kNoIndex) << "only rank 2 has it";
  EXPECT_EQ(table.fusion_classes(), 2U);
  EXPECT_EQ(table.fusion_class(1), 1U);
  EXPECT_EQ(table.fusion_class(3), 0U);
}

TEST(TensorTable, MapsANameThatOthersAgreedOnWithoutAnExchange) {
  TensorTable table;
  std::vector<std::uint32_t> mapped;
  table.append(Lists{{record("a")}, {record("b")}}, mapped);
  EXPECT_EQ(table.add(record("b")), 0U);
  EXPECT_EQ(table.index_of(0), 1U);
  EXPECT_FALSE(table.has_new());
}

TEST(TensorTable, TakesThePriorityOfTheFirstRankThatHasTheTensor) {
  const auto with = [](std::string name, std::int32_t priority) {
    TensorRecord one = record(std::move(name));
    one.priority = priority;
    return one;
  };
  TensorTable table;
  EXPECT_EQ(table.add(with("a", 5)), 0U);
  EXPECT_EQ(table.add(with("a", 6)), 0U) << "the same tensor";
  std::vector<std::uint32_t> mapped;
  table.append(Lists{{}, {with("b", -1)}, {with("a", -1), with("b", 7)}, {with("a", 5)}}, mapped);
  EXPECT_EQ(mapped, std::vector<std::uint32_t>{0});
  EXPECT_EQ(table.priority(0), -1);
  EXPECT_EQ(table.priority(1), -1);
  EXPECT_FALSE(table.has_priorities()) << "they do not differ";
  table.append(Lists{{}, {with("c", 3)}}, mapped);
  EXPECT_TRUE(table.has_priorities());
}

TEST(TensorTable, NamesTensorRanksAndBothRecordsOfAMismatch) {
  TensorTable table;
  table.add(record("conv.weight", 4));
  std::vector<std::uint32_t> mapped;
  try {
    table.append(Lists{{}, {record("conv.weight", 4)}, {record("conv.weight", 8)}}, mapped);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kMismatch);
    EXPECT_EQ(
        error.message(),
        "gradient 'conv.weight' is float32 (8 bytes) on rank 2 and float32 (4 bytes) on rank 1; give different tensors "
        "different names on all ranks");
  }
}

TEST(TensorTable, RefusesAnotherTensorOfAKnownName) {
  TensorTable table(7);
  std::vector<std::uint32_t> mapped;
  table.add(record("a"));
  EXPECT_THROW(table.add(record("a", 8)), Error);
  table.append(Lists{{record("b")}}, mapped);
  try {
    table.add(record("b", 8));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(
        error.message(),
        "gradient 'b' is float32 (8 bytes) on rank 7 and float32 (4 bytes) on rank 0; give different tensors different "
        "names on all ranks")
        << "other ranks read it too";
  }
  EXPECT_EQ(table.local_tensors(), 1U);
}

}  // namespace
}  // namespace aiacc::gradient
