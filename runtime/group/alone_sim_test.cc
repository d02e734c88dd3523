// A group of one rank: what is reduced in place is there already, and its bytes are not touched.
#include "runtime/group/alone.h"

#include "tests/sim_job.h"

namespace aiacc {
namespace {

TEST(Alone, AReductionInPlaceTouchesNoByteUnlessItChangesSome) {
  sim::SimJob job({0});
  std::vector<float> values(1000, 3.0F), elsewhere(1000);
  const auto buffer_of = [](std::vector<float>& of) {
    return Buffer{reinterpret_cast<std::byte*>(of.data()), of.size() * sizeof(float)};
  };
  const auto pieces_of = [&](ReduceOp op, double postscale, std::vector<float>& result) {
    Call call;
    call.kind = Collective::kAllreduce;
    call.count = values.size();
    call.reduction.op = op;
    call.reduction.postscale = postscale;
    const std::uint64_t before = job[0].compute.pieces();
    job[0].start(call, buffer_of(values), buffer_of(result));
    job.finish();
    return job[0].compute.pieces() - before;
  };
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax}) EXPECT_EQ(pieces_of(op, 1.0, values), 0u);
  EXPECT_EQ(values, std::vector<float>(1000, 3.0F));
  EXPECT_EQ(pieces_of(ReduceOp::kSum, 1.0, elsewhere), 1u);
  EXPECT_EQ(elsewhere, values);
  EXPECT_EQ(pieces_of(ReduceOp::kSum, 2.0, values), 1u);
  EXPECT_EQ(values, std::vector<float>(1000, 6.0F));
}

}  // namespace
}  // namespace aiacc
