// Connections of different speeds share messages: how long that takes in virtual time, and that a slow one or one that stands
// still holds nothing up.
#include <gtest/gtest.h>

#include <algorithm>

#include "transports/tcp/tcp_fixture_test.h"

namespace aiacc::tcp_test {
namespace {

using message_conformance::Completion;
using message_conformance::header_of;
using message_conformance::pattern;
using message_conformance::Recorder;

constexpr std::uint64_t kUnit = 10'000'000;  // bytes a second

// Two ranks with connections of these speeds.
class Unequal : public SimTcp {
 public:
  explicit Unequal(std::initializer_list<std::uint64_t> units, Encryption protection = Encryption::kNone)
      : SimTcp(2, 42, protection, std::chrono::seconds(2), static_cast<int>(units.size())) {
    for (const std::uint64_t each : units) caps_.push_back(each * kUnit);
    for (int rank = 0; rank < 2; ++rank) port(rank).set_receiver(receiver[rank]);
    open();
  }
  // Sends messages of this length, so many at a time, one after the other. The bytes a second.
  double send(std::size_t bytes, int count, int at_a_time = 1) {
    std::vector<std::byte> payload = pattern(bytes, 3);
    const Instant began = world.now();
    told.told = 0;
    for (int sent = 0; sent < count;) {
      for (int i = 0; i < at_a_time; ++i, ++sent) post(port(0), 1, header_of(next_++, bytes), payload, told);
      EXPECT_TRUE(run_until([&] { return told.told == sent; }));
      EXPECT_TRUE(receiver[1].messages.back().bytes == payload);
    }
    return static_cast<double>(bytes) * count / seconds(world.now() - began);
  }
  void cap(std::size_t nth, std::uint64_t bytes_per_second) { network.cap(0, 1, nth, bytes_per_second); }

  Recorder receiver[2];
  Completion told;

 private:
  // All connections, which are then made as slow as they are to be.
  void open() {
    send(4 << 20, 1);
    EXPECT_TRUE(run_until([&] { return port(0).connections(1) == static_cast<int>(caps_.size()); }));
    for (std::size_t i = 0; i < caps_.size(); ++i) cap(i, caps_[i]);
    world.run_until(after(world.now(), std::chrono::seconds(2)));
  }

  std::vector<std::uint64_t> caps_;
  std::uint32_t next_ = 1;
};

TEST(TcpPull, UnequalConnectionsCarryTheSumOfTheirCaps) {
  Unequal net({1, 2, 4, 8});
  const double sum = 15.0 * kUnit;
  net.send(16 << 20, 3);  // they are measured, and headers move to the fastest
  EXPECT_GE(net.send(64 << 20, 1), 0.95 * sum);
  EXPECT_GE(net.send(16 << 20, 8), 0.95 * sum);
  EXPECT_GE(net.send(4 << 20, 64, 4), 0.95 * sum);
}

// A payload of few chunks cannot use all; it takes no longer than over the fastest alone.
TEST(TcpPull, ASlowConnectionDoesNotHoldShortMessages) {
  for (const std::size_t bytes : {100'000u, 300'000u, 1'000'000u}) {
    Unequal net({1, 2, 4, 8});
    net.send(16 << 20, 1);
    EXPECT_GE(net.send(bytes, 40), 0.7 * 8 * kUnit) << bytes;
  }
}

TEST(TcpPull, AConnectionThatStandsStillHoldsNothing) {
  for (const Encryption protection : {Encryption::kNone, Encryption::kIntegrity, Encryption::kData}) {
    Unequal net({8, 8, 8, 8}, protection);
    net.send(16 << 20, 1);
    net.cap(2, 1);  // a byte a second
    const Instant began = net.world.now();
    net.send(16 << 20, 4);
    const double alone = 4 * static_cast<double>(16 << 20) / (24.0 * kUnit);
    EXPECT_LT(seconds(net.world.now() - began), 1.3 * alone + 0.1) << static_cast<int>(protection);
    EXPECT_EQ(net.port(0).connections(1), 4);
  }
}

TEST(TcpPull, WhatIsSentAgainIsLittle) {
  Unequal net({4, 4, 4, 4});
  net.send(16 << 20, 20);
  EXPECT_EQ(net.port(0).parts_again(), 0u) << "equal connections need none";
}

// The receiver gets the same chunk twice, and the former connection still brings its copy when the message is over.
TEST(TcpPull, OwnersHaveTheirMemoryBackWhileACopyIsOnItsWay) {
  Unequal net({8, 8});
  net.send(8 << 20, 1);
  net.cap(1, 100'000);
  Completion told;
  std::vector<std::byte> payload = pattern(4 << 20, 5);
  const std::vector<std::byte> sent = payload;
  post(net.port(0), 1, header_of(1000, payload.size()), payload, told);
  ASSERT_TRUE(net.run_until([&] { return told.told == 1; }));
  EXPECT_GE(net.port(0).parts_again(), 1u);
  std::fill(payload.begin(), payload.end(), std::byte{0});
  payload = {};
  EXPECT_TRUE(net.receiver[1].messages.back().bytes == sent);
  net.world.run_until(after(net.world.now(), std::chrono::seconds(30)));
  EXPECT_TRUE(net.receiver[1].messages.back().bytes == sent);
  EXPECT_EQ(net.port(0).connections(1), 2);
}

TEST(TcpPull, HeadersMoveToTheFastConnection) {
  Unequal net({1, 16});
  net.send(16 << 20, 4);
  std::vector<std::byte> small = pattern(50'000, 1);
  Completion told;
  const Instant began = net.world.now();
  post(net.port(0), 1, header_of(5000, small.size()), small, told);
  ASSERT_TRUE(net.run_until([&] { return told.told == 1; }));
  EXPECT_LT(seconds(net.world.now() - began), 50'000.0 / kUnit) << "the first connection would take 5 ms";
}

}  // namespace
}  // namespace aiacc::tcp_test
