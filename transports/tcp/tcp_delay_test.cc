// Latency beside bulk whose delay is limited (AIACC_TC_BULK=delay=..., or while latency is in use), in virtual time: a host's line with a deep queue, and sums over the
// rank that shares it.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/sim/random.h"
#include "transports/qos/latency_use.h"
#include "transports/tcp/tcp_fixture_test.h"

namespace aiacc::tcp_test {
namespace {

using namespace std::chrono_literals;
using message_conformance::Completion;
using message_conformance::header_of;
using message_conformance::pattern;
using message_conformance::Recorder;

constexpr std::uint64_t kDelayLine = 12'500'000;  // 100 Mbit/s
constexpr std::size_t kShortBytes = 8 << 10;
constexpr std::size_t kLongBytes = 1 << 20;
constexpr Duration kOneWay = 100us;

sim::StreamModel deep_queue() {
  sim::StreamModel model;
  model.latency_between_hosts = kOneWay;
  model.host_bytes_per_second = kDelayLine;
  model.window_bytes = 1 << 20;  // 84 ms of the line, for each connection
  return model;
}

TcpPort::Marks bulk_with(const std::string& text) {
  TcpPort::Marks marks;
  marks[static_cast<std::size_t>(TrafficClass::kBulk)] = io::TrafficMarks::parse("bulk", text);
  return marks;
}

// Windows of a few segments in which all classes but control are: pieces are cut anywhere.
TcpPort::Marks narrow() {
  const io::TrafficMarks each = io::TrafficMarks::parse("each", "delay=10us");
  return {io::TrafficMarks{}, each, each, each};
}
class NarrowSim : public SimTcp {
 public:
  explicit NarrowSim(Encryption protection = Encryption::kNone, io::StreamRange streams = {})
      : SimTcp(message_conformance::kRanks, 42, protection, 2s, streams, narrow()) {}
};
class NarrowSealedSim : public NarrowSim {
 public:
  NarrowSealedSim() : NarrowSim(Encryption::kData) {}
};
// With four connections for a pair, of which one breaks now and then.
class NarrowDyingSim : public NarrowSim {
 public:
  NarrowDyingSim() : NarrowSim(Encryption::kNone, 4) {}
  bool run_until(const std::function<bool()>& done) {
    return NarrowSim::run_until([&] {
      std::uint64_t parts = 0;
      for (const auto& host : hosts) parts += host->port->parts_sent();
      if (parts >= next_) {
        next_ = parts + 50;
        const int one = static_cast<int>(dice_.below(hosts.size()));
        network.break_stream(one, (one + 1) % static_cast<int>(hosts.size()), dice_.below(4));
      }
      return done();
    });
  }

 private:
  sim::Random dice_{7};
  std::uint64_t next_ = 50;
};
// Latency is in use; four connections for a pair.
class BesideLatencySim : public SimTcp {
 public:
  BesideLatencySim() : SimTcp(message_conformance::kRanks, 42, Encryption::kIntegrity, 2s, 4) {
    for (const auto& host : hosts) host->port->note_latency();
  }
};
class BesideLatencyReal : public RealTcp {
 public:
  BesideLatencyReal() {
    for (const auto& port : ports) port->note_latency();
  }
};
class NarrowReal : public RealTcp {
 public:
  NarrowReal() : RealTcp(message_conformance::kRanks, "127.0.0.1", {}, narrow()) {}
};

// Rank 0 sends long messages to all others, and meanwhile short ones to rank 1, one after the other.
class DelaySim : public SimTcp {
 public:
  explicit DelaySim(const std::string& bulk, int ranks = 2, io::StreamRange streams = {},
                    Encryption protection = Encryption::kNone)
      : SimTcp(ranks, 42, protection, 2s, streams, bulk_with(bulk), deep_queue()),
        receivers_(static_cast<std::size_t>(ranks)) {
    for (int rank = 0; rank < ranks; ++rank) port(rank).set_receiver(receivers_[static_cast<std::size_t>(rank)]);
  }
  void send_long(int to, int count) {
    for (int i = 0; i < count; ++i) post(port(0), to, header_of(++tag_, kLongBytes, TrafficClass::kBulk), long_, told_);
  }
  // How long a short message takes, or so many at once.
  Duration send_short(int count = 1) {
    if (says_so) port(0).note_latency();
    const Instant began = world.now();
    shorts_ += count;
    for (int i = 0; i < count; ++i) {
      post(port(0), 1, header_of(++tag_, kShortBytes, TrafficClass::kLatency), short_, told_);
    }
    EXPECT_TRUE(run_until([&] { return placed(1, TrafficClass::kLatency) == shorts_; }));
    return world.now() - began;
  }
  Duration slowest_short(int count) {
    Duration slowest{};
    for (int i = 0; i < count; ++i) {
      slowest = std::max(slowest, send_short());
      const Instant next = after(world.now(), 1ms + i * 37us);
      world.run_while_not([&] { return world.now() >= next; });
    }
    return slowest;
  }
  int placed(int rank, TrafficClass traffic) const {
    const auto& messages = receivers_[static_cast<std::size_t>(rank)].messages;
    return static_cast<int>(std::count_if(messages.begin(), messages.end(), [&](const auto& each) {
      return each.placed && each.header.traffic == traffic;
    }));
  }

  void pass(Duration time) {
    struct Alarm : Timer {
      void expired() noexcept override { rang = true; }
      bool rang = false;
    } alarm;
    hosts[0]->loop.arm(alarm, after(world.now(), time));
    world.run_while_not([&] { return alarm.rang; });
  }
  bool says_so = false;  // that latency is in use

 private:
  std::vector<Recorder> receivers_;
  Completion told_;
  std::vector<std::byte> long_ = pattern(kLongBytes, 1), short_ = pattern(kShortBytes, 2);
  std::uint32_t tag_ = 0;
  int shorts_ = 0;
};

Duration on_the_line(std::uint64_t bytes) {
  return Duration(static_cast<std::int64_t>(bytes * 1'000'000'000 / kDelayLine));
}

// Both connections are there.
void warm_up(DelaySim& world, int ranks = 2) {
  world.send_short();
  for (int to = 1; to < ranks; ++to) {
    world.send_long(to, 1);
    ASSERT_TRUE(world.run_until([&] { return world.placed(to, TrafficClass::kBulk) == 1; }));
  }
}

TEST(TcpDelay, LatencyWaitsNoLongerThanTheLimitAndAPacket) {
  for (const io::StreamRange streams : {io::StreamRange(1), io::StreamRange(4)}) {
    for (const Encryption protection : {Encryption::kNone, Encryption::kIntegrity}) {
      DelaySim world("dscp=10,delay=2ms", 2, streams, protection);
      warm_up(world);
      const Duration idle = world.slowest_short(20);
      world.send_long(1, 8);
      const Instant began = world.world.now();
      const Duration beside = world.slowest_short(60);
      EXPECT_LE(beside, 2 * idle + on_the_line(64 << 10)) << streams.most;
      EXPECT_LT(world.placed(1, TrafficClass::kBulk), 9) << "bulk was under way all the time";
      ASSERT_TRUE(world.run_until([&] { return world.placed(1, TrafficClass::kBulk) == 9; }));
      const Duration bulk = world.world.now() - began;
      EXPECT_LE(bulk, 10 * on_the_line(8 * kLongBytes) / 9)
          << "nine tenths of the line, with latency's " << streams.most;
    }
  }
}

// Over the connection of both. A short message waits for a chunk that is being written and for what is under way before it.
TEST(TcpDelay, BulkKeepsALimitByItselfWhileLatencyIsInUse) {
  for (const char* const bulk : {"", "dscp=10"}) {
    DelaySim world(bulk);
    warm_up(world);
    const Duration idle = world.slowest_short(20);
    world.send_long(1, 3);  // they fill the queue before latency is in use
    EXPECT_GE(world.slowest_short(5), 50ms) << bulk;
    ASSERT_TRUE(world.run_until([&] { return world.placed(1, TrafficClass::kBulk) == 4; }));
    world.says_so = true;
    world.send_short();
    world.send_long(1, 8);
    const Instant began = world.world.now();
    EXPECT_LE(world.slowest_short(60), 2 * idle + on_the_line(64 << 10) + LatencyUse::kDelay) << bulk;
    EXPECT_LT(world.placed(1, TrafficClass::kBulk), 12) << "bulk was under way all the time";
    ASSERT_TRUE(world.run_until([&] { return world.placed(1, TrafficClass::kBulk) == 12; }));
    EXPECT_LE(world.world.now() - began, 10 * on_the_line(8 * kLongBytes) / 9 + on_the_line(61 * kShortBytes))
        << "nine tenths of what latency leaves";
  }
}

// No more bulk is taken than there is room for in its window.
TEST(TcpDelay, ShortMessagesWaitForNoMoreBulkThanItsWindowHasRoomFor) {
  DelaySim world("");
  warm_up(world);
  const Duration idle = world.slowest_short(20);
  world.says_so = true;
  world.send_short();
  world.send_long(1, 8);
  world.slowest_short(10);
  // A chunk that is being written, and two packets.
  EXPECT_LE(world.slowest_short(100), idle + LatencyUse::kDelay + on_the_line((16 << 10) + 2 * 1500));
  EXPECT_LT(world.placed(1, TrafficClass::kBulk), 9) << "bulk was under way all the time";
}

// What is under way when latency comes into use is not followed by more until little of it is left.
TEST(TcpDelay, ALimitBeginsInTheMidstOfBulk) {
  DelaySim world("");
  warm_up(world);
  const Duration idle = world.slowest_short(20);
  world.send_long(1, 24);
  EXPECT_GE(world.slowest_short(2), 50ms);
  world.says_so = true;
  world.slowest_short(6);
  EXPECT_LE(world.slowest_short(20), 2 * idle + on_the_line(64 << 10) + LatencyUse::kDelay);
  EXPECT_LT(world.placed(1, TrafficClass::kBulk), 25);
}

TEST(TcpDelay, TheLimitEndsSomeTimeAfterLatency) {
  DelaySim world("");
  warm_up(world);
  world.says_so = true;
  world.send_short();
  world.says_so = false;
  world.pass(LatencyUse::kStays);
  world.send_long(1, 4);
  EXPECT_GE(world.slowest_short(5), 50ms);
}

TEST(TcpDelay, TheUserMayWantNoLimit) {
  DelaySim world("delay=none");
  warm_up(world);
  world.says_so = true;
  world.send_long(1, 4);
  EXPECT_GE(world.slowest_short(5), 50ms);
}

// Nor the short chunks that go with it: bulk takes as long as if nobody used latency.
TEST(TcpDelay, WithoutALimitMessagesStayWhole) {
  Duration took[2];
  for (const bool in_use : {false, true}) {
    DelaySim world("delay=none");
    warm_up(world);
    if (in_use) world.port(0).note_latency();
    const Instant began = world.world.now();
    world.send_long(1, 4);
    ASSERT_TRUE(world.run_until([&] { return world.placed(1, TrafficClass::kBulk) == 5; }));
    took[in_use] = world.world.now() - began;
  }
  EXPECT_EQ(took[1], took[0]);
}

// The limit is one of bulk and background.
TEST(TcpDelay, ManyShortMessagesAtOnceAreNotLimited) {
  Duration took[2];
  for (const bool in_use : {false, true}) {
    DelaySim world("dscp=10");
    warm_up(world);
    world.says_so = in_use;
    took[in_use] = world.send_short(64);
  }
  EXPECT_EQ(took[1], took[0]);
}

TEST(TcpDelay, WithoutALimitItWaitsForTheWholeQueue) {
  DelaySim world("dscp=10");
  warm_up(world);
  world.send_long(1, 8);
  EXPECT_GE(world.slowest_short(10), 50ms);
}

// The sum over peers is what the limit says, because each one's window is by its own share of the line.
TEST(TcpDelay, BulkToFourPeersKeepsNoLongerQueueThanToOne) {
  DelaySim world("dscp=10,delay=2ms", 5);
  warm_up(world, 5);
  const Duration idle = world.slowest_short(20);
  for (int to = 1; to < 5; ++to) world.send_long(to, 3);
  world.slowest_short(20);  // until the windows are what they are to be
  EXPECT_LE(world.slowest_short(40), 2 * idle + on_the_line(64 << 10));
  for (int to = 1; to < 5; ++to) {
    ASSERT_TRUE(world.run_until([&] { return world.placed(to, TrafficClass::kBulk) == 4; }));
  }
}

}  // namespace
}  // namespace aiacc::tcp_test

namespace aiacc::message_conformance {
using namespace tcp_test;
INSTANTIATE_TEST_SUITE_P(TcpNarrowSim, MessageConformance, ::testing::Values(&make<NarrowSim>));
INSTANTIATE_TEST_SUITE_P(TcpNarrowSealedSim, MessageConformance, ::testing::Values(&make<NarrowSealedSim>));
INSTANTIATE_TEST_SUITE_P(TcpNarrowDyingSim, MessageConformance, ::testing::Values(&make<NarrowDyingSim>));
INSTANTIATE_TEST_SUITE_P(TcpBesideLatencySim, MessageConformance, ::testing::Values(&make<BesideLatencySim>));
INSTANTIATE_TEST_SUITE_P(TcpBesideLatencyReal, MessageConformance, ::testing::Values(&make<BesideLatencyReal>));
INSTANTIATE_TEST_SUITE_P(TcpNarrowReal, MessageConformance, ::testing::Values(&make<NarrowReal>));
INSTANTIATE_TEST_SUITE_P(TcpNarrowImmediateSim, MessageConformance, ::testing::Values(&make<Immediate<NarrowSim>>));
}  // namespace aiacc::message_conformance
