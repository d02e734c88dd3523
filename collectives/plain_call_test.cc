#include "collectives/plain_call.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace aiacc {
namespace {

TEST(PlainCalls, SayAllAboutTheCallsThatTheyDescribe) {
  Call call;
  call.kind = Collective::kReduce;
  call.count = 1'000;
  call.reduction.type = DType::kInt64;
  call.reduction.op = ReduceOp::kMax;
  call.root = 3;
  Call message;
  message.kind = Collective::kRecv;
  message.count = 7;
  message.root = 2;
  message.tag = 0xffffffff;
  for (const Call& each : {call, message, Call{}}) {
    ASSERT_TRUE(PlainCall::describes(each));
    const Call same = PlainCall::of(each).call();
    EXPECT_EQ(same.fingerprint(), each.fingerprint());
    EXPECT_EQ(same.describe(), each.describe());
    EXPECT_EQ(same.bytes(), each.bytes());
  }
}

TEST(PlainCalls, DescribeNoCallThatHasMore) {
  static const UserOp op;
  static const Extent block;
  static const Tensor tensor;
  int sender = 0;
  const std::vector<std::function<void(Call&)>> changes = {
      [](Call& call) { call.uneven = true; },
      [](Call& call) {
        call.blocks = {&block, 1};
      },
      [](Call& call) {
        call.recv_blocks = {&block, 1};
      },
      [](Call& call) {
        call.tensors = {&tensor, 1};
      },
      [](Call& call) { call.recv_count = 1; },
      [](Call& call) { call.from = 1; },
      [](Call& call) { call.recv_tag = 1; },
      [&](Call& call) { call.sender = &sender; },
      [](Call& call) { call.reduction.prescale = 2; },
      [](Call& call) { call.reduction.postscale = 2; },
      [](Call& call) { call.reduction.codec = Codec::kFloat16; },
      [](Call& call) { call.reduction.user = &op; },
      [](Call& call) { call.reduction.operands = DType::kFloat32; },
      [](Call& call) { call.reduction.results = DType::kFloat32; },
      [](Call& call) { call.reduction.rounds_phases = true; },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    Call call;
    call.kind = Collective::kAllreduce;
    call.count = 4;
    ASSERT_TRUE(PlainCall::describes(call));
    changes[i](call);
    EXPECT_FALSE(PlainCall::describes(call)) << i;
  }
}

}  // namespace
}  // namespace aiacc
