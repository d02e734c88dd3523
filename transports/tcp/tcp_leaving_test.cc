// How a TCP port leaves in order: what it has sent arrives, and its peers do not take it for lost.
#include <gtest/gtest.h>

#include "transports/tcp/tcp_fixture_test.h"

namespace aiacc::tcp_test {
namespace {

using message_conformance::Action;
using message_conformance::Completion;
using message_conformance::header_of;
using message_conformance::pattern;
using message_conformance::Recorder;

TEST(TcpLeaving, WhoLeavesInOrderIsNotMissedAndLosesNothing) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SimTcp net(2, seed);
    Recorder receiver[2];
    Completion told;
    for (int rank = 0; rank < 2; ++rank) net.port(rank).set_receiver(receiver[rank]);
    std::vector<std::byte> large = pattern(300'000, 5), small = pattern(10, 6);
    post(net.port(0), 1, header_of(1, large.size()), large, told);
    post(net.port(0), 1, header_of(2, small.size()), small, told);
    bool left = false;
    Task<void> leaving = leave(&net.port(0), &left);
    leaving.start();
    ASSERT_TRUE(net.run_until([&] { return left; })) << seed;
    EXPECT_EQ(receiver[1].placed, 2u);
    EXPECT_EQ(told.told, 2);
    EXPECT_LT(net.world.now().time_since_epoch(), std::chrono::milliseconds(100)) << "it waited for its limit";
    net.run_until([] { return false; });
    EXPECT_TRUE(receiver[1].lost.empty()) << receiver[1].lost[0].second.message();
    Completion late;
    post(net.port(1), 0, header_of(3, small.size()), small, late);
    ASSERT_TRUE(net.run_until([&] { return late.told == 1 && receiver[1].lost.size() == 1; }));
    EXPECT_EQ(receiver[1].lost[0].second.message(), "rank 0 on host 0 has left the job");
  }
}

// What a peer has not acknowledged when it goes never reaches it, and whoever waits for that hears so.
TEST(TcpLeaving, WhatIsSentToWhoLeavesMeanwhileFails) {
  SimTcp net(2);
  Recorder receiver[2];
  Completion hello, told;
  for (int rank = 0; rank < 2; ++rank) net.port(rank).set_receiver(receiver[rank]);
  std::vector<std::byte> first = pattern(TcpPort::kKeptBytes + 1, 1), large = pattern(10'000'000, 1);
  post(net.port(1), 0, header_of(1, first.size()), first, hello);
  ASSERT_TRUE(net.run_until([&] { return hello.told == 1; })) << "acknowledged, so that nothing keeps it from going";
  post(net.port(0), 1, header_of(2, large.size()), large, told);
  bool left = false;
  Task<void> leaving = leave(&net.port(1), &left);
  leaving.start();
  ASSERT_TRUE(net.run_until([&] { return left && told.told == 1 && receiver[0].lost.size() == 1; }));
  EXPECT_EQ(as_error(told.error).message(), "rank 1 on host 1 has left the job");
  EXPECT_EQ(receiver[0].lost[0].second.message(), "rank 1 on host 1 has left the job");
}

// More than one write takes: the last word, and the question for it, come after all of it.
TEST(TcpLeaving, WhoLeavesAfterManySmallMessagesNeedsNoLimit) {
  SimTcp net(2);
  Recorder receiver[2];
  Completion told;
  for (int rank = 0; rank < 2; ++rank) net.port(rank).set_receiver(receiver[rank]);
  std::vector<std::byte> bytes = pattern(1000, 5);
  for (std::uint32_t tag = 0; tag < 230; ++tag) post(net.port(0), 1, header_of(tag, bytes.size()), bytes, told);
  bool left = false;
  Task<void> leaving = leave(&net.port(0), &left);
  leaving.start();
  ASSERT_TRUE(net.run_until([&] { return left; }));
  EXPECT_EQ(receiver[1].placed, 230u);
  EXPECT_LT(net.world.now().time_since_epoch(), std::chrono::milliseconds(100)) << "it waited for its limit";
}

TEST(TcpLeaving, BothMayLeaveAtOnce) {
  RealTcp net(2);
  Recorder receiver[2];
  Completion told;
  for (int rank = 0; rank < 2; ++rank) net.port(rank).set_receiver(receiver[rank]);
  std::vector<std::byte> bytes = pattern(1 << 20, 7);
  for (int rank = 0; rank < 2; ++rank) post(net.port(rank), 1 - rank, header_of(1, bytes.size()), bytes, told);
  bool left[2] = {};
  Task<void> first = leave(static_cast<TcpPort*>(&net.port(0)), &left[0], std::chrono::seconds(60));
  Task<void> second = leave(static_cast<TcpPort*>(&net.port(1)), &left[1], std::chrono::seconds(60));
  first.start();
  second.start();
  ASSERT_TRUE(net.run_until([&] { return left[0] && left[1]; }));
  for (const Recorder& each : receiver) {
    EXPECT_EQ(each.placed, 1u);
    EXPECT_TRUE(each.lost.empty());
  }
  EXPECT_EQ(told.told, 2);
}

}  // namespace
}  // namespace aiacc::tcp_test
