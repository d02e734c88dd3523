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
  call = allreduce_of(8);
  call.kind = Collective::kReduce;
  seen.insert(call.fingerprint());
  call.root = 1;
  seen.insert(call.fingerprint());
  EXPECT_EQ(seen.size(), 7u);
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
