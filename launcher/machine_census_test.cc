#include "launcher/machine_census.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace aiacc::launcher {
namespace {

using Names = std::vector<std::string>;
using Classes = std::vector<std::vector<int>>;

TEST(MachineCensus, HostsThatDescribeThemselvesDifferentlyAreNotAsked) {
  const MachineCensus census({{"one", "p0", "t0"}, {"two", "p1", "t1"}, {"", "p2", "t2"}, {"", "p3", "t3"}});
  for (int host = 0; host < 4; ++host) EXPECT_EQ(census.suspects(host), Names{}) << host;
  EXPECT_TRUE(census.complete());
  EXPECT_EQ(census.same(), Classes{});
}

TEST(MachineCensus, WhoIsFoundIsTheSameMachine) {
  MachineCensus census(
      {{"one", "p0", "t0"}, {"two", "p1", "t1"}, {"one", "p2", "t2"}, {"two", "p3", "t3"}, {"one", "p4", "t4"}});
  EXPECT_EQ(census.suspects(3), Names{"p1"});
  EXPECT_EQ(census.suspects(4), (Names{"p0", "p2"}));
  census.found(2, {"t0"});
  census.found(4, {"t0", "t2"});
  EXPECT_FALSE(census.complete());
  census.found(3, {"t1"});
  EXPECT_TRUE(census.complete());
  EXPECT_EQ(census.same(), (Classes{{0, 2, 4}, {1, 3}}));
}

TEST(MachineCensus, ACopyOfAMachineIsNotTheMachine) {
  MachineCensus census({{"one", "p0", "t0"}, {"one", "p1", "t1"}, {"one", "p2", "t2"}, {"one", "p3", "t3"}});
  census.found(1, {""});
  census.found(2, {"another number", "t1"});
  census.found(3, {"t1", "", ""});
  EXPECT_TRUE(census.complete());
  EXPECT_EQ(census.same(), (Classes{{1, 2}})) << "a token of somebody else is no proof";
}

TEST(MachineCensus, NothingIsNoToken) {
  MachineCensus census({{"one", "p0", ""}, {"one", "p1", ""}});
  census.found(1, {""});
  EXPECT_EQ(census.same(), Classes{}) << "an agent without a socket of its own is found by nobody";
}

TEST(MachineCensus, AnAnswerFitsItsQuestion) {
  MachineCensus census({{"one", "p0", "t0"}, {"one", "p1", "t1"}});
  EXPECT_THROW(census.found(0, {}), Error);
  EXPECT_THROW(census.found(1, {}), Error);
  census.found(1, {"t0"});
  EXPECT_THROW(census.found(1, {"t0"}), Error);
}

}  // namespace
}  // namespace aiacc::launcher
