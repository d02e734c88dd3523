// Blocks between hosts, short and long (combine_blocks.h): results on both sides of the limit, and that only one rank of each host
// exchanges messages with others for short ones.
#include "collectives/hier/combine_blocks.h"

#include <algorithm>

#include "collectives/hier/hier_world_test.h"

namespace aiacc {
namespace {

using namespace hier_test;

constexpr Collective kKinds[] = {Collective::kAlltoall, Collective::kGather, Collective::kScatter};

// The most elements of fp32 in a block that is combined.
std::size_t most_combined(Collective kind, std::size_t most_on_a_host) {
  return hier::longest_combined(kind, most_on_a_host) / sizeof(float);
}

TEST(HierCombinedBlocks, TheLimitGrowsWithTheMessagesThatAreSavedUpToOneOfLeaders) {
  EXPECT_EQ(hier::longest_combined(Collective::kAlltoall, 2), 1024u);
  EXPECT_EQ(hier::longest_combined(Collective::kAlltoall, 3), 910u);
  EXPECT_EQ(hier::longest_combined(Collective::kGather, 2), 512u);
  EXPECT_EQ(hier::longest_combined(Collective::kScatter, 2), 8192u);
  for (const Collective kind : kKinds) {
    for (const std::size_t most : {2, 3, 8, 64}) {
      EXPECT_GE(hier::longest_combined(kind, most), sizeof(float));
      EXPECT_LE(hier::longest_combined(kind, most) * hier::blocks_of_hosts(kind, most), hier::kLeadersBytes);
    }
  }
}

class HierCombinedBlocks : public ::testing::TestWithParam<Placement> {};
INSTANTIATE_TEST_SUITE_P(Placements, HierCombinedBlocks, ::testing::ValuesIn(kPlacements),
                         [](const auto& placement) { return text(placement.param); });

TEST_P(HierCombinedBlocks, ArriveOnBothSidesOfTheLimit) {
  std::vector<std::size_t> on_host(GetParam().size());
  for (const std::uint32_t host : GetParam()) ++on_host[host];
  const std::size_t most = *std::max_element(on_host.begin(), on_host.end());
  std::vector<Case> cases;
  for (const Collective kind : kKinds) {
    const std::size_t limit = most > 1 ? most_combined(kind, most) : 100;
    for (const std::size_t count : {std::size_t{1}, limit, limit + 1}) {
      for (int root = 0; root < static_cast<int>(GetParam().size()); ++root) {
        const Call call = call_of(kind, count, DType::kFloat32, ReduceOp::kSum, root);
        for (const bool in_place : {false, true}) {
          cases.push_back({call, root % 2 == 0 ? Memory::kMixed : Memory::kPrivate, in_place});
        }
        cases.push_back({call, Memory::kPrivate, true, {}, true});
      }
    }
  }
  run_cases(GetParam(), cases);
  run_cases(GetParam(), cases, Through::kMessages);
}

// Whether a call of blocks with so many fp32 ends well where only the root and the first ranks of other hosts reach each other.
bool ends_between_representatives(Collective kind, std::size_t count, int root, const Placement& placement) {
  SimCluster cluster(1, placement);
  std::deque<Rank> ranks;
  std::deque<Bytes> buffers;
  for (int rank = 0; rank < cluster.size(); ++rank) {
    const Call call = call_of(kind, count, DType::kFloat32, ReduceOp::kSum, root);
    const hier_test::Shape shape = shape_of(call, rank, cluster.size());
    ranks.emplace_back(cluster, rank);
    Bytes& send = buffers.emplace_back(shape.send * sizeof(float));
    Bytes& recv = buffers.emplace_back(shape.recv * sizeof(float));
    cluster.rank(rank).start(open_and_perform(&ranks.back(), call, exact::buffer_of(send), exact::buffer_of(recv)));
  }
  const auto represents = [&](int rank) {
    const bool beside_root =
        cluster.view()->host_of(rank) == cluster.view()->host_of(root) && kind != Collective::kAlltoall;
    return beside_root ? rank == root : cluster.view()->local_rank_of(rank) == 0;
  };
  for (int rank = 0; rank < cluster.size(); ++rank) {
    for (int other = 0; other < rank; ++other) {
      if (placement[static_cast<std::size_t>(rank)] == placement[static_cast<std::size_t>(other)]) continue;
      if (!represents(rank) || !represents(other)) cluster.fabric().cut(rank, other);
    }
  }
  EXPECT_TRUE(cluster.run());
  return std::none_of(ranks.begin(), ranks.end(), [](Rank& rank) { return rank.rank.error().has_value(); });
}

TEST(HierCombinedBlocksLinks, OnlyOneRankOfEachHostExchangesMessages) {
  const Placement placement = {0, 0, 1, 2, 2};
  for (const Collective kind : kKinds) {
    for (const int root : {0, 2, 4}) {
      EXPECT_TRUE(ends_between_representatives(kind, most_combined(kind, 2), root, placement));
      EXPECT_FALSE(ends_between_representatives(kind, most_combined(kind, 2) + 1, root, placement));
    }
  }
}

}  // namespace
}  // namespace aiacc
