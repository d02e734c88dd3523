#include "runtime/info/lossless_classes.h"

#include <gtest/gtest.h>

namespace aiacc::info {
namespace {

const std::vector<std::string> kDevices = {"eth0", "eth1"};

// eth0 has PFC on priority 3 and gives DSCP 34 priority 4; other devices have no DCB.
io::PriorityPause ask(const std::string& device) {
  io::PriorityPause pause;
  if (device != "eth0") return pause;
  pause.enabled = 1U << 3;
  pause.priority_of_dscp = {{34, 4}};
  return pause;
}

std::vector<std::string> sentences(const std::string& text) {
  const io::TrafficMarks marks = io::TrafficMarks::parse("AIACC_TC_BULK", text);
  std::vector<std::string> all;
  for (const Finding& one : judge("AIACC_TC_BULK", marks, lossless_on(marks, kDevices, ask))) {
    EXPECT_EQ(one.level, Finding::Level::kNote);
    EXPECT_EQ(one.about, "AIACC_TC_BULK");
    EXPECT_FALSE(one.cure.empty());
    all.push_back(one.sentence);
  }
  return all;
}

const std::string kNothing = "it says lossless=yes, but eth1 says nothing of priority flow control (PFC)";

TEST(LosslessClasses, HavePfcOnThePriorityOfTheirDscp) {
  EXPECT_EQ(sentences("dscp=26,lossless=yes"),
            (std::vector<std::string>{"eth0 has PFC on priority 3, which its packets have (DSCP 26)", kNothing}));
}

TEST(LosslessClasses, HavePfcOnThePriorityOfTheSocketIfTheyHaveNoDscp) {
  EXPECT_EQ(sentences("priority=3,lossless=yes"),
            (std::vector<std::string>{"eth0 has PFC on priority 3, which its packets have", kNothing}));
}

TEST(LosslessClasses, AreToldOfAPriorityWithoutPfc) {
  EXPECT_EQ(sentences("dscp=34,priority=3,lossless=yes"),
            (std::vector<std::string>{"it says lossless=yes, but eth0 has no PFC on priority 4, which its packets have "
                                      "(DSCP 34): a full switch loses some of them",
                                      kNothing}));
  EXPECT_EQ(sentences("lossless=yes").front(),
            "it says lossless=yes, but eth0 has no PFC on priority 0, which its packets have: a full switch loses some "
            "of them");
  EXPECT_NE(sentences("priority=11,lossless=yes").front().find("no PFC on priority 11"), std::string::npos);
}

TEST(LosslessClasses, OthersAreNotAskedAbout) {
  const auto refuse = [](const std::string&) -> io::PriorityPause {
    ADD_FAILURE() << "a device was asked";
    return {};
  };
  for (const char* text : {"dscp=26", "dscp=26,lossless=no"}) {
    EXPECT_TRUE(lossless_on(io::TrafficMarks::parse("x", text), kDevices, refuse).empty());
  }
}

}  // namespace
}  // namespace aiacc::info
