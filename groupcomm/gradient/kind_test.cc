#include "groupcomm/gradient/kind.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace aiacc::gradient {
namespace {

Kind kind_of(DType type, ReduceOp op, double postscale = 1.0) {
  Kind kind;
  kind.type = type;
  kind.op = op;
  kind.postscale = postscale;
  return kind;
}

// In a recorded schedule a rank that departs gives zeros for what it has not submitted, and adds its own afterwards.
TEST(GradientKind, OnlyWhatAddsUpIsRecorded) {
  EXPECT_TRUE(kind_of(DType::kFloat32, ReduceOp::kAvg, 0.5).record("a", 1).sum);
  EXPECT_TRUE(kind_of(DType::kInt64, ReduceOp::kSum).record("a", 1).sum);
  EXPECT_FALSE(kind_of(DType::kInt64, ReduceOp::kAvg).record("a", 1).sum) << "1/2 + 1/2 of integers is 0";
  EXPECT_FALSE(kind_of(DType::kInt64, ReduceOp::kSum, 0.5).record("a", 1).sum);
  EXPECT_FALSE(kind_of(DType::kBool, ReduceOp::kAvg).record("a", 1).sum);
  EXPECT_FALSE(kind_of(DType::kFloat32, ReduceOp::kMax).record("a", 1).sum);
}

TEST(GradientKind, DifferentKindsHaveDifferentKeysAndARecordTellsTheKind) {
  std::vector<Kind> kinds;
  for (const DType type : {DType::kFloat32, DType::kFloat16, DType::kInt64}) {
    for (const double scale : {1.0, 0.5}) {
      Kind kind = kind_of(type, ReduceOp::kSum, scale);
      kinds.push_back(kind);
      for (std::size_t row_elements = 1; row_elements <= 70; ++row_elements) {
        kind.row_elements = row_elements;
        kinds.push_back(kind);
      }
    }
  }
  for (const DType wire : {DType::kFloat16, DType::kBFloat16}) {
    kinds.emplace_back();
    kinds.back().wire = wire;
  }
  kinds.emplace_back();
  kinds.back().codec = Codec::kFloat16;
  std::set<std::uint64_t> keys;
  for (const Kind& kind : kinds) {
    EXPECT_TRUE(keys.insert(kind.key()).second) << kind.describe(10);
    EXPECT_EQ(Kind::of(kind.record("a", 10)), kind) << kind.describe(10);
  }
}

}  // namespace
}  // namespace aiacc::gradient
