// Allreduces over several hosts with a codec: encoded between hosts, as they are within each, on any placement of ranks.
#include "base/data/codec.h"
#include "collectives/hier/hier_world_test.h"

namespace aiacc {
namespace {

using namespace hier_test;

Call coded(std::size_t count, ReduceOp op = ReduceOp::kSum, Codec codec = Codec::kFloat16) {
  Call call = call_of(Collective::kAllreduce, count, DType::kFloat32, op);
  call.reduction.codec = codec;
  return call;
}

// Sums of small whole numbers are exact in fp16.
TEST(HierCodec, EveryCountPlacementAndMemory) {
  for (const Placement& placement : kPlacements) {
    for (const Through through : {Through::kSharedMemory, Through::kMessages}) {
      std::vector<Case> cases;
      for (const std::size_t count : {0, 1, 100, 4'097, 33'001}) {
        for (const Memory memory : {Memory::kPrivate, Memory::kShared, Memory::kMixed})
          cases.push_back({coded(count), memory, count % 2 == 1});
      }
      cases.push_back({coded(50'000)});
      cases.back().call.reduction.prescale = 0.5;
      cases.back().call.reduction.postscale = 4.0;
      cases.push_back({coded(33'001, ReduceOp::kSum, Codec::kBFloat16), Memory::kShared, true});
      run_cases(placement, cases, through);
    }
  }
}

TEST(HierCodec, LongPayloadsGoInSlices) {
  run_cases({0, 0, 1, 1, 2}, {{coded(700'001)}, {coded(700'000), Memory::kShared, true}});
}

TEST(HierCodec, HalvesTheBytesBetweenHosts) {
  const auto bytes_of = [](const Placement& placement, Codec codec) {
    SimCluster cluster(1, placement);
    std::deque<Rank> ranks;
    std::deque<Bytes> buffers;
    Call call = coded(1 << 20);
    call.reduction.codec = codec;
    for (int rank = 0; rank < cluster.size(); ++rank) {
      ranks.emplace_back(cluster, rank);
      buffers.emplace_back(call.bytes());
      const Buffer buffer = exact::buffer_of(buffers.back());
      cluster.rank(rank).start(open_and_perform(&ranks.back(), call, buffer, buffer));
    }
    EXPECT_TRUE(cluster.run());
    return static_cast<double>(cluster.fabric().bytes());
  };
  for (const Placement& placement : {Placement{0, 0, 1, 1}, Placement{0, 0, 0, 1}, Placement{0, 1, 2, 0, 1, 2}})
    EXPECT_NEAR(bytes_of(placement, Codec::kFloat16) / bytes_of(placement, Codec::kNone), 0.5, 0.01);
}

}  // namespace
}  // namespace aiacc
