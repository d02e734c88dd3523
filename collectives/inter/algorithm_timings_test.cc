// From times to a table: what counts as faster, and for which lengths.
#include "collectives/inter/algorithm_timings.h"

#include <gtest/gtest.h>

#include "collectives/inter/algorithms.h"

namespace aiacc::inter {
namespace {

const AlgorithmInfo& algorithm_named(Collective kind, std::string_view name) {
  for (const AlgorithmInfo* each : algorithms_of(kind)) {
    if (each->name == name) return *each;
  }
  ADD_FAILURE() << name;
  return *algorithms_of(kind).front();
}

TimedShape timed_broadcast(std::size_t bytes, std::vector<double> binomial_us, std::vector<double> chain_us) {
  return {.shape = {.kind = Collective::kBroadcast, .ranks = 4, .bytes = bytes, .wide_bytes = bytes},
          .timings = {{&algorithm_named(Collective::kBroadcast, "binomial"), std::move(binomial_us)},
                      {&algorithm_named(Collective::kBroadcast, "chain"), std::move(chain_us)}}};
}

std::string_view faster(const TimedShape& timed) {
  const AlgorithmInfo* const found = faster_than_usual(timed);
  return found == nullptr ? "usual" : found->name;
}

TEST(AlgorithmTimings, OneThatIsFasterByMoreThanTheNoiseWins) {
  ASSERT_EQ(usual_algorithm({.kind = Collective::kBroadcast, .ranks = 4, .bytes = 64}).name, "binomial");
  EXPECT_EQ(faster(timed_broadcast(64, {10, 10, 10}, {9, 9, 9})), "chain");
  EXPECT_EQ(faster(timed_broadcast(64, {10, 10, 10}, {9.8, 9.8, 9.8})), "usual") << "2 %";
  EXPECT_EQ(faster(timed_broadcast(64, {9, 10, 11}, {8, 9, 10})), "usual") << "noise";
  EXPECT_EQ(faster(timed_broadcast(64, {10, 10, 90}, {9, 9, 9})), "chain") << "one outlier";
  EXPECT_EQ(faster(timed_broadcast(64, {10, 10, 10, 10, 10}, {7, 7, 7, 7, 12})), "chain") << "four rounds of five";
  EXPECT_EQ(faster(timed_broadcast(64, {10, 10, 10, 10, 10}, {7, 7, 7, 12, 12})), "usual");
  EXPECT_EQ(faster(timed_broadcast(64, {10, 10, 10}, {11, 11, 11})), "usual");
  EXPECT_EQ(faster(timed_broadcast(64, {10, 10, 10}, {5})), "usual") << "given up after one round";
  EXPECT_EQ(faster(timed_broadcast(64, {}, {5, 5, 5})), "usual") << "nothing to compare with";
}

TEST(AlgorithmTimings, AMeasuredLengthStandsForThoseAroundIt) {
  const std::vector<double> fast = {5, 5, 5}, slow = {10, 10, 10};
  std::vector<TimedShape> timed = {timed_broadcast(64, slow, fast), timed_broadcast(256, slow, fast),
                                   timed_broadcast(1024, fast, slow), timed_broadcast(4096, slow, fast)};
  const auto choices = choices_of(timed, 4);
  ASSERT_EQ(choices.size(), 2u);
  EXPECT_EQ(choices[0].above, 32u);
  EXPECT_EQ(choices[0].up_to, 512u);
  EXPECT_EQ(choices[1].above, 2048u);
  EXPECT_EQ(choices[1].up_to, 8192u);
  timed[1].shape.ranks = 3;
  EXPECT_EQ(choices_of(timed, 4).size(), 3u) << "another number of hosts is a choice of its own";
  for (const int factor : {2, 3, 8, 16}) {
    for (std::size_t bytes = 1; bytes < 1 << 20; bytes *= static_cast<std::size_t>(factor)) {
      const auto one = choices_of(std::vector{timed_broadcast(bytes, slow, fast)}, factor);
      if (one.empty()) continue;  // the chain is the usual one for long ones
      EXPECT_LT(one[0].above, bytes) << factor;
      EXPECT_GE(one[0].up_to, bytes) << factor;
    }
  }
}

}  // namespace
}  // namespace aiacc::inter
