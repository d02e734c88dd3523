// The costs that algorithms declare, against the time that they take on simulated ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "collectives/inter/algorithms.h"
#include "collectives/inter/inter_world_test.h"

namespace aiacc {
namespace {

using namespace inter_test;
using inter::AlgorithmInfo;
using inter::Shape;

// The simulated network and Compute (sim_fabric.h, sim_compute.h) in the terms of a Cost: nobody's core takes time to receive.
constexpr inter::NetworkModel kSimulated{
    .latency_us = 5.1, .message_us = 0.2, .bytes_per_us = 12'500, .touched_per_us = 10'000};

Shape shape_of(Collective kind, int ranks, std::size_t bytes) {
  return {.kind = kind, .ranks = ranks, .bytes = bytes, .wide_bytes = bytes};
}

double simulated_us(const AlgorithmInfo& algorithm, int ranks, std::size_t bytes) {
  SimCluster cluster(1, ranks);
  Call call;
  call.kind = algorithm.kind;
  call.reduction.type = DType::kUInt8;
  call.count = bytes;
  const Buffer elided{nullptr, bytes * static_cast<std::size_t>(ranks)};
  for (int rank = 0; rank < ranks; ++rank) {
    const bool whole = algorithm.kind == Collective::kAllreduce || algorithm.kind == Collective::kReduce ||
                       algorithm.kind == Collective::kBroadcast;
    const Buffer buffer = whole ? elided.slice(0, bytes) : elided;
    const bool has_block = algorithm.kind == Collective::kAllgather || algorithm.kind == Collective::kGather;
    const bool gets_block = algorithm.kind == Collective::kReduceScatter || algorithm.kind == Collective::kScatter;
    cluster.rank(rank).start(perform(&cluster, &cluster.rank(rank), algorithm.run, call, 1,
                                     has_block ? buffer.slice(0, bytes) : buffer,
                                     gets_block ? buffer.slice(0, bytes) : buffer));
  }
  expect_all_ended_well(cluster, {.ranks = ranks, .count = bytes});
  return std::chrono::duration<double, std::micro>(cluster.world().now().time_since_epoch()).count();
}

constexpr int kCostedRanks[] = {2, 3, 4, 8, 13, 16};
constexpr std::size_t kCostedBytes[] = {8, 1 << 10, 16 << 10, 256 << 10, 4 << 20};

// Within a factor of two either way, which is far less than the distance between the algorithms at either end of the lengths.
TEST(AlgorithmCost, PredictsTheSimulatedTime) {
  for (const inter::NamedCollective& collective : inter::named_collectives()) {
    for (const AlgorithmInfo* algorithm : inter::algorithms_of(collective.kind)) {
      for (const int ranks : kCostedRanks) {
        for (const std::size_t bytes : kCostedBytes) {
          const Shape shape = shape_of(collective.kind, ranks, bytes);
          if (!algorithm->obstacle(shape).empty()) continue;
          const double simulated = simulated_us(*algorithm, ranks, bytes);
          const double ratio = kSimulated.time_us(algorithm->cost(shape)) / simulated;
          EXPECT_GT(ratio, 0.5) << collective.name << " " << algorithm->name << ", " << ranks << " ranks, " << bytes;
          EXPECT_LT(ratio, 2.0) << collective.name << " " << algorithm->name << ", " << ranks << " ranks, " << bytes;
        }
      }
    }
  }
}

}  // namespace
}  // namespace aiacc
