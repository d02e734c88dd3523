#include "collectives/operation.h"

#include <gtest/gtest.h>

#include <set>

namespace aiacc {
namespace {

Call allreduce_of(std::size_t count) {
  Call call;
  call.kind = Collective::kAllreduce;
  call.count = count;
  return call;
}

TEST(Call, EachFieldThatMembersMustAgreeOnChangesTheFingerprint) {
  std::set<std::uint64_t> seen{allreduce_of(8).fingerprint(), allreduce_of(9).fingerprint()};
  Call call = allreduce_of(8);
  call.reduction.type = DType::kFloat64;
  seen.insert(call.fingerprint());
  call = allreduce_of(8);
  call.reduction.op = ReduceOp::kMax;
  seen.insert(call.fingerprint());
  call = allreduce_of(8);
  call.reduction.postscale = 0.5;
  seen.insert(call.fingerprint());
  call.reduction.postscale = 0.25;
  seen.insert(call.fingerprint());
  call.reduction.postscale = 1.0;
  call.reduction.prescale = 0.25;
  seen.insert(call.fingerprint());
  call = allreduce_of(8);
  call.kind = Collective::kReduce;
  seen.insert(call.fingerprint());
  call.root = 1;
  seen.insert(call.fingerprint());
  EXPECT_EQ(seen.size(), 9u);
}

TEST(Call, UnevenCallsAgreeOnEveryLengthOrOnNone) {
  Call call;
  call.kind = Collective::kAllgather;
  call.uneven = true;
  call.count = 5;
  const Extent some[] = {{0, 2}, {2, 3}}, others[] = {{0, 3}, {3, 2}}, apart[] = {{0, 2}, {9, 3}};
  call.blocks = some;
  const std::uint64_t fingerprint = call.fingerprint();
  EXPECT_EQ(call.describe().substr(0, 37), "allgatherv of 5 fp32 in 2 blocks (len");
  call.blocks = apart;
  EXPECT_EQ(call.fingerprint(), fingerprint) << "where blocks stand is everybody's own business";
  call.blocks = others;
  EXPECT_NE(call.fingerprint(), fingerprint);
  call.kind = Collective::kGather;
  const std::uint64_t at_root = call.fingerprint();
  call.blocks = {};
  call.count = 2;
  EXPECT_EQ(call.fingerprint(), at_root) << "only the root knows all lengths";
  call.uneven = false;
  for (call.count = 0; call.count < 4; ++call.count) EXPECT_NE(call.fingerprint(), at_root) << call.count;
}

TEST(Call, AUserDefinedOperatorIsAgreedOnByNameAndSize) {
  UserOp op{.record_bytes = 24, .commutative = true, .name = "softmax"};
  Call call = allreduce_of(3);
  call.reduction.type = DType::kRecord;
  call.reduction.user = &op;
  EXPECT_EQ(call.element_bytes(), 24u);
  EXPECT_EQ(call.describe(), "allreduce of 3 records of 24 bytes, operator 'softmax'");
  const std::uint64_t fingerprint = call.fingerprint();
  const UserOp same = op;
  call.reduction.user = &same;
  EXPECT_EQ(call.fingerprint(), fingerprint);
  op.name = "exponent";
  call.reduction.user = &op;
  EXPECT_NE(call.fingerprint(), fingerprint);
}

TEST(Call, ASendAndItsRecvAreOneCall) {
  Call send;
  send.kind = Collective::kSend;
  send.count = 3;
  send.root = 1;
  send.tag = 7;
  Call recv = send;
  recv.kind = Collective::kRecv;
  recv.root = 0;
  EXPECT_EQ(send.fingerprint(), recv.fingerprint());
  recv.tag = 8;
  EXPECT_NE(send.fingerprint(), recv.fingerprint());
}

TEST(Call, DescribesItselfForMessages) {
  EXPECT_EQ(allreduce_of(1024).describe(), "allreduce of 1024 fp32, sum");
  Call call;
  EXPECT_EQ(call.describe(), "barrier");
  call.kind = Collective::kBroadcast;
  call.count = 10;
  call.root = 3;
  call.reduction.type = DType::kBFloat16;
  EXPECT_EQ(call.describe(), "broadcast of 10 bf16, from root 3");
  call.kind = Collective::kRecv;
  call.tag = 5;
  EXPECT_EQ(call.describe(), "recv of 10 bf16 from rank 3, tag 5");
}

}  // namespace
}  // namespace aiacc
