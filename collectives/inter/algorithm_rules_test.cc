// AIACC_ALGORITHM: what it may say, which algorithm is chosen then, and what the user is told if none is possible.
#include "collectives/inter/algorithm_rules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/config.h"
#include "base/error.h"
#include "collectives/inter/algorithms.h"
#include "collectives/inter/selector.h"

namespace aiacc::inter {
namespace {

AlgorithmRules rules_of(std::string_view text) { return AlgorithmRules::parse("AIACC_ALGORITHM", text); }

std::string refusal_of(std::string_view text) {
  try {
    rules_of(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    return error.message();
  }
  return "accepted";
}

struct Told final : Selector::Listener {
  void no_permitted_algorithm(const std::string& sentence) noexcept override { sentences.push_back(sentence); }
  std::vector<std::string> sentences;
};

Shape allreduce_of(std::size_t bytes, int ranks) {
  return {.kind = Collective::kAllreduce, .ranks = ranks, .bytes = bytes, .wide_bytes = bytes};
}

std::string_view chosen(std::string_view rules, const Shape& shape) {
  const AlgorithmInfo* const algorithm = permitted_algorithm(shape, rules_of(rules));
  return algorithm == nullptr ? "none" : algorithm->name;
}

TEST(AlgorithmRules, RulesWithOneMeaningHaveOneText) {
  EXPECT_EQ(rules_of("").text(), "");
  EXPECT_EQ(rules_of("allreduce=ring").text(), "allreduce=ring");
  EXPECT_EQ(rules_of("reduce-scatter=ordered,allreduce=ring").text(), "allreduce=ring,reduce-scatter=ordered");
  EXPECT_EQ(rules_of("reduce=ordered|double-tree|binomial").text(), rules_of("reduce=^one-round").text());
  EXPECT_EQ(rules_of("reduce=^one-round|ordered").text(), "reduce=binomial|double-tree");
}

TEST(AlgorithmRules, WhatIsWrongIsSaidInOneSentence) {
  EXPECT_EQ(refusal_of("allreduce=rign"),
            "AIACC_ALGORITHM='allreduce=rign': allreduce has no algorithm 'rign' between hosts; it has "
            "recursive-doubling, halving-doubling, one-round, double-tree, ring, ordered");
  EXPECT_EQ(
      refusal_of("allgather=halving-doubling"),
      "AIACC_ALGORITHM='allgather=halving-doubling': allgather has no algorithm 'halving-doubling' between hosts; "
      "it has recursive-doubling, ring");
  EXPECT_EQ(refusal_of("alreduce=ring"),
            "AIACC_ALGORITHM='alreduce=ring': there is no collective 'alreduce'; did you mean allreduce?");
  EXPECT_EQ(refusal_of("foobar=ring"), "AIACC_ALGORITHM='foobar=ring': there is no collective 'foobar'");
  EXPECT_EQ(refusal_of("ring"),
            "AIACC_ALGORITHM='ring': 'ring' is not of the form COLLECTIVE=ALGORITHM, as in allreduce=ring");
  EXPECT_EQ(refusal_of("reduce=binomial,reduce=ordered"),
            "AIACC_ALGORITHM='reduce=binomial,reduce=ordered': reduce is named twice");
  EXPECT_EQ(refusal_of("barrier=^dissemination"),
            "AIACC_ALGORITHM='barrier=^dissemination': no algorithm is left for barrier");
  for (const std::string_view text : {"allreduce=", "allreduce=ring|", "allreduce=^", "=ring", ",", "allreduce=ring,,"})
    EXPECT_NE(refusal_of(text), "accepted") << text;
}

TEST(AlgorithmRules, AreObeyedWhereTheAlgorithmCanServe) {
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{1} << 20, std::size_t{1} << 30}) {
    EXPECT_EQ(chosen("allreduce=ring", allreduce_of(bytes, 8)), "ring");
    EXPECT_EQ(chosen("allreduce=recursive-doubling", allreduce_of(bytes, 5)), "recursive-doubling");
    EXPECT_EQ(chosen("reduce=ordered", allreduce_of(8, 8)), "recursive-doubling") << "another collective";
    EXPECT_EQ(chosen("allreduce=halving-doubling", allreduce_of(bytes, 6)), "none");
  }
  EXPECT_EQ(chosen("allreduce=ring|recursive-doubling", allreduce_of(8, 8)), "recursive-doubling") << "the usual one";
  EXPECT_NE(chosen("allreduce=^recursive-doubling", allreduce_of(8, 8)), "recursive-doubling");
  Shape ordered = allreduce_of(1 << 20, 8);
  ordered.ordered = true;
  EXPECT_EQ(chosen("allreduce=ring", ordered), "none");
  EXPECT_EQ(chosen("allreduce=^ordered", ordered), "double-tree");
}

TEST(AlgorithmRules, ACallerMayPreferAnAlgorithmForLongPayloads) {
  Told told;
  const AlgorithmRules any, only_rings = rules_of("allreduce=ring");
  Selector free(any, told), bound(only_rings, told);
  const auto named = [](std::string_view name) {
    const auto all = algorithms_of(Collective::kAllreduce);
    return *std::find_if(all.begin(), all.end(), [name](const AlgorithmInfo* one) { return one->name == name; });
  };
  Shape shape = allreduce_of(1 << 20, 4);
  shape.preferred = named("double-tree");
  EXPECT_EQ(free.choose(shape, true).name, "double-tree");
  EXPECT_EQ(bound.choose(shape, true).name, "ring") << "the user's wish comes first";
  Shape other = shape;
  other.kind = Collective::kReduceScatter;
  EXPECT_EQ(free.choose(other, true).name, usual_algorithm(other).name) << "a phase of another kind";
  shape.bytes = shape.wide_bytes = 64 << 10;
  EXPECT_EQ(free.choose(shape, true).name, "recursive-doubling") << "a short one";
  shape = allreduce_of(1 << 20, 6);
  shape.preferred = named("halving-doubling");
  EXPECT_EQ(free.choose(shape, true).name, "ring") << "it cannot serve six ranks";
  EXPECT_TRUE(told.sentences.empty());
}

TEST(AlgorithmRules, AlternativesAreOthersThatMayServeInGoodTime) {
  const auto names = [](const Shape& shape, const AlgorithmRules& rules, std::size_t most) {
    std::vector<std::string_view> found;
    for (const AlgorithmInfo* one : alternatives(shape, rules, nullptr, most)) found.push_back(one->name);
    return found;
  };
  using Names = std::vector<std::string_view>;
  const Shape four = allreduce_of(8 << 20, 4);
  EXPECT_EQ(names(four, {}, 2).size(), 2u);
  EXPECT_EQ(names(four, {}, 1), Names(1, names(four, {}, 2).front()));
  for (const std::string_view name : names(four, {}, 9)) {
    EXPECT_NE(name, usual_algorithm(four).name);
    EXPECT_NE(name, "one-round") << "it sends three times as much";
  }
  EXPECT_EQ(names(four, rules_of("allreduce=ring"), 9), Names());
  EXPECT_EQ(names(four, rules_of("allreduce=ring|double-tree|halving-doubling"), 9),
            names(four, rules_of("allreduce=^one-round|ordered|recursive-doubling"), 9));
}

TEST(AlgorithmRules, TheUserIsToldOnceThatNoneCanServe) {
  Told told;
  const AlgorithmRules rules = rules_of("allreduce=halving-doubling,reduce=one-round");
  Selector selector(rules, told);
  EXPECT_EQ(selector.choose(allreduce_of(100, 6), false).name, "recursive-doubling");
  EXPECT_TRUE(told.sentences.empty()) << "another rank tells it";
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(selector.choose(allreduce_of(100, 6), true).name, "recursive-doubling");
    EXPECT_EQ(selector.choose(allreduce_of(100, 4), true).name, "halving-doubling");
    EXPECT_EQ(
        selector.choose({.kind = Collective::kReduce, .ranks = 4, .bytes = 1 << 20, .wide_bytes = 1 << 20}, true).name,
        "double-tree");
  }
  EXPECT_EQ(
      told.sentences,
      (std::vector<std::string>{
          "AIACC_ALGORITHM permits no algorithm that can serve allreduce of 100 between 6 ranks (halving-doubling: "
          "it needs a power of two of ranks, at least four), so recursive-doubling serves it and others like it",
          "AIACC_ALGORITHM permits no algorithm that can serve reduce of 1M between 4 ranks (one-round: it holds "
          "the inputs of at most 64 ranks, 256K of all together), so double-tree serves it and others like it"}));
}

TEST(AlgorithmRules, ChoicesAreDescribedForAllLengths) {
  EXPECT_EQ(
      describe_choices(allreduce_of(8, 8), rules_of("")),
      "allreduce between 8 ranks: recursive-doubling up to 64K, halving-doubling up to 64M, ring above (measured)");
  EXPECT_EQ(describe_choices(allreduce_of(8, 8), rules_of("allreduce=ring")),
            "allreduce between 8 ranks: ring (AIACC_ALGORITHM)");
  Shape halves = allreduce_of(8, 16);
  halves.narrows = true;
  halves.wide_bytes = 16;
  EXPECT_EQ(describe_choices(halves, rules_of("")),
            "allreduce between 16 ranks: recursive-doubling up to 32K, ordered above (measured)");
}

TEST(AlgorithmRules, LengthsOfCombinedBlocksAreThoseOfOneRankUpToTheLongest) {
  Shape shape{.kind = Collective::kAlltoall, .ranks = 8, .bytes = 4, .wide_bytes = 4};
  const std::string whole = describe_choices(shape, rules_of(""));
  EXPECT_EQ(whole.rfind("alltoall between 8 ranks: bruck up to 512, pairwise above", 0), 0u) << whole;
  shape.combined = 4;
  shape.longest_of_combined = 910;
  const std::string combined = describe_choices(shape, rules_of(""));
  EXPECT_EQ(
      combined.rfind(
          "alltoall between 8 ranks, one of each host, for blocks of up to 910: bruck up to 128, pairwise above", 0),
      0u)
      << combined;
  shape.longest_of_combined = 128;
  const std::string short_ones = describe_choices(shape, rules_of(""));
  EXPECT_EQ(short_ones.rfind("alltoall between 8 ranks, one of each host, for blocks of up to 128: bruck (", 0), 0u)
      << short_ones;
}

TEST(AlgorithmRules, ChoicesAreToldOnceAndOnlyIfWanted) {
  struct Curious final : Selector::Listener {
    void no_permitted_algorithm(const std::string&) noexcept override {}
    bool wants_choices() const noexcept override { return wants; }
    void chosen(const std::string&) noexcept override { ++told; }
    bool wants = true;
    int told = 0;
  } curious;
  const AlgorithmRules rules;
  for (const bool wants : {false, true}) {
    curious.wants = wants;
    Selector selector(rules, curious);
    for (int i = 0; i < 3; ++i) {
      for (const NamedCollective& each : named_collectives()) selector.tell_choices({.kind = each.kind, .ranks = 4});
    }
  }
  EXPECT_EQ(curious.told, static_cast<int>(named_collectives().size()));
}

// The usual algorithm can serve every call, and so all ranks have one.
TEST(AlgorithmRules, TheUsualAlgorithmHasNoObstacle) {
  for (const NamedCollective& collective : named_collectives()) {
    for (unsigned traits = 0; traits < 64; ++traits) {
      for (const int ranks : {2, 3, 4, 8, 9, 64, 100}) {
        for (std::size_t bytes = 1; bytes <= std::size_t{1} << 32; bytes *= 4) {
          const bool narrows = (traits & 1) != 0, partials = (traits & 4) != 0 && !narrows;
          const Shape shape{.kind = collective.kind,
                            .ranks = ranks,
                            .bytes = bytes,
                            .wide_bytes = narrows || partials ? 2 * bytes : bytes,
                            .narrows = narrows,
                            .ordered = (traits & 2) != 0 && !narrows && !partials,
                            .takes_partials = partials,
                            .uneven = (traits & 8) != 0,
                            .among_some = (traits & 16) != 0,
                            .skips_host = (traits & 32) != 0};
          const AlgorithmInfo& usual = usual_algorithm(shape);
          ASSERT_EQ(usual.kind, collective.kind);
          ASSERT_EQ(usual.obstacle(shape), "") << usual.name << ", " << ranks << " ranks, " << bytes;
        }
      }
    }
  }
}

TEST(AlgorithmRules, TheManualNamesAllAlgorithms) {
  std::string help;
  for (const ConfigRow& row : config_table()) {
    if (row.name == "AIACC_ALGORITHM") help = row.help;
  }
  for (const NamedCollective& collective : named_collectives()) {
    const std::size_t begin = help.find(" " + std::string(collective.name) + " ", help.find("those not to use"));
    ASSERT_NE(begin, std::string::npos) << collective.name;
    const std::string clause = help.substr(begin, help.find_first_of(";.", begin) - begin);
    for (const AlgorithmInfo* algorithm : algorithms_of(collective.kind)) {
      EXPECT_NE(clause.find(algorithm->name), std::string::npos) << collective.name << ": " << algorithm->name;
    }
  }
}

}  // namespace
}  // namespace aiacc::inter
