#include "launcher/head/same_host_detection.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace aiacc::launcher {
namespace {

using Names = std::vector<std::string>;
using Classes = std::vector<std::vector<int>>;

TEST(SameHostDetection, HostsThatDescribeThemselvesDifferentlyAreNotAsked) {
  const SameHostDetection detection({{"one", "p0", "t0"}, {"two", "p1", "t1"}, {"", "p2", "t2"}, {"", "p3", "t3"}});
  for (int host = 0; host < 4; ++host) EXPECT_EQ(detection.candidates(host), Names{}) << host;
  EXPECT_TRUE(detection.complete());
  EXPECT_EQ(detection.same(), Classes{});
}

TEST(SameHostDetection, WhoIsFoundIsTheSameMachine) {
  SameHostDetection detection(
      {{"one", "p0", "t0"}, {"two", "p1", "t1"}, {"one", "p2", "t2"}, {"two", "p3", "t3"}, {"one", "p4", "t4"}});
  EXPECT_EQ(detection.candidates(3), Names{"p1"});
  EXPECT_EQ(detection.candidates(4), (Names{"p0", "p2"}));
  detection.found(2, {"t0"});
  detection.found(4, {"t0", "t2"});
  EXPECT_FALSE(detection.complete());
  detection.found(3, {"t1"});
  EXPECT_TRUE(detection.complete());
  EXPECT_EQ(detection.same(), (Classes{{0, 2, 4}, {1, 3}}));
}

TEST(SameHostDetection, ACopyOfAMachineIsNotTheMachine) {
  SameHostDetection detection({{"one", "p0", "t0"}, {"one", "p1", "t1"}, {"one", "p2", "t2"}, {"one", "p3", "t3"}});
  detection.found(1, {""});
  detection.found(2, {"another number", "t1"});
  detection.found(3, {"t1", "", ""});
  EXPECT_TRUE(detection.complete());
  EXPECT_EQ(detection.same(), (Classes{{1, 2}})) << "a token of somebody else is no proof";
}

TEST(SameHostDetection, NothingIsNoToken) {
  SameHostDetection detection({{"one", "p0", ""}, {"one", "p1", ""}});
  detection.found(1, {""});
  EXPECT_EQ(detection.same(), Classes{}) << "an agent without a socket of its own is found by nobody";
}

TEST(SameHostDetection, AnAnswerFitsItsQuestion) {
  SameHostDetection detection({{"one", "p0", "t0"}, {"one", "p1", "t1"}});
  EXPECT_THROW(detection.found(0, {}), Error);
  EXPECT_THROW(detection.found(1, {}), Error);
  detection.found(1, {"t0"});
  EXPECT_THROW(detection.found(1, {"t0"}), Error);
}

}  // namespace
}  // namespace aiacc::launcher
