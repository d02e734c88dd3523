#include "groupcomm/gradient/kind.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace aiacc::gradient
