// Halving and doubling on simulated ranks: compared with an exact reference and with the algorithms for shorter and
// longer payloads, and when it is chosen.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "collectives/inter/halving_doubling_allreduce.h"
#include "collectives/inter/inter_call.h"
#include "collectives/inter/inter_world_test.h"
#include "collectives/inter/recursive_doubling_allreduce.h"
#include "collectives/inter/ring_allreduce.h"
#include "collectives/inter/select.h"

namespace aiacc {
namespace {

using namespace inter_test;

constexpr Algorithm kHalving = &inter::halving_doubling_allreduce;
constexpr int kServed[] = {1, 2, 4, 8, 16};
constexpr std::size_t kSegment = 4 * inter::kSliceBytes / 4;  // elements of fp32

TEST(HalvingDoubling, AnyCount) {
  for (int ranks : kServed) {
    const auto n = static_cast<std::size_t>(ranks);
    for (std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{3}, n - 1, n, n + 1, 3 * n - 1,
                              std::size_t{1000}, std::size_t{1001}}) {
      for (bool in_place : {false, true})
        check_allreduce(kHalving, {.ranks = ranks, .count = count, .in_place = in_place});
    }
  }
}

// The last of these has slots with one segment and slots with two segments.
TEST(HalvingDoubling, AnyNumberOfSegments) {
  for (std::size_t count : {kSegment - 1, kSegment, kSegment + 1, 5 * kSegment + 3}) {
    check_allreduce(kHalving, {.ranks = 4, .count = count});
  }
  check_allreduce(kHalving, {.ranks = 4, .count = 5 * kSegment + 3, .in_place = true, .prescale = 0.5});
  check_allreduce(kHalving, {.ranks = 8, .count = 2 * kSegment + 5, .in_place = true});
}

TEST(HalvingDoubling, AnyTypeAndOperator) {
  for (int ranks : {2, 4, 8}) {
    for (int type = 0; type < kDTypes; ++type) {
      for (int op = 0; op < kReduceOps; ++op) {
        Case test{.ranks = ranks, .count = 101, .type = static_cast<DType>(type), .op = static_cast<ReduceOp>(op)};
        if (!supports(test.op, test.type)) continue;
        check_allreduce(kHalving, test);
        test.in_place = true;
        check_allreduce(kHalving, test);
      }
    }
  }
}

TEST(HalvingDoubling, ScalesEachInputOnceAndTheResultOnce) {
  for (int ranks : kServed) {
    for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
      for (bool in_place : {false, true}) {
        Case test{.ranks = ranks, .count = 37, .op = op, .in_place = in_place, .prescale = 0.5, .postscale = 4.0};
        check_allreduce(kHalving, test);
        test.prescale = 1.0;
        check_allreduce(kHalving, test);
      }
    }
  }
}

TEST(HalvingDoubling, ItsBitsAreThoseOfRecursiveDoublingOnAllRanks) {
  for (int ranks : {4, 8, 16}) {
    const Bytes expected = sum_of_random_numbers(&inter::recursive_doubling_allreduce, ranks, 3001, DType::kFloat32, 1);
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      EXPECT_TRUE(sum_of_random_numbers(kHalving, ranks, 3001, DType::kFloat32, seed) == expected) << "seed " << seed;
    }
  }
}

Task<void> perform_part(SimCluster* cluster, SimRank* self, Call call, std::vector<int> members, int position,
                        std::uint64_t first_step, Buffer buffer) {
  Team team{cluster->view(), self->rank(), self->loop(), self->compute(), nullptr, &self->mailbox()};
  Exchange exchange(self->mailbox(), cluster->view(), self->rank(), 1, call.fingerprint(), CallNote(call.summary()));
  const PartOf part{.whole = call,
                    .ranks = static_cast<int>(members.size()),
                    .exchange = &exchange,
                    .members = members,
                    .position = position,
                    .first_step = first_step};
  Operation op{team, call, 1, self->stop(), buffer, buffer, &part};
  co_await inter::halving_doubling_allreduce(op);
}

// Members of a part of a team are numbered by their positions, in any order.
TEST(HalvingDoubling, APartOfATeam) {
  const Case test{.ranks = 7, .count = 1001, .op = ReduceOp::kAvg};
  const Call call = test.call(Collective::kAllreduce);
  const std::vector<int> members = {6, 1, 4, 3};
  SimCluster cluster(3, test.ranks);
  std::vector<Bytes> inputs;
  for (int member : members) inputs.push_back(input_of(test.type, test.op, test.count, member));
  std::vector<Bytes> buffers = inputs;
  for (std::size_t position = 0; position < members.size(); ++position) {
    SimRank& rank = cluster.rank(members[position]);
    rank.start(
        perform_part(&cluster, &rank, call, members, static_cast<int>(position), 1000, buffer_of(buffers[position])));
  }
  expect_all_ended_well(cluster, test);
  const Bytes expected = reduced(inputs, call, test.count);
  for (const Bytes& bytes : buffers) EXPECT_TRUE(bytes == expected);
}

// --- what it costs, and where it is chosen -------------------------------------------------------------------------------

struct Cost {
  std::int64_t latencies;
  std::uint64_t messages;
  bool operator==(const Cost&) const = default;
};

// Over links whose latency is so long that all other costs together are less than one latency.
Cost cost_of(Algorithm algorithm, int ranks, std::size_t bytes, Reduction reduction = {}) {
  sim::FabricModel model;
  model.between_hosts = {std::chrono::seconds(1), 1'000'000'000'000, Duration(0), Duration(0)};
  SimCluster cluster(1, ranks, model);
  Call call;
  call.kind = Collective::kAllreduce;
  call.reduction = reduction;
  call.count = bytes / call.element_bytes();
  const Buffer elided{nullptr, bytes};
  for (int rank = 0; rank < ranks; ++rank) {
    cluster.rank(rank).start(perform(&cluster, &cluster.rank(rank), algorithm, call, 1, elided, elided));
  }
  expect_all_ended_well(cluster, {.ranks = ranks, .count = call.count});
  return {cluster.world().now().time_since_epoch() / std::chrono::seconds(1), cluster.fabric().messages()};
}

TEST(HalvingDoubling, TakesTwoStepsForEachDoublingOfRanks) {
  constexpr std::size_t kBytes = 96 << 10;  // no message needs an RTS
  for (const int doublings : {2, 3, 4}) {
    const int ranks = 1 << doublings;
    EXPECT_EQ(cost_of(kHalving, ranks, kBytes),
              (Cost{2 * doublings, static_cast<std::uint64_t>(2 * doublings * ranks)}));
    EXPECT_EQ(cost_of(&inter::ring_allreduce, ranks, kBytes).latencies, 2 * (ranks - 1));
  }
}

// A message with an RTS takes three latencies; two if the RTS was sent one step early.
TEST(HalvingDoubling, SendsAnEarlyRtsForAllMessagesButTheFirst) {
  constexpr int kSteps = 4;
  EXPECT_EQ(cost_of(kHalving, 4, 1 << 20).latencies, 3 + 1 + 1 + 2) << "quarters need none";
  // Also for the next segment in a slot.
  EXPECT_EQ(cost_of(kHalving, 4, 5 << 20).latencies, 3 + (2 * kSteps - 1) * 2);
}

TEST(HalvingDoubling, ServesMiddleLengthsOnPowersOfTwo) {
  constexpr std::size_t kLeast = inter::kRecursiveDoublingBytes + 4, kMost = inter::kHalvingDoublingBytes;
  for (std::size_t bytes : {kLeast, std::size_t{1} << 20, kMost}) {
    for (int ranks : {4, 8}) {
      EXPECT_EQ(cost_of(&inter::run, ranks, bytes), cost_of(kHalving, ranks, bytes)) << ranks << " ranks, " << bytes;
    }
    for (int ranks : {3, 6, 7}) {
      EXPECT_EQ(cost_of(&inter::run, ranks, bytes), cost_of(&inter::ring_allreduce, ranks, bytes)) << ranks << " ranks";
    }
  }
  EXPECT_EQ(cost_of(&inter::run, 16, kLeast), cost_of(kHalving, 16, kLeast));
  EXPECT_EQ(cost_of(&inter::run, 8, kLeast - 4), cost_of(&inter::recursive_doubling_allreduce, 8, kLeast - 4));
  EXPECT_EQ(cost_of(&inter::run, 8, kMost + 4), cost_of(&inter::ring_allreduce, 8, kMost + 4));
  // Rounded once.
  EXPECT_NE(cost_of(&inter::run, 8, 1 << 20, {.type = DType::kFloat16}),
            cost_of(kHalving, 8, 1 << 20, {.type = DType::kFloat16}));
}

// --- members that disagree -----------------------------------------------------------------------------------------------

TEST(HalvingDoubling, AnotherCallOfOneMemberIsAMismatchOnAll) {
  constexpr std::size_t kCount = 100'000;
  const auto call_of = [](Collective kind, std::size_t count) { return Case{.ranks = 8, .count = count}.call(kind); };
  // Another collective, and an allreduce by recursive doubling, by halving and by a ring.
  for (const Call& other : {call_of(Collective::kBroadcast, kCount), call_of(Collective::kAllreduce, 8),
                            call_of(Collective::kAllreduce, kCount + 1), call_of(Collective::kAllreduce, 20'000'000)}) {
    for (int odd : {0, 3, 7}) {
      SimCluster cluster(4, 8);
      for (int rank = 0; rank < 8; ++rank) {
        const Call call = rank == odd ? other : call_of(Collective::kAllreduce, kCount);
        const Buffer elided{nullptr, call.bytes()};
        cluster.rank(rank).start(perform(&cluster, &cluster.rank(rank), &inter::run, call, 1, elided, elided));
      }
      ASSERT_TRUE(cluster.run());
      for (int rank = 0; rank < 8; ++rank) {
        ASSERT_TRUE(cluster.rank(rank).error()) << rank;
        EXPECT_EQ(cluster.rank(rank).error()->code(), Code::kMismatch) << cluster.rank(rank).error()->message();
        EXPECT_NE(
            cluster.rank(rank).error()->message().find("rank " + std::to_string(odd) + " called " + other.describe()),
            std::string::npos)
            << cluster.rank(rank).error()->message();
      }
    }
  }
}

}  // namespace
}  // namespace aiacc
