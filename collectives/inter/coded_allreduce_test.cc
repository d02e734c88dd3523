// Allreduce with encoded messages on simulated ranks: its error beside that of the numbers' exact sum, on few and on many ranks; what
// overflows; equal bits on all; the bytes that travel; and that the work of encoding and adding hides behind them.
#include "collectives/inter/coded_allreduce.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <vector>

#include "base/data/codec.h"
#include "collectives/inter/inter_call.h"
#include "collectives/inter/inter_world_test.h"
#include "collectives/inter/select.h"

namespace aiacc {
namespace {

using namespace inter_test;
using Values = std::vector<float>;

Task<void> with_codec(Operation& op) {
  op.call.reduction.codec = Codec::kFloat16;
  return inter::coded_allreduce(op);
}
Task<void> with_bfloat16(Operation& op) {
  op.call.reduction.codec = Codec::kBFloat16;
  return inter::coded_allreduce(op);
}

// Sums of small whole numbers are exact in fp16.
TEST(CodedAllreduce, AnyCountAndNumberOfSegments) {
  for (const int ranks : {2, 3, 5, 8}) {
    const std::size_t segment = static_cast<std::size_t>(ranks) * inter::kSliceBytes / sizeof(float);
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{4097}, std::size_t{70'000}, 2 * segment + 5}) {
      for (const bool in_place : {false, true})
        check_allreduce(&with_codec, {.ranks = ranks, .count = count, .in_place = in_place});
      if (ranks <= 3) check_allreduce(&with_bfloat16, {.ranks = ranks, .count = count, .in_place = true});
    }
  }
}

TEST(CodedAllreduce, ScalesEachInputOnceAndTheResultOnce) {
  for (const bool in_place : {false, true}) {
    check_allreduce(&with_codec,
                    {.ranks = 3, .count = 20'000, .in_place = in_place, .prescale = 0.5, .postscale = 4.0});
    check_allreduce(&with_codec,
                    {.ranks = 4, .count = 20'000, .op = ReduceOp::kAvg, .in_place = in_place, .prescale = 0.5});
  }
}

// Each rank's number for an element: between −1 and 1, times `scale`.
Values noise(int rank, std::size_t count, double scale) {
  sim::Random random(static_cast<std::uint64_t>(rank) + 1);
  Values values(count);
  for (float& value : values)
    value = static_cast<float>(scale * (static_cast<double>(random.next() % 2'000'001) / 1e6 - 1.0));
  return values;
}

struct Result {
  std::vector<Values> of_ranks;
  std::uint64_t bytes = 0;
};

Result run(std::vector<Values> inputs, Codec codec, Algorithm algorithm) {
  const int ranks = static_cast<int>(inputs.size());
  SimCluster cluster(5, ranks);
  Call call;
  call.kind = Collective::kAllreduce;
  call.count = inputs[0].size();
  call.reduction.codec = codec;
  Result result{std::move(inputs)};
  for (int rank = 0; rank < ranks; ++rank) {
    Values& mine = result.of_ranks[static_cast<std::size_t>(rank)];
    const Buffer buffer{reinterpret_cast<std::byte*>(mine.data()), mine.size() * sizeof(float)};
    cluster.rank(rank).start(perform(&cluster, &cluster.rank(rank), algorithm, call, 1, buffer, buffer));
  }
  expect_all_ended_well(cluster, {.ranks = ranks, .count = call.count});
  for (const Values& one : result.of_ranks) {
    EXPECT_EQ(std::memcmp(one.data(), result.of_ranks[0].data(), one.size() * sizeof(float)), 0)
        << "all ranks have equal bits";
  }
  result.bytes = cluster.fabric().bytes();
  return result;
}

// Relative, of the root mean squares.
double error_on(int ranks, double scale, Algorithm algorithm = &with_codec) {
  constexpr std::size_t kCount = 66'000;
  std::vector<Values> inputs;
  std::vector<double> exact(kCount);
  for (int rank = 0; rank < ranks; ++rank) {
    inputs.push_back(noise(rank, kCount, scale));
    for (std::size_t i = 0; i < kCount; ++i) exact[i] += static_cast<double>(inputs.back()[i]);
  }
  const Result result = run(std::move(inputs), Codec::kFloat16, algorithm);
  double wrong = 0, right = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    const double sum = static_cast<double>(result.of_ranks[0][i]);
    EXPECT_TRUE(std::isfinite(sum));
    wrong += (sum - exact[i]) * (sum - exact[i]);
    right += exact[i] * exact[i];
  }
  return std::sqrt(wrong / right);
}

// docs of coded_allreduce.h: two roundings. fp16 has a relative error of 2^-11 at most.
TEST(CodedAllreduce, HasTheSameErrorOnAnyNumberOfRanksAndAtAnyMagnitude) {
  const double of_two = error_on(2, 1.0);
  EXPECT_LT(of_two, std::ldexp(1.0, -11));
  EXPECT_GT(of_two, std::ldexp(1.0, -14));
  for (const int ranks : {3, 16, 64}) EXPECT_LT(error_on(ranks, 1.0), 1.3 * of_two) << ranks;
  for (const double scale : {1e-30, 1e-9, 1e6, 1e36}) EXPECT_LT(error_on(4, scale), 1.3 * of_two) << scale;
}

TEST(CodedAllreduce, HasTheSameErrorInBFloat16) {
  const double of_two = error_on(2, 1.0, &with_bfloat16);
  EXPECT_LT(of_two, std::ldexp(1.0, -8));
  EXPECT_GT(of_two, std::ldexp(1.0, -11));
  EXPECT_LT(error_on(64, 1.0, &with_bfloat16), 1.3 * of_two);
  EXPECT_LT(error_on(4, 1e-30, &with_bfloat16), 1.3 * of_two);
}

TEST(CodedAllreduce, KeepsWhatIsNotFiniteAndTheNumbersBesideIt) {
  constexpr std::size_t kCount = 30'000;
  std::vector<Values> inputs(3, Values(kCount, 1e20F));
  inputs[1][5] = std::numeric_limits<float>::quiet_NaN();
  inputs[2][20'000] = -std::numeric_limits<float>::infinity();
  const Values result = run(std::move(inputs), Codec::kFloat16, &with_codec).of_ranks[0];
  for (std::size_t i = 0; i < kCount; ++i) {
    if (i == 5) {
      EXPECT_TRUE(std::isnan(result[i]));
    } else if (i == 20'000) {
      EXPECT_EQ(result[i], -std::numeric_limits<float>::infinity());
    } else {
      ASSERT_NEAR(result[i], 3e20F, 3e17F) << i;
    }
  }
}

TEST(CodedAllreduce, SendsHalfOfTheBytesAndShortPayloadsAsTheyAre) {
  const auto bytes = [](std::size_t count, Codec codec) {
    return run(std::vector<Values>(4, Values(count, 1.0F)), codec, [](Operation& op) { return inter::run(op); }).bytes;
  };
  const auto exact = static_cast<double>(bytes(1'000'000, Codec::kNone));
  EXPECT_NEAR(static_cast<double>(bytes(1'000'000, Codec::kFloat16)), exact / 2, exact / 500);
  EXPECT_EQ(bytes(1'000'000, Codec::kBFloat16) * 2, bytes(1'000'000, Codec::kNone));
  EXPECT_EQ(bytes(1'000, Codec::kFloat16), bytes(1'000, Codec::kNone));
}

// Seconds of an allreduce without bytes, whose messages and work take their time.
double took(int ranks, std::size_t count, double bytes_per_second) {
  sim::FabricModel model;
  model.between_hosts.bytes_per_second = static_cast<std::uint64_t>(bytes_per_second);
  SimCluster cluster(3, ranks, model);
  Call call;
  call.kind = Collective::kAllreduce;
  call.count = count;
  const Buffer elided{nullptr, count * sizeof(float)};
  for (int rank = 0; rank < ranks; ++rank)
    cluster.rank(rank).start(perform(&cluster, &cluster.rank(rank), &with_codec, call, 1, elided, elided));
  expect_all_ended_well(cluster, {.ranks = ranks, .count = count});
  return std::chrono::duration<double>(cluster.world().now().time_since_epoch()).count();
}

// One after the other they would take 1.5 times as long as the longer of both, and twice as long where they are equal.
TEST(CodedAllreduce, EncodesAndAddsSomePartsWhileOthersTravel) {
  for (const std::size_t count : {std::size_t{4} << 20, std::size_t{512} << 10}) {
    for (const int ranks : {2, 4, 8}) {
      SCOPED_TRACE(fmt::format("{} elements, {} ranks", count, ranks));
      const double work = took(ranks, count, 1e15);
      const double bytes = 2.0 * (ranks - 1) / ranks * 2.0 * static_cast<double>(count);
      EXPECT_LT(took(ranks, count, bytes / (work / 2)), 1.01 * work);
      EXPECT_LT(took(ranks, count, bytes / work), 1.25 * work);
      EXPECT_LT(took(ranks, count, bytes / (2 * work)), 1.1 * 2 * work);
    }
  }
}

// As a runtime runs it: an error ends the group on all members.
Task<void> or_abort(SimCluster* cluster, SimRank* self, Task<void> allreduce) {
  try {
    co_await std::move(allreduce);
  } catch (const Error& error) {
    self->messenger().aborts().abort(cluster->view(), self->rank(), std::make_exception_ptr(error));
    throw;
  }
}

// Three segments, at 80 times of their history.
TEST(CodedAllreduce, EndsOnAllRanksWhenOneDies) {
  constexpr int kRanks = 4;
  constexpr std::size_t kCount = 2 * kRanks * inter::kSliceBytes / sizeof(float) + 5;
  Call call;
  call.kind = Collective::kAllreduce;
  call.count = kCount;
  const auto start = [&](SimCluster& cluster, std::vector<Values>& buffers) {
    for (int rank = 0; rank < kRanks; ++rank) {
      Values& own = buffers[static_cast<std::size_t>(rank)];
      const Buffer buffer{reinterpret_cast<std::byte*>(own.data()), own.size() * sizeof(float)};
      SimRank& self = cluster.rank(rank);
      self.start(or_abort(&cluster, &self, perform(&cluster, &self, &with_codec, call, 1, buffer, buffer)));
    }
  };
  std::uint64_t events = 0;
  {
    std::vector<Values> buffers(kRanks, Values(kCount, 1.0F));
    SimCluster cluster(7, kRanks);
    start(cluster, buffers);
    expect_all_ended_well(cluster, {.ranks = kRanks, .count = kCount});
    events = cluster.world().events();
  }
  constexpr std::uint64_t kTimes = 80;
  ASSERT_GT(events, kTimes);
  std::uint64_t failed = 0;
  for (std::uint64_t time = 0; time < kTimes; ++time) {
    const std::uint64_t event = events * time / kTimes;
    const int victim = static_cast<int>(time % kRanks);
    SCOPED_TRACE(fmt::format("rank {} killed at event {}", victim, event));
    std::vector<Values> buffers(kRanks, Values(kCount, 1.0F));
    SimCluster cluster(7, kRanks);
    start(cluster, buffers);
    cluster.world().at_event(event, [&] { cluster.kill(victim); });
    ASSERT_TRUE(cluster.run());
    bool heard = false;
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == victim) continue;
      if (const auto& error = cluster.rank(rank).error(); error) {
        heard = true;
        ASSERT_EQ(error->code(), Code::kPeerFailed) << error->message();
        ASSERT_EQ(error->peer(), victim) << error->message();
      } else {
        ASSERT_EQ(buffers[static_cast<std::size_t>(rank)], Values(kCount, static_cast<float>(kRanks)));
      }
    }
    failed += heard ? 1 : 0;
  }
  EXPECT_GT(failed, kTimes / 2);
}

}  // namespace
}  // namespace aiacc
