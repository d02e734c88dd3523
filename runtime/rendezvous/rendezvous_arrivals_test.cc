#include "runtime/rendezvous/rendezvous_arrivals.h"

#include <gtest/gtest.h>

namespace aiacc {
namespace {

wire::Arrive rank_of(int rank, int size, std::vector<std::string> addresses = {}) {
  wire::Arrive said;
  said.rank = rank;
  said.size = size;
  said.version = "1.2.3";
  said.host_name = "h" + std::to_string(rank);
  said.addresses = std::move(addresses);
  return said;
}

TEST(Arrivals, SaysWhoCameAndWhoDidNot) {
  Arrivals arrivals(rank_of(0, 4), "PLACE");
  EXPECT_EQ(arrivals.text(), "1 of 4 ranks came to PLACE: rank 0 on host h0; ranks 1-3 did not");
  arrivals.add(rank_of(2, 4), "tcp:10.0.0.2:5");
  arrivals.add(rank_of(1, 4), "tcp:10.0.0.1:5");
  EXPECT_EQ(arrivals.text(),
            "3 of 4 ranks came to PLACE: rank 0 on host h0, rank 1 on host h1 (tcp:10.0.0.1:5), rank 2 on host h2 "
            "(tcp:10.0.0.2:5); rank 3 did not");
  arrivals.disconnected(1);
  EXPECT_EQ(arrivals.missing(), 2u);
  EXPECT_EQ(arrivals.text(),
            "2 of 4 ranks came to PLACE: rank 0 on host h0, rank 2 on host h2 (tcp:10.0.0.2:5); rank 1 on host h1 "
            "(tcp:10.0.0.1:5) came and left; rank 3 did not");
  EXPECT_FALSE(arrivals.check(rank_of(1, 4), "tcp:10.0.0.1:6")) << "it may come again";
  EXPECT_FALSE(arrivals.check(rank_of(2, 4), "tcp:10.0.0.2:6")) << "also while its old connection stands";
  wire::Arrive another = rank_of(2, 4);
  another.ports.ports = {wire::tcp_address(4711)};
  EXPECT_TRUE(arrivals.check(another, "tcp:10.0.0.2:6")) << "another process";
}

TEST(Arrivals, OnlyARankOfThisJobIsJudged) {
  const Arrivals arrivals(rank_of(0, 4), "PLACE");
  for (const int rank : {-1, 0, 4}) {
    EXPECT_THROW(static_cast<void>(arrivals.check(rank_of(rank, 4), "tcp:10.0.0.2:6")), Error) << rank;
  }
  EXPECT_FALSE(arrivals.check(rank_of(3, 4), "tcp:10.0.0.2:6"));
}

TEST(Arrivals, ARankHasSixteenAddressesAtMostAndTheOneThatWasSeen) {
  Arrivals arrivals(rank_of(0, 2), "PLACE");
  std::vector<std::string> many;
  for (int i = 1; i <= 40; ++i) many.push_back("192.0.2." + std::to_string(i));
  arrivals.add(rank_of(1, 2, many), "tcp:10.0.0.1:5");
  const std::vector<std::string> listed = arrivals.roster()[1].addresses;
  ASSERT_EQ(listed.size(), 17u);
  EXPECT_EQ(listed.front(), "10.0.0.1");
  EXPECT_EQ(listed.back(), "192.0.2.16");
}

TEST(Arrivals, ManyAreCountedAndNotNamed) {
  Arrivals arrivals(rank_of(0, 100), "PLACE");
  for (int rank = 1; rank < 60; ++rank) arrivals.add(rank_of(rank, 100), "tcp:10.0.0.1:5");
  const std::string text = arrivals.text();
  EXPECT_NE(text.find("60 of 100 ranks came"), std::string::npos);
  EXPECT_NE(text.find("rank 15 on host h15 (tcp:10.0.0.1:5) and 44 more; ranks 60-99 did not"), std::string::npos)
      << text;
}

TEST(Arrivals, TheAddressThatWasSeenComesFirstAndLoopbackTellsOfTheMachine) {
  Arrivals arrivals(rank_of(0, 4, {"10.0.0.9"}), "PLACE");
  arrivals.add(rank_of(1, 4, {"192.168.0.1", "10.0.0.1", "fd00::1"}), "tcp:10.0.0.1:40000");
  arrivals.add(rank_of(2, 4, {"10.0.0.2"}), "tcp:[fd00::2]:40000");
  arrivals.add(rank_of(3, 4, {"10.0.0.9"}), "tcp:127.0.0.1:40000");
  const std::vector<wire::RosterEntry> roster = arrivals.roster();
  using Addresses = std::vector<std::string>;
  EXPECT_EQ(roster[0].addresses, Addresses{"10.0.0.9"});
  EXPECT_TRUE(roster[0].near);
  EXPECT_EQ(roster[1].addresses, (Addresses{"10.0.0.1", "192.168.0.1", "fd00::1"}));
  EXPECT_FALSE(roster[1].near);
  EXPECT_EQ(roster[2].addresses, (Addresses{"fd00::2", "10.0.0.2"}));
  EXPECT_EQ(roster[3].addresses, Addresses{"10.0.0.9"});
  EXPECT_TRUE(roster[3].near);
}

TEST(Arrivals, AHostIsFoundAtAnAddressThatItNamesAsItsOwn) {
  Arrivals arrivals(rank_of(0, 5), "PLACE");
  arrivals.add(rank_of(1, 5, {"192.168.0.1", "10.0.0.1"}), "tcp:10.0.0.1:40000");
  arrivals.add(rank_of(2, 5, {"192.168.0.2", "10.0.0.2"}), "tcp:10.0.0.77:40000");
  arrivals.add(rank_of(3, 5, {"10.0.0.3"}), "tcp:127.0.0.1:40000");
  arrivals.add(rank_of(4, 5), "tcp:127.0.0.1:40000");
  EXPECT_EQ(arrivals.host_address(1), "10.0.0.1") << "the way that is known";
  EXPECT_EQ(arrivals.host_address(2), "192.168.0.2") << "10.0.0.77 is a proxy's";
  EXPECT_EQ(arrivals.host_address(3), "10.0.0.3");
  EXPECT_EQ(arrivals.host_address(4), "127.0.0.1");
}

}  // namespace
}  // namespace aiacc
