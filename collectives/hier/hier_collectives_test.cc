// Every collective of groups over several hosts against the slow reference, on simulated ranks in every kind of placement:
// even, uneven, in turn, and one rank a host, and with either LocalTeam. Counts stand around the edges of leaders, shards
// and slices.
#include <cmath>
#include <tuple>

#include "collectives/hier/hier_world_test.h"

namespace aiacc {
namespace {

using namespace hier_test;

constexpr Collective kCollectives[] = {Collective::kAllreduce, Collective::kReduce,        Collective::kBroadcast,
                                       Collective::kAllgather, Collective::kReduceScatter, Collective::kBarrier,
                                       Collective::kAlltoall,  Collective::kGather,        Collective::kScatter};

class HierCollectives : public ::testing::TestWithParam<std::tuple<Placement, Through>> {
 protected:
  static const Placement& placement() { return std::get<0>(GetParam()); }
  static Through through() { return std::get<1>(GetParam()); }
};
std::string name_of_setup(const testing::TestParamInfo<std::tuple<Placement, Through>>& setup) {
  const auto& [placement, through] = setup.param;
  return text(placement) + (through == Through::kMessages ? "Messages" : "");
}
INSTANTIATE_TEST_SUITE_P(Placements, HierCollectives,
                         ::testing::Combine(::testing::ValuesIn(kPlacements),
                                            ::testing::Values(Through::kSharedMemory)),
                         name_of_setup);
INSTANTIATE_TEST_SUITE_P(OverMessages, HierCollectives,
                         ::testing::Combine(::testing::Values(Placement{0, 0, 1, 1}, Placement{0, 1, 0, 1, 0, 1},
                                                              Placement{0, 0, 0, 0, 1, 2, 2},
                                                              Placement{2, 0, 1, 0, 0, 2, 1, 2}),
                                            ::testing::Values(Through::kMessages)),
                         name_of_setup);

TEST_P(HierCollectives, EveryCollectiveCountMemoryAndRoot) {
  const int size = static_cast<int>(placement().size());
  std::vector<Case> cases;
  for (const Collective kind : kCollectives) {
    for (const std::size_t count : {0, 1, 3, 100, 4'096, 4'097, 33'001}) {
      for (const Memory memory : {Memory::kPrivate, Memory::kShared, Memory::kMixed}) {
        for (const bool in_place : {false, true}) {
          const int root =
              static_cast<int>((count + static_cast<std::size_t>(memory)) % static_cast<std::size_t>(size));
          cases.push_back({call_of(kind, count, DType::kFloat32, ReduceOp::kSum, root), memory, in_place});
        }
      }
    }
  }
  for (int root = 0; root < size; ++root) {
    cases.push_back({call_of(Collective::kBroadcast, 10'000, DType::kInt32, ReduceOp::kSum, root)});
    cases.push_back({call_of(Collective::kReduce, 10'000, DType::kInt32, ReduceOp::kSum, root)});
  }
  run_cases(placement(), cases, through());
}

TEST_P(HierCollectives, EachRankIsInPlaceOrNot) {
  std::vector<Case> cases;
  for (const Collective kind : kCollectives) {
    for (const std::size_t count : {100, 70'000}) {
      cases.push_back({call_of(kind, count), Memory::kPrivate, true, {}, true});
    }
  }
  run_cases(placement(), cases, through());
}

TEST_P(HierCollectives, EveryTypeAndOperator) {
  std::vector<Case> cases;
  for (int type = 0; type < kDTypes; ++type) {
    for (int op = 0; op < kReduceOps; ++op) {
      if (!supports(static_cast<ReduceOp>(op), static_cast<DType>(type))) continue;
      for (const std::size_t count : {7, 20'001}) {
        for (const Collective kind : {Collective::kAllreduce, Collective::kReduce, Collective::kReduceScatter}) {
          if (count > 1000 && op % 3 != static_cast<int>(kind) % 3) continue;
          cases.push_back({call_of(kind, count, static_cast<DType>(type), static_cast<ReduceOp>(op))});
        }
      }
    }
  }
  run_cases(placement(), cases, through());
}

TEST_P(HierCollectives, InputsAreScaledOnceAndResultsOnce) {
  std::vector<Case> cases;
  for (const Collective kind : {Collective::kAllreduce, Collective::kReduce, Collective::kReduceScatter}) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
      for (const std::size_t count : {37, 9'001}) {
        for (const bool in_place : {false, true}) {
          Case test{call_of(kind, count, DType::kFloat32, op), Memory::kPrivate, in_place};
          test.call.reduction.prescale = 0.5;
          cases.push_back(test);
          test.call.reduction.postscale = 4.0;
          cases.push_back(test);
          test.call.reduction.prescale = 1.0;
          cases.push_back(test);
        }
      }
    }
  }
  run_cases(placement(), cases, through());
}

Bytes noise(std::size_t count, int rank, DType type) {
  sim::Random random(static_cast<std::uint64_t>(rank) + 1);
  Bytes bytes(count * size_of(type));
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = static_cast<float>(static_cast<double>(random.next() % 2'000'001) / 1e5 - 10.0);
    const std::uint32_t word =
        type == DType::kFloat32 ? std::bit_cast<std::uint32_t>(value) : reference::float_to_half(value);
    std::memcpy(bytes.data() + i * size_of(type), &word, size_of(type));
  }
  return bytes;
}

TEST_P(HierCollectives, EveryRankHasTheSameBitsWhateverTheOrderOfArrival) {
  for (const DType type : {DType::kFloat32, DType::kFloat16}) {
    for (const std::size_t count : {11, 30'001}) {
      Bytes first;
      for (std::uint64_t seed = 1; seed <= 4; ++seed) {
        SimCluster cluster(seed, placement());
        std::deque<Rank> ranks;
        std::deque<Bytes> buffers;
        for (int rank = 0; rank < cluster.size(); ++rank) {
          ranks.emplace_back(cluster, rank, through());
          buffers.push_back(noise(count, rank, type));
        }
        for (Rank& rank : ranks) {
          const Buffer buffer = exact::buffer_of(buffers[static_cast<std::size_t>(rank.rank.rank())]);
          const Call call = call_of(Collective::kAllreduce, count, type);
          rank.rank.start(open_and_perform(&rank, call, buffer, buffer));
        }
        ASSERT_TRUE(cluster.run());
        if (seed == 1) first = buffers[0];
        for (const Bytes& bytes : buffers) ASSERT_TRUE(bytes == first) << "seed " << seed;
      }
    }
  }
}

// 16-bit floats whose sums lose digits at each rounding but the last: a one and small numbers of any sign.
Bytes lossy(DType type, std::size_t count, int rank) {
  sim::Random random(static_cast<std::uint64_t>(rank) + 7);
  Bytes bytes(count * 2);
  for (std::size_t i = 0; i < count; ++i) {
    const double part = static_cast<double>(random.next() % 2'001) / 1e3 - 0.7;
    const bool large = i % 4 == static_cast<std::size_t>(rank) % 4;
    const auto value = static_cast<float>(large ? 1.0 : part * (type == DType::kFloat16 ? 0x1p-10 : 0x1p-7));
    const std::uint16_t word =
        type == DType::kFloat16 ? reference::float_to_half(value) : reference::float_to_bfloat(value);
    std::memcpy(bytes.data() + i * 2, &word, 2);
  }
  return bytes;
}

double value_of(DType type, const std::byte* at) {
  std::uint16_t word;
  std::memcpy(&word, at, 2);
  return static_cast<double>(type == DType::kFloat16 ? reference::half_to_float(word)
                                                     : reference::bfloat_to_float(word));
}

// Half a unit of the last digit of `exact`, and what as many additions in fp32 may lose.
double one_rounding(DType type, double exact, std::size_t ranks) {
  const int digits = type == DType::kFloat16 ? 10 : 7;
  const double scale = std::max(std::fabs(exact), 0x1p-14);
  return std::ldexp(0.5, std::ilogb(scale) - digits) + static_cast<double>(ranks + 2) * 0x1p-23 * (scale + 8.0);
}

void expect_one_rounding(const Placement& placement, Through through, const Call& call) {
  SCOPED_TRACE(text(placement) + ": " + call.describe());
  const std::size_t ranks = placement.size();
  const DType type = call.reduction.type;
  SimCluster cluster(1, placement);
  std::deque<Rank> members;
  std::vector<Bytes> inputs(ranks), outputs(ranks);
  for (int rank = 0; rank < cluster.size(); ++rank) {
    const Shape shape = shape_of(call, rank, cluster.size());
    const auto at = static_cast<std::size_t>(rank);
    inputs[at] = lossy(type, shape.send, rank);
    outputs[at].resize(shape.recv * 2);
    members.emplace_back(cluster, rank, through);
    members.back().rank.start(
        open_and_perform(&members.back(), call, exact::buffer_of(inputs[at]), exact::buffer_of(outputs[at])));
  }
  ASSERT_TRUE(cluster.run());
  for (int rank = 0; rank < cluster.size(); ++rank) {
    ASSERT_FALSE(cluster.rank(rank).error()) << cluster.rank(rank).error()->message();
    const Bytes& output = outputs[static_cast<std::size_t>(rank)];
    const std::size_t first = call.kind == Collective::kReduceScatter ? shape_of(call, rank, cluster.size()).own : 0;
    for (std::size_t i = 0; i < output.size() / 2; ++i) {
      double sum = 0;
      for (const Bytes& input : inputs) {
        sum += call.reduction.prescale * value_of(type, input.data() + 2 * (first + i));
      }
      if (call.reduction.op == ReduceOp::kAvg) sum /= static_cast<double>(ranks);
      sum *= call.reduction.postscale;
      ASSERT_NEAR(value_of(type, output.data() + 2 * i), sum, one_rounding(type, sum, ranks)) << "element " << i;
    }
    if (call.kind != Collective::kAllreduce) continue;
    ASSERT_TRUE(output == outputs[0]) << "rank " << rank;
  }
}

TEST_P(HierCollectives, SumsOfHalvesAreRoundedOnce) {
  const int last = static_cast<int>(placement().size()) - 1;
  for (const DType type : {DType::kFloat16, DType::kBFloat16}) {
    for (const Collective kind : {Collective::kAllreduce, Collective::kReduce, Collective::kReduceScatter}) {
      for (const std::size_t count : {5, 3'000, 20'001, 120'001}) {
        Call call = call_of(kind, count, type, ReduceOp::kSum, count % 2 == 0 ? 0 : last);
        expect_one_rounding(placement(), through(), call);
        call.reduction.op = ReduceOp::kAvg;
        call.reduction.prescale = 0.3;
        call.reduction.postscale = 1.7;
        if (count == 5 || count == 20'001) expect_one_rounding(placement(), through(), call);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(HierCollectivesSlices, LongSumsOfHalvesAreRoundedOnce) {
  constexpr std::size_t kSlice = hier::kSliceBytes / 2;
  for (const Placement& placement : {Placement{0, 0, 1, 1}, Placement{0, 0, 0, 1}}) {
    expect_one_rounding(placement, Through::kSharedMemory,
                        call_of(Collective::kAllreduce, 9 * kSlice + 3, DType::kBFloat16));
    expect_one_rounding(placement, Through::kSharedMemory,
                        call_of(Collective::kReduce, 5 * kSlice + 1, DType::kFloat16));
    expect_one_rounding(placement, Through::kSharedMemory,
                        call_of(Collective::kReduceScatter, 5 * kSlice / 2 + 1, DType::kFloat16));
  }
}

// Partial sums of S bytes travel in 2S, results in S: 1.5 times what fp32 sums of as many bytes cost.
TEST(HierCollectivesCost, HalvesTravelHalfAsFarAgain) {
  const auto bytes_of = [](DType type) {
    SimCluster cluster(1, Placement{0, 0, 1, 1});
    std::deque<Rank> ranks;
    std::deque<Bytes> buffers;
    for (int rank = 0; rank < cluster.size(); ++rank) {
      ranks.emplace_back(cluster, rank);
      buffers.emplace_back(1 << 20);
      const Buffer buffer = exact::buffer_of(buffers.back());
      const Call call = call_of(Collective::kAllreduce, buffer.bytes / size_of(type), type);
      cluster.rank(rank).start(open_and_perform(&ranks.back(), call, buffer, buffer));
    }
    EXPECT_TRUE(cluster.run());
    return static_cast<double>(cluster.fabric().bytes());
  };
  EXPECT_NEAR(bytes_of(DType::kBFloat16) / bytes_of(DType::kFloat32), 1.5, 0.05);
}

TEST(HierCollectivesCost, TwoRanksOfTwoHostsSendOneMessageEach) {
  SimCluster cluster(1, Placement{0, 1});
  std::deque<Rank> ranks;
  std::deque<Bytes> buffers;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back(cluster, rank);
    buffers.push_back(input_of(DType::kFloat32, ReduceOp::kSum, 2, rank));
    const Buffer buffer = exact::buffer_of(buffers.back());
    cluster.rank(rank).start(open_and_perform(&ranks.back(), call_of(Collective::kAllreduce, 2), buffer, buffer));
  }
  ASSERT_TRUE(cluster.run());
  EXPECT_EQ(cluster.fabric().messages(), 2u);
  EXPECT_LT(cluster.world().now().time_since_epoch(), std::chrono::microseconds(8)) << "one latency of 5 µs, not two";
}

}  // namespace
}  // namespace aiacc
