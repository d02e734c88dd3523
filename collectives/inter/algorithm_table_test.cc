// Tables of aiacc-tune: what their text may say, and which algorithm is chosen with one.
#include "collectives/inter/algorithm_table.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "collectives/inter/algorithms.h"
#include "collectives/inter/selector.h"

namespace aiacc::inter {
namespace {

constexpr std::string_view kBegin =
    "aiacc-algorithm-table 1\nmeasured-on a b c d\ntransport tcp\nstreams 2-8\nencrypt none\n";

AlgorithmTable table_of(const std::string& lines) {
  return AlgorithmTable::parse("TABLE", std::string(kBegin) + lines + "end\n");
}

std::string refusal_of_table(std::string_view text) {
  try {
    AlgorithmTable::parse("TABLE", text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_EQ(error.message().find('\n'), std::string::npos);
    return error.message();
  }
  return "accepted";
}

Shape shape_with(Collective kind, int ranks, std::size_t bytes) {
  return {.kind = kind, .ranks = ranks, .bytes = bytes, .wide_bytes = bytes};
}

std::string_view chosen_with(const AlgorithmTable& table, const Shape& shape, std::string_view rules = "") {
  const AlgorithmInfo* const chosen = permitted_algorithm(shape, AlgorithmRules::parse("RULES", rules), &table);
  return chosen == nullptr ? "none" : chosen->name;
}

struct SilentListener final : Selector::Listener {
  void no_permitted_algorithm(const std::string&) noexcept override {}
};

TEST(AlgorithmTable, ItsTextIsReadAndWritten) {
  const std::string lines =
      "# what was measured\n\n"
      "allreduce 4 plain 0 8192 ring\n  allreduce\t4 16-bit 16 2048 one-round\r\n"
      "reduce-scatter 64 plain 1 1125899906842624 ordered\n";
  const AlgorithmTable table = table_of(lines);
  EXPECT_EQ(table.conditions().hosts, (std::vector<std::string>{"a", "b", "c", "d"}));
  EXPECT_EQ(table.conditions().transport, "tcp");
  EXPECT_EQ(table.conditions().streams, "2-8");
  EXPECT_EQ(table.conditions().encryption, "none");
  ASSERT_EQ(table.choices().size(), 3u);
  EXPECT_EQ(table.choices()[1].algorithm->name, "one-round");
  EXPECT_TRUE(table.choices()[1].narrows);
  EXPECT_EQ(table.choices()[1].above, 16u);
  EXPECT_EQ(table.choices()[1].up_to, 2048u);
  const AlgorithmTable again = AlgorithmTable::parse("TABLE", table.text());
  EXPECT_EQ(again.choices(), table.choices());
  EXPECT_EQ(again.conditions().hosts, table.conditions().hosts);
  const AlgorithmTable sent = AlgorithmTable::parse("TABLE", table.text(AlgorithmTable::Extent::kWithoutHosts));
  EXPECT_EQ(sent.choices(), table.choices());
  EXPECT_EQ(sent.conditions().streams, "2-8");
  EXPECT_TRUE(sent.conditions().hosts.empty());
}

TEST(AlgorithmTable, WhatIsWrongIsSaidInOneSentence) {
  const auto with_line = [](const std::string& line) {
    return refusal_of_table(std::string(kBegin) + line + "\nend\n");
  };
  EXPECT_EQ(refusal_of_table(""), "TABLE: it is empty");
  EXPECT_EQ(refusal_of_table("{\"a\": 1}"),
            "TABLE: it is not a table of algorithms: the first line of one is 'aiacc-algorithm-table 1'");
  EXPECT_EQ(refusal_of_table("aiacc-algorithm-table 2\nend\n"),
            "TABLE: it has version 2, and this build reads version 1; make it again with aiacc-tune");
  EXPECT_EQ(refusal_of_table("aiacc-algorithm-table 1\nend\n"),
            "TABLE: it does not say over which transport it was measured");
  EXPECT_EQ(with_line("allreduce 4 plain 0 8192 rign"),
            "TABLE: line 6: allreduce has no algorithm 'rign' in this build; make the table again with aiacc-tune");
  EXPECT_EQ(with_line("alreduce 4 plain 0 8192 ring"), "TABLE: line 6: there is no collective 'alreduce'");
  EXPECT_EQ(with_line("allreduce 1 plain 0 8192 ring"),
            "TABLE: line 6: '1' is not a whole number from 2 to 1073741824");
  EXPECT_EQ(with_line("allreduce 4 some 0 8192 ring"), "TABLE: line 6: 'some' is neither plain nor 16-bit");
  EXPECT_EQ(with_line("allreduce 4 plain 8192 8192 ring"), "TABLE: line 6: 8192 is not below 8192");
  EXPECT_EQ(with_line("allreduce 4 plain -1 8192 ring"),
            "TABLE: line 6: '-1' is not a whole number from 0 to 1125899906842624");
  EXPECT_EQ(with_line("allreduce 4\033[31m"),
            "TABLE: line 6: 'allreduce 4\\x1b[31m' is no line of COLLECTIVE RANKS plain|16-bit ABOVE UP-TO ALGORITHM");
  EXPECT_EQ(refusal_of_table(std::string(kBegin) + "end\nallreduce 4 plain 0 8192 ring\n"),
            "TABLE: there is something after the line 'end'");
  EXPECT_EQ(refusal_of_table(std::string(kBegin) + std::string(AlgorithmTable::kMostBytes, '#')).substr(0, 23),
            "TABLE: it has 65619 byt");
}

// A file of which only a part was written or copied is never half a table.
TEST(AlgorithmTable, NoBeginningOfATableIsATable) {
  const std::string whole = table_of("allreduce 4 plain 0 8192 ring\nbroadcast 4 plain 0 99 chain\n").text();
  for (std::size_t bytes = 0; bytes + 1 < whole.size(); ++bytes) {
    EXPECT_NE(refusal_of_table(std::string_view(whole).substr(0, bytes)), "accepted") << bytes;
  }
}

TEST(AlgorithmTable, ChoosesWhatItWasMeasuredFor) {
  const AlgorithmTable table = table_of("allreduce 4 plain 1024 65536 ring\nallreduce 4 plain 65536 131072 ordered\n");
  EXPECT_EQ(chosen_with(table, shape_with(Collective::kAllreduce, 4, 1024)), "recursive-doubling");
  EXPECT_EQ(chosen_with(table, shape_with(Collective::kAllreduce, 4, 1025)), "ring");
  EXPECT_EQ(chosen_with(table, shape_with(Collective::kAllreduce, 4, 65536)), "ring");
  EXPECT_EQ(chosen_with(table, shape_with(Collective::kAllreduce, 4, 131072)), "ordered");
  EXPECT_EQ(chosen_with(table, shape_with(Collective::kAllreduce, 4, 131073)), "halving-doubling");
  EXPECT_EQ(chosen_with(table, shape_with(Collective::kAllreduce, 8, 2048)), "recursive-doubling") << "other ranks";
  EXPECT_EQ(chosen_with(table, shape_with(Collective::kReduce, 4, 2048)), "binomial") << "another collective";
  Shape halves = shape_with(Collective::kAllreduce, 4, 2048);
  halves.narrows = true;
  halves.wide_bytes = 4096;
  EXPECT_EQ(chosen_with(table, halves), "one-round") << "not measured";
}

TEST(AlgorithmTable, NeverChoosesWhatCannotServeOrIsNotPermitted) {
  const AlgorithmTable table = table_of(
      "allreduce 6 plain 0 65536 halving-doubling\ngather 4 plain 0 65536 binomial\nallreduce 4 plain 0 65536 ring\n");
  EXPECT_EQ(chosen_with(table, shape_with(Collective::kAllreduce, 6, 2048)), "recursive-doubling") << "no power of two";
  Shape gather = shape_with(Collective::kGather, 4, 64);
  EXPECT_EQ(chosen_with(table, gather), "binomial");
  gather.uneven = true;
  EXPECT_EQ(chosen_with(table, gather), "linear");
  Shape ordered = shape_with(Collective::kAllreduce, 4, 2048);
  ordered.ordered = true;
  EXPECT_NE(chosen_with(table, ordered), "ring");
  const Shape plain = shape_with(Collective::kAllreduce, 4, 2048);
  EXPECT_EQ(chosen_with(table, plain, "allreduce=recursive-doubling"), "recursive-doubling");
  EXPECT_EQ(chosen_with(table, plain, "allreduce=^ring"), "recursive-doubling");
  EXPECT_EQ(chosen_with(table, plain, "allreduce=ring|ordered"), "ring");
  EXPECT_EQ(chosen_with(table, plain, "broadcast=chain"), "ring") << "another collective";
}

// The path of short calls asks the same.
TEST(AlgorithmTable, LeavesShortCallsToRecursiveDoublingUnlessItSaysOtherwise) {
  const AlgorithmTable table = table_of("allreduce 4 plain 64 256 ring\n");
  const AlgorithmInfo& doubling = usual_algorithm(shape_with(Collective::kAllreduce, 4, 8));
  SilentListener silent;
  const AlgorithmRules all, without_ring = AlgorithmRules::parse("RULES", "allreduce=^ring"),
                            only_ring = AlgorithmRules::parse("RULES", "allreduce=ring");
  const auto leaves = [&](const AlgorithmRules& rules, std::size_t bytes, const AlgorithmTable* given) {
    return &Selector(rules, silent, given).choose(shape_with(Collective::kAllreduce, 4, bytes), false) == &doubling;
  };
  EXPECT_TRUE(leaves(all, 64, &table));
  EXPECT_FALSE(leaves(all, 65, &table));
  EXPECT_FALSE(leaves(all, 256, &table));
  EXPECT_TRUE(leaves(all, 257, &table));
  EXPECT_TRUE(leaves(all, 65, nullptr));
  EXPECT_TRUE(leaves(without_ring, 65, &table));
  EXPECT_FALSE(leaves(only_ring, 8, &table));
}

TEST(AlgorithmTable, WhatItChoosesIsMarked) {
  const AlgorithmTable table = table_of("allreduce 8 plain 8192 262144 ring\nbroadcast 8 plain 0 4096 chain\n");
  EXPECT_EQ(
      describe_choices(shape_with(Collective::kAllreduce, 8, 8), AlgorithmRules(), &table),
      "allreduce between 8 ranks: recursive-doubling up to 8K, ring* up to 256K, halving-doubling up to 64M, ring "
      "above (*: AIACC_ALGORITHM_TABLE; else measured)");
  EXPECT_EQ(
      describe_choices(shape_with(Collective::kAllreduce, 4, 8), AlgorithmRules(), &table),
      "allreduce between 4 ranks: recursive-doubling up to 64K, halving-doubling up to 64M, ring above (measured)");
  EXPECT_EQ(describe_choices(shape_with(Collective::kAllreduce, 8, 8),
                             AlgorithmRules::parse("RULES", "allreduce=ordered"), &table),
            "allreduce between 8 ranks: ordered (AIACC_ALGORITHM)");
}

}  // namespace
}  // namespace aiacc::inter
