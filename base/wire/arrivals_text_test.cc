#include "base/wire/arrivals_text.h"

#include <gtest/gtest.h>

#include <vector>

namespace aiacc::wire {
namespace {

using State = RankArrival::State;

TEST(ArrivalsText, NamesWhoCameAndWhoDidNot) {
  std::vector<RankArrival> ranks(5, {State::kHere, "on host a"});
  ranks[2] = {State::kHere, "on host b"};
  ranks[3] = ranks[4] = {State::kAway, "on host b"};
  EXPECT_EQ(arrivals_text(ranks, "called aiacc_init"),
            "3 of 5 ranks called aiacc_init: ranks 0-1 on host a, rank 2 on host b; ranks 3-4 on host b did not");
  ranks[1] = {State::kAway, "on host a"};
  ranks[4] = {State::kHere, "on host a"};
  EXPECT_EQ(
      arrivals_text(ranks, "came to PLACE"),
      "3 of 5 ranks came to PLACE: ranks 0, 4 on host a, rank 2 on host b; rank 1 on host a, rank 3 on host b did "
      "not");
}

TEST(ArrivalsText, OneThatLeftHasComeAndOneThatIsAwayMayHaveNoPlace) {
  const std::vector<RankArrival> ranks = {{State::kHere, "on host a"}, {State::kLeft, "on host b"}, {}, {}};
  EXPECT_EQ(arrivals_text(ranks, "came"),
            "1 of 4 ranks came: rank 0 on host a; rank 1 on host b came and left; ranks 2-3 did not");
  EXPECT_EQ(arrivals_text(std::vector<RankArrival>(1), "came"), "0 of 1 ranks came: none; rank 0 did not");
}

TEST(ArrivalsText, NobodyIsMissing) {
  EXPECT_EQ(arrivals_text(std::vector<RankArrival>(3, {State::kHere, "on host a"}), "came"),
            "3 of 3 ranks came: ranks 0-2 on host a");
}

TEST(ArrivalsText, ManyPlacesAreCounted) {
  std::vector<RankArrival> ranks(40);
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    ranks[rank] = {rank < 20 ? State::kHere : State::kAway, "on host n" + std::to_string(rank)};
  }
  const std::string text = arrivals_text(ranks, "came");
  EXPECT_NE(text.find("rank 15 on host n15 and 4 more; rank 20 on host n20"), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with("rank 35 on host n35 and 4 more did not")) << text;
}

TEST(VersionMismatchText, NamesBothEndsAndTheirVersions) {
  EXPECT_EQ(version_mismatch_text("ranks on host a use", "1.0", "ranks on host b", "1.1"),
            "ranks on host a use aiacc 1.0 and ranks on host b aiacc 1.1: all ranks of a job need the same version");
}

}  // namespace
}  // namespace aiacc::wire
