// Two binary trees on simulated ranks: their shape, results compared with an exact reference, what they cost, and where they are
// chosen.
#include "collectives/inter/double_tree.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cmath>

#include "collectives/inter/algorithms.h"
#include "collectives/inter/inter_world_test.h"
#include "collectives/inter/ring_allreduce.h"
#include "collectives/inter/select.h"
#include "collectives/inter/two_trees.h"

namespace aiacc {
namespace {

using namespace inter_test;
using inter::AlgorithmInfo;
using inter::Shape;
using inter::TreeNode;
using inter::TwoTrees;

constexpr Algorithm kTreeAllreduce = &inter::double_tree_allreduce;

// --- their shape ---------------------------------------------------------------------------------------------------------

// The ranks of a subtree from left to right, and its height.
int walk(const TwoTrees& trees, int tree, int rank, std::vector<int>& ranks) {
  const TreeNode node = trees.node_of(tree, rank);
  int height = 0;
  const auto descend = [&](int child) {
    if (child < 0) return;
    EXPECT_EQ(trees.node_of(tree, child).parent, rank);
    height = std::max(height, 1 + walk(trees, tree, child, ranks));
  };
  descend(node.left);
  ranks.push_back(rank);
  descend(node.right);
  return height;
}

int children_of(const TreeNode& node) { return (node.left >= 0 ? 1 : 0) + (node.right >= 0 ? 1 : 0); }

void expect_two_trees(const TwoTrees& trees, int size) {
  for (int tree = 0; tree < TwoTrees::kTrees; ++tree) {
    std::vector<int> ranks;
    EXPECT_EQ(trees.node_of(tree, trees.root(tree)).parent, -1);
    EXPECT_EQ(walk(trees, tree, trees.root(tree), ranks), std::ceil(std::log2(size))) << size;
    std::sort(ranks.begin(), ranks.end());
    for (int rank = 0; rank < size; ++rank) ASSERT_EQ(ranks[static_cast<std::size_t>(rank)], rank) << size;
  }
  int inner_in_both = 0;
  for (int rank = 0; rank < size; ++rank) {
    const TreeNode first = trees.node_of(0, rank), second = trees.node_of(1, rank);
    const int links =
        children_of(first) + children_of(second) + (first.parent >= 0 ? 1 : 0) + (second.parent >= 0 ? 1 : 0);
    EXPECT_LE(links, 4) << rank << " of " << size;  // at most two children, and parents
    inner_in_both += first.is_leaf() || second.is_leaf() ? 0 : 1;
  }
  EXPECT_LE(inner_in_both, 1) << size;
}

TEST(TwoTrees, AnInnerNodeOfOneIsALeafOfTheOther) {
  for (int size = 2; size <= 130; ++size) {
    expect_two_trees(TwoTrees::in_order(size), size);
    for (const int root : {0, size / 2, size - 1}) {
      const TwoTrees trees = TwoTrees::from(root, size);
      expect_two_trees(trees, size);
      EXPECT_EQ(trees.root(0), root);
      EXPECT_EQ(trees.root(1), root);
    }
  }
}

TEST(TwoTrees, OfAnAllreduceHaveTheRanksInOrder) {
  for (int size = 2; size <= 130; ++size) {
    const TwoTrees trees = TwoTrees::in_order(size);
    for (int tree = 0; tree < TwoTrees::kTrees; ++tree) {
      std::vector<int> below;  // the root
      walk(trees, tree, trees.node_of(tree, trees.root(tree)).right, below);
      EXPECT_EQ(trees.root(tree), tree == 0 ? 0 : size - 1);
      for (int i = 0; i + 1 < size; ++i) ASSERT_EQ(below[static_cast<std::size_t>(i)], tree == 0 ? i + 1 : i);
    }
  }
}

// --- results -------------------------------------------------------------------------------------------------------------

TEST(DoubleTree, AnyCountOnAnyNumberOfRanks) {
  for (int ranks = 1; ranks <= 17; ++ranks) {
    for (std::size_t count : {0, 1, 2, 3, 1000, 1001}) {
      for (bool in_place : {false, true})
        check_allreduce(kTreeAllreduce, {.ranks = ranks, .count = count, .in_place = in_place});
    }
  }
}

// Of the last, more chunks than there are slots.
TEST(DoubleTree, AnyNumberOfChunks) {
  for (std::size_t count : {20'001, 100'003, 1'300'001})
    check_allreduce(kTreeAllreduce, {.ranks = 5, .count = count, .in_place = count % 2 == 0, .prescale = 0.5});
  check_allreduce(kTreeAllreduce, {.ranks = 2, .count = 2'500'001});
  check_allreduce(kTreeAllreduce, {.ranks = 64, .count = 100'001});
}

TEST(DoubleTree, AnyTypeOperatorAndScale) {
  for (int ranks : {2, 3, 6}) {
    for (int type = 0; type < kDTypes; ++type) {
      for (int op = 0; op < kReduceOps; ++op) {
        Case test{.ranks = ranks, .count = 101, .type = static_cast<DType>(type), .op = static_cast<ReduceOp>(op)};
        if (!supports(test.op, test.type)) continue;
        check_allreduce(kTreeAllreduce, test);
        test.in_place = true;
        check_allreduce(kTreeAllreduce, test);
        const bool scales = test.type == DType::kFloat32 || test.type == DType::kFloat16;
        if (!scales || (test.op != ReduceOp::kSum && test.op != ReduceOp::kAvg)) continue;
        test.prescale = 0.5, test.postscale = 4.0;
        check_allreduce(kTreeAllreduce, test);
      }
    }
  }
}

TEST(DoubleTree, AllRanksHaveTheSameBitsInEveryRun) {
  for (const DType type : {DType::kFloat32, DType::kFloat16}) {
    const Bytes expected = sum_of_random_numbers(kTreeAllreduce, 9, 30'001, type, 1);
    for (std::uint64_t seed = 2; seed <= 5; ++seed)
      EXPECT_TRUE(sum_of_random_numbers(kTreeAllreduce, 9, 30'001, type, seed) == expected) << "seed " << seed;
  }
}

std::vector<Bytes> after(Collective kind, Algorithm algorithm, const Case& test, const Reduction& reduction,
                         std::vector<Bytes> buffers) {
  SimCluster cluster(1, test.ranks);
  Call call = test.call(kind);
  call.reduction = reduction;
  for (int rank = 0; rank < test.ranks; ++rank) {
    const Buffer buffer = buffer_of(buffers[static_cast<std::size_t>(rank)]);
    const bool gets = kind != Collective::kReduce || rank == test.root;
    cluster.rank(rank).start(
        perform(&cluster, &cluster.rank(rank), algorithm, call, 1, buffer, gets ? buffer : Buffer{}));
  }
  expect_all_ended_well(cluster, test);
  return buffers;
}

// 2048 + 1 is 2048 in fp16: a partial sum that was rounded would lose each 1.
TEST(DoubleTree, RoundsHalvesOnce) {
  std::vector<Bytes> inputs;
  for (int rank = 0; rank < 3; ++rank) {
    Bytes& bytes = inputs.emplace_back(8 * 2);
    for (int i = 0; i < 8; ++i) {
      const bool large = rank == (i < 4 ? 2 : 1);  // the inner node of this half's tree
      const std::uint16_t half = static_cast<std::uint16_t>(reference::float_to_half(large ? 2048 : 1));
      std::memcpy(bytes.data() + 2 * i, &half, 2);
    }
  }
  const Case test{.ranks = 3, .count = 8, .type = DType::kFloat16};
  for (const Bytes& bytes : after(Collective::kAllreduce, kTreeAllreduce, test, {.type = DType::kFloat16}, inputs)) {
    for (int i = 0; i < 8; ++i) {
      std::uint16_t half = 0;
      std::memcpy(&half, bytes.data() + 2 * i, 2);
      EXPECT_EQ(half, reference::float_to_half(2050)) << i;
    }
  }
}

TEST(DoubleTree, CombinesOperandsInTheOrderOfTheRanks) {
  const UserOp op{.function = &compose, .record_bytes = sizeof(Affine), .name = "compose"};
  for (int ranks = 2; ranks <= 17; ++ranks) {
    constexpr std::size_t kCount = 7;
    std::vector<Bytes> inputs;
    Bytes expected;
    for (std::uint32_t rank = 0; rank < static_cast<std::uint32_t>(ranks); ++rank) {
      Bytes& bytes = inputs.emplace_back(kCount * sizeof(Affine));
      for (std::uint32_t i = 0; i < kCount; ++i) {
        const Affine map{2 * rank + 3, rank * 7 + i};
        std::memcpy(bytes.data() + i * sizeof(Affine), &map, sizeof map);
      }
      if (rank == 0) {
        expected = bytes;
      } else {
        compose(expected.data(), bytes.data(), kCount, nullptr);
      }
    }
    Reduction reduction{.type = DType::kRecord};
    reduction.user = &op;
    const Case test{.ranks = ranks, .count = kCount};
    for (const Bytes& bytes : after(Collective::kAllreduce, kTreeAllreduce, test, reduction, inputs))
      EXPECT_TRUE(bytes == expected) << ranks << " ranks";
  }
}

TEST(DoubleTree, ReducesToAnyRootAndBroadcastsFromIt) {
  for (int ranks = 1; ranks <= 17; ++ranks) {
    for (const int root : {0, ranks / 2, ranks - 1}) {
      for (const DType type : {DType::kInt32, DType::kFloat16}) {
        for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{20'001}}) {
          const Case test{.ranks = ranks, .count = count, .type = type, .op = ReduceOp::kSum, .root = root};
          const Call call = test.call(Collective::kReduce);
          const auto at = static_cast<std::size_t>(root);
          std::vector<Bytes> inputs;
          for (int rank = 0; rank < ranks; ++rank) inputs.push_back(input_of(type, test.op, count, rank));
          const auto sums = after(Collective::kReduce, &inter::double_tree_reduce, test, call.reduction, inputs);
          EXPECT_TRUE(sums[at] == reduced(inputs, call, count)) << test.text();
          for (const Bytes& bytes :
               after(Collective::kBroadcast, &inter::double_tree_broadcast, test, call.reduction, inputs))
            EXPECT_TRUE(bytes == inputs[at]) << test.text();
        }
      }
    }
  }
}

// --- what they cost, and where they are chosen ---------------------------------------------------------------------------

struct TreeCost {
  double latencies;
  std::uint64_t messages;
};

// Over links whose latency is so long that all other costs together are less than one latency.
TreeCost cost_in_latencies(const AlgorithmInfo& algorithm, int ranks, std::size_t bytes) {
  sim::FabricModel model;
  model.between_hosts = {std::chrono::seconds(1), 1'000'000'000'000, Duration(0), Duration(0)};
  SimCluster cluster(1, ranks, model);
  Call call = Case{.ranks = ranks, .count = bytes / 4}.call(algorithm.kind);
  const Buffer elided{nullptr, bytes};
  for (int rank = 0; rank < ranks; ++rank)
    cluster.rank(rank).start(perform(&cluster, &cluster.rank(rank), algorithm.run, call, 1, elided, elided));
  expect_all_ended_well(cluster, {.ranks = ranks, .count = call.count});
  return {std::floor(aiacc::seconds(cluster.world().now().time_since_epoch())), cluster.fabric().messages()};
}

TEST(DoubleTree, TakesALatencyForEachLevelAndDirection) {
  for (const int ranks : {2, 3, 4, 5, 8, 9, 17, 64}) {
    const double levels = std::ceil(std::log2(ranks));
    const auto edges = static_cast<std::uint64_t>(2 * (ranks - 1));
    for (const AlgorithmInfo* each :
         {&inter::kDoubleTreeAllreduceInfo, &inter::kDoubleTreeReduceInfo, &inter::kDoubleTreeBroadcastInfo}) {
      const bool both = each->kind == Collective::kAllreduce;
      const TreeCost cost = cost_in_latencies(*each, ranks, 16 << 10);
      EXPECT_EQ(cost.latencies, (both ? 2 : 1) * levels) << ranks;
      EXPECT_EQ(cost.messages, (both ? 2 : 1) * edges) << ranks;
      // Chunks with an RTS, which all ranks send at once.
      EXPECT_EQ(cost_in_latencies(*each, ranks, 64 << 20).latencies >= (both ? 2 : 1) * levels + 2, true) << ranks;
    }
  }
}

double tree_simulated_us(const AlgorithmInfo& algorithm, const Shape& shape) {
  SimCluster cluster(1, shape.ranks);
  Call call;
  call.kind = algorithm.kind;
  call.reduction.type = shape.narrows ? DType::kFloat16 : DType::kUInt8;
  call.count = shape.bytes / size_of(call.reduction.type);
  const Buffer elided{nullptr, shape.bytes};
  for (int rank = 0; rank < shape.ranks; ++rank) {
    cluster.rank(rank).start(perform(&cluster, &cluster.rank(rank), algorithm.run, call, 1, elided, elided));
  }
  expect_all_ended_well(cluster, {.ranks = shape.ranks, .count = call.count});
  return std::chrono::duration<double, std::micro>(cluster.world().now().time_since_epoch()).count();
}

// Whether it would serve such calls if there were no trees.
bool would_serve(const AlgorithmInfo& algorithm, const Shape& shape) {
  if (!algorithm.obstacle(shape).empty() || algorithm.name == "double-tree") return false;
  if (algorithm.name == "recursive-doubling") return shape.bytes <= inter::kRecursiveDoublingBytes;
  return shape.narrows || (algorithm.name != "ordered" && algorithm.name != "one-round");
}

void expect_trees_to_be_faster(const Shape& shape) {
  const AlgorithmInfo& chosen = inter::usual_algorithm(shape);
  if (chosen.name != "double-tree") return;
  const double tree = tree_simulated_us(chosen, shape);
  const std::string call = fmt::format("{}{} of {} KiB among {}", inter::name_of(shape.kind),
                                       shape.narrows ? " in fp16" : "", shape.bytes >> 10, shape.ranks);
  std::string others;
  for (const AlgorithmInfo* each : inter::algorithms_of(shape.kind)) {
    if (!would_serve(*each, shape)) continue;
    const double us = tree_simulated_us(*each, shape);
    others += fmt::format(", {} {:.0f}", each->name, us);
    EXPECT_LT(tree, us) << call << ": " << each->name;
  }
  fmt::print("  {}: double-tree {:.0f}{}\n", call, tree, others);
}

TEST(DoubleTree, IsChosenWhereItIsFasterThanWhatWouldServeWithoutIt) {
  fmt::print("  virtual microseconds, 100 Gbit/s and 5 us\n");
  for (const Collective kind : {Collective::kAllreduce, Collective::kReduce, Collective::kBroadcast}) {
    for (const bool narrows : {false, true}) {
      if (narrows && kind == Collective::kBroadcast) continue;
      for (const int ranks : {2, 3, 4, 8, 12, 16, 64, 100}) {
        for (std::size_t bytes = 16 << 10; bytes <= 16 << 20; bytes *= 4)
          expect_trees_to_be_faster({.kind = kind,
                                     .ranks = ranks,
                                     .bytes = bytes,
                                     .wide_bytes = bytes * (narrows ? 2 : 1),
                                     .narrows = narrows});
      }
    }
  }
}

// The gain among many ranks that are no power of two, where a ring would serve.
TEST(DoubleTree, OfManyRanksIsSeveralTimesAsFastAsARing) {
  for (const std::size_t bytes : {std::size_t{256} << 10, std::size_t{1} << 20}) {
    const Shape shape{.kind = Collective::kAllreduce, .ranks = 100, .bytes = bytes, .wide_bytes = bytes};
    ASSERT_EQ(inter::usual_algorithm(shape).name, "double-tree");
    EXPECT_LT(3 * tree_simulated_us(inter::kDoubleTreeAllreduceInfo, shape),
              tree_simulated_us(inter::kRingAllreduceInfo, shape));
  }
}

// A link carries the payload once, and that is nearly all the time.
TEST(DoubleTree, ALongBroadcastTakesLittleMoreThanOneTransfer) {
  constexpr std::size_t kBytes = 64 << 20;
  for (const int ranks : {4, 16, 128}) {
    const Shape shape{.kind = Collective::kBroadcast, .ranks = ranks, .bytes = kBytes, .wide_bytes = kBytes};
    EXPECT_LT(tree_simulated_us(inter::kDoubleTreeBroadcastInfo, shape), 1.12 * kBytes / 12'500.0) << ranks;
  }
}

// --- members that disagree -----------------------------------------------------------------------------------------------

TEST(DoubleTree, AnotherCallOfOneMemberIsAMismatchOnAll) {
  constexpr int kRanks = 12;
  constexpr std::size_t kCount = 250'000;
  const auto call_of = [](Collective kind, std::size_t count) {
    return Case{.ranks = kRanks, .count = count}.call(kind);
  };
  ASSERT_EQ(inter::usual_algorithm(
                {.kind = Collective::kAllreduce, .ranks = kRanks, .bytes = 4 * kCount, .wide_bytes = 4 * kCount})
                .name,
            "double-tree");
  for (const Call& other : {call_of(Collective::kBroadcast, kCount), call_of(Collective::kAllreduce, 8),
                            call_of(Collective::kAllreduce, kCount + 1)}) {
    for (int odd : {0, 3, kRanks - 1}) {
      SimCluster cluster(4, kRanks);
      for (int rank = 0; rank < kRanks; ++rank) {
        const Call call = rank == odd ? other : call_of(Collective::kAllreduce, kCount);
        const Buffer elided{nullptr, call.bytes()};
        cluster.rank(rank).start(perform(&cluster, &cluster.rank(rank), &inter::run, call, 1, elided, elided));
      }
      ASSERT_TRUE(cluster.run());
      for (int rank = 0; rank < kRanks; ++rank) {
        ASSERT_TRUE(cluster.rank(rank).error()) << rank;
        EXPECT_EQ(cluster.rank(rank).error()->code(), Code::kMismatch) << cluster.rank(rank).error()->message();
      }
    }
  }
}

}  // namespace
}  // namespace aiacc
