// A message that the library has lost, as libfabric 1.17 loses what is in the socket of a connection that it makes again: it tells
// neither end. What comes behind it shows that.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

#include "transports/active/active_fixture_test.h"
#include "transports/active/active_tapped_test.h"
#include "transports/active/frame.h"

namespace aiacc {
namespace {

using message_conformance::Completion;
using message_conformance::header_of;
using message_conformance::pattern;

class ActiveGap : public ::testing::TestWithParam<const active_test::Way*> {
 protected:
  void SetUp() override {
    const std::string& obstacle = active_test::obstacle(*GetParam());
    if (!obstacle.empty()) GTEST_SKIP() << obstacle;
  }
  // Posts three messages, of which the second is lost. Returns once the third has come, and something behind it has.
  void lose_one(active_test::TappedPorts& two) {
    int sent = 0;
    two.tap = [&](active_test::TappedPorts::Sent& one) -> std::optional<active::Began> {
      if (one.message.frame.kind != active::FrameKind::kMessage || ++sent != 2) return std::nullopt;
      return active::Began::kDone;
    };
    for (std::uint32_t tag = 1; tag <= 3; ++tag) {
      bytes.push_back(pattern(100, tag));
      tcp_test::post(*two.ports[0], 1, header_of(tag, 100), bytes.back(), told);
    }
    ASSERT_TRUE(two.run_until([&] { return sent == 3 && told.told == 3 && two.receiver[1].placed == 1; }));
  }
  void run(active_test::TappedPorts& two, Duration time) {
    io::RealClock clock;
    const Instant end = after(clock.now(), time);
    two.run_until([&] { return clock.now() > end; });
  }

  std::vector<std::vector<std::byte>> bytes;
  Completion told;
};

TEST_P(ActiveGap, BreaksThePathWhereThereIsALimit) {
  active_test::TappedPorts two(*GetParam(), 1, {}, std::chrono::milliseconds(80));
  lose_one(two);
  ASSERT_TRUE(two.run_until([&] { return two.receiver[1].broken > 0 || !two.receiver[1].lost.empty(); }));
  EXPECT_EQ(two.receiver[1].placed, 1u) << "nothing is offered out of its order";
  ASSERT_EQ(two.receiver[1].lost.size(), 1u)
      << "without another network, and without patience, a broken path is a loss";
  EXPECT_NE(two.receiver[1].lost.front().second.message().find("messages were lost with it"), std::string::npos)
      << two.receiver[1].lost.front().second.message();
}

// The sender's memory comes back with the path, and not after the time in which the peer must let go of it.
TEST_P(ActiveGap, ALostMessageThatIsWithdrawnBreaksThePath) {
  active_test::TappedPorts two(*GetParam(), 1, {}, std::chrono::milliseconds(80));
  bool lost = false;
  two.tap = [&](active_test::TappedPorts::Sent& one) -> std::optional<active::Began> {
    if (one.message.frame.kind != active::FrameKind::kMessage) return std::nullopt;
    lost = true;
    return active::Began::kPending;
  };
  bytes.push_back(pattern(300'000, 1));
  tcp_test::post(*two.ports[0], 1, header_of(1, bytes.back().size()), bytes.back(), told);
  ASSERT_TRUE(two.run_until([&] { return lost; }));
  two.ports[0]->withdraw(told);
  ASSERT_TRUE(two.run_until([&] { return !two.receiver[1].lost.empty(); }));
  EXPECT_NE(two.receiver[1].lost.front().second.message().find("messages were lost with it"), std::string::npos)
      << two.receiver[1].lost.front().second.message();
}

TEST_P(ActiveGap, TheLastMessageIsMissedBecauseThePeerSaysHowManyThereAre) {
  active_test::TappedPorts two(*GetParam(), 1, {}, std::chrono::milliseconds(80));
  int sent = 0, counts = 0;
  two.tap = [&](active_test::TappedPorts::Sent& one) -> std::optional<active::Began> {
    if (one.message.frame.kind == active::FrameKind::kCounts) ++counts;
    if (one.message.frame.kind != active::FrameKind::kMessage || ++sent != 2) return std::nullopt;
    return active::Began::kDone;
  };
  for (std::uint32_t tag = 1; tag <= 2; ++tag) {
    bytes.push_back(pattern(100, tag));
    tcp_test::post(*two.ports[0], 1, header_of(tag, 100), bytes.back(), told);
  }
  ASSERT_TRUE(two.run_until([&] { return !two.receiver[1].lost.empty(); }));
  EXPECT_EQ(two.receiver[1].placed, 1u);
  EXPECT_GE(counts, 1);
}

TEST_P(ActiveGap, WhatHasAllComeIsCountedAFewTimesAndBreaksNothing) {
  active_test::TappedPorts two(*GetParam(), 1, {}, std::chrono::milliseconds(8));
  int counts = 0;
  two.tap = [&](active_test::TappedPorts::Sent& one) -> std::optional<active::Began> {
    if (one.message.frame.kind == active::FrameKind::kCounts && one.message.frame.from == 0) ++counts;
    return std::nullopt;
  };
  for (std::uint32_t tag = 1; tag <= 3; ++tag) {
    bytes.push_back(pattern(100'000 * tag, tag));
    tcp_test::post(*two.ports[0], 1, header_of(tag, bytes.back().size()), bytes.back(), told);
  }
  ASSERT_TRUE(two.run_until([&] { return two.receiver[1].placed == 3 && told.told == 3 && counts >= 7; }));
  run(two, std::chrono::milliseconds(300));
  EXPECT_TRUE(two.receiver[1].lost.empty() && two.receiver[1].broken == 0);
  EXPECT_EQ(counts, 7) << "at 4, 8, 16, 32, 64, 128 and 256 ms after the last message, and not for ever";
}

// Its port may be closed.
TEST_P(ActiveGap, WhoHasLeftIsNotTold) {
  active_test::TappedPorts two(*GetParam(), 1, {}, std::chrono::milliseconds(80));
  int counts = 0;
  two.tap = [&](active_test::TappedPorts::Sent& one) -> std::optional<active::Began> {
    if (one.message.frame.kind == active::FrameKind::kCounts) ++counts;
    return std::nullopt;
  };
  bytes.push_back(pattern(100, 1));
  tcp_test::post(*two.ports[0], 1, header_of(1, 100), bytes.back(), told);
  ASSERT_TRUE(two.run_until([&] { return two.receiver[1].placed == 1; }));
  Stop stop;
  Task<void> leaving = two.ports[1]->leave(std::chrono::seconds(10), stop);
  leaving.start();
  ASSERT_TRUE(two.run_until([&] { return leaving.done(); }));
  const int before = counts;  // one, where all that took longer than 40 ms
  run(two, std::chrono::milliseconds(250));
  EXPECT_EQ(counts, before);
}

TEST_P(ActiveGap, OtherwiseItIsWaitedFor) {
  active_test::TappedPorts two(*GetParam(), 1, {});
  lose_one(two);
  run(two, std::chrono::milliseconds(200));
  EXPECT_EQ(two.receiver[1].placed, 1u);
  EXPECT_TRUE(two.receiver[1].lost.empty() && two.receiver[1].broken == 0);
}

INSTANTIATE_TEST_SUITE_P(Active, ActiveGap, ::testing::Values(&active_test::kOfiOverTcp, &active_test::kUcxOverTcp),
                         [](const auto& of) { return std::string(of.param->name); });

}  // namespace
}  // namespace aiacc
