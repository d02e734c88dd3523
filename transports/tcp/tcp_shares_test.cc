// How two ranks' bulk and background traffic share a line, in virtual time: over one connection, and over one each.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "transports/tcp/tcp_fixture_test.h"

namespace aiacc::tcp_test {
namespace {

using message_conformance::Completion;
using message_conformance::header_of;
using message_conformance::pattern;
using message_conformance::Recorder;

constexpr std::uint64_t kHostLine = 100'000'000;  // bytes a second, of the host
constexpr std::size_t kMessage = 512 << 10;

TcpPort::Marks marks_of(const char* latency, const char* bulk, const char* background) {
  return {io::TrafficMarks{}, io::TrafficMarks::parse("lat", latency), io::TrafficMarks::parse("bulk", bulk),
          io::TrafficMarks::parse("bg", background)};
}

class SharesSim : public SimTcp {
 public:
  explicit SharesSim(const TcpPort::Marks& marks, int streams = 1, Duration window = std::chrono::milliseconds(1))
      : SimTcp(2, 42, Encryption::kNone, std::chrono::seconds(2), streams, marks, line_of(window)) {
    for (int rank = 0; rank < 2; ++rank) port(rank).set_receiver(receiver[rank]);
  }
  void send(TrafficClass traffic, int count) {
    for (int i = 0; i < count; ++i) post(port(0), 1, header_of(++tag_, kMessage, traffic), payload_, told);
  }
  int placed(TrafficClass traffic) const {
    return static_cast<int>(
        std::count_if(receiver[1].messages.begin(), receiver[1].messages.end(),
                      [&](const auto& each) { return each.placed && each.header.traffic == traffic; }));
  }
  bool until(TrafficClass traffic, int count) {
    std::size_t seen = receiver[1].placed;
    bool there = placed(traffic) >= count;
    return run_until([&] {
      if (std::exchange(seen, receiver[1].placed) != seen) there = placed(traffic) >= count;
      return there;
    });
  }

  Recorder receiver[2];
  Completion told;

 private:
  static sim::StreamModel line_of(Duration latency) {
    sim::StreamModel model;
    model.latency_between_hosts = latency;
    model.host_bytes_per_second = kHostLine;
    return model;
  }

  std::vector<std::byte> payload_ = pattern(kMessage, 1);
  std::uint32_t tag_ = 0;
};

constexpr auto kBulk = TrafficClass::kBulk;
constexpr auto kBackground = TrafficClass::kBackground;

// To within the two messages that are under way in each class.
TEST(TcpShares, AreThoseOfTheClassesOnOneConnection) {
  for (const auto& [bulk, background, share] :
       {std::tuple("", "", 9), {"share=3", "share=1", 3}, {"share=1", "share=1", 1}}) {
    for (const int streams : {1, 2}) {
      SharesSim world(marks_of("", bulk, background), streams);
      world.send(kBackground, 80);
      world.send(kBulk, 60);
      ASSERT_TRUE(world.until(kBulk, 54));
      EXPECT_NEAR(world.placed(kBackground), 54.0 / share, 2) << bulk << ", " << streams << " connections";
    }
  }
}

// The line would give each connection one half.
TEST(TcpShares, AreThoseOfTheClassesOnConnectionsOfTheirOwn) {
  for (const auto& [bulk, background, share] : {std::tuple("dscp=10", "dscp=8", 9),
                                                {"dscp=10,share=3", "dscp=8,share=1", 3},
                                                {"dscp=10,share=1", "dscp=8,share=3", 0}}) {
    SharesSim world(marks_of("", bulk, background));
    world.send(kBackground, 100);
    world.send(kBulk, 100);
    ASSERT_TRUE(world.until(share == 0 ? kBackground : kBulk, 90));
    if (share == 0) {
      EXPECT_NEAR(world.placed(kBulk), 30, 4);
    } else {
      EXPECT_NEAR(world.placed(kBackground), 90.0 / share, 4);
    }
  }
}

TEST(TcpShares, WhatIsIdleIsLent) {
  for (const char* background : {"", "dscp=8"}) {
    SharesSim world(marks_of("", "", background));
    const Instant began = world.world.now();
    world.send(kBackground, 190);
    ASSERT_TRUE(world.until(kBackground, 190));
    const double rate = 190.0 * kMessage / seconds(world.world.now() - began);
    EXPECT_GE(rate, 0.95 * kHostLine) << background;
  }
}

// Bulk's connection stands still: background does not wait for it.
TEST(TcpShares, AClassThatCannotSendHoldsUpNoOther) {
  SharesSim world(marks_of("", "dscp=10", "dscp=8"));
  world.send(kBulk, 1);
  world.send(kBackground, 1);
  ASSERT_TRUE(world.until(kBackground, 1) && world.until(kBulk, 1));
  world.network.cap(0, 1, 0, 1000);  // bulk's
  world.send(kBulk, 20);
  const Instant began = world.world.now();
  world.send(kBackground, 190);
  ASSERT_TRUE(world.until(kBackground, 191));
  EXPECT_LE(world.placed(kBulk), 1);
  EXPECT_LE(seconds(world.world.now() - began), 1.0 + 0.3) << "at the rate of the line, after the patience of 200 ms";
}

TEST(TcpShares, AShortMessageWaitsForOneChunkOfALongOne) {
  SharesSim world(marks_of("share=90", "", ""));
  world.send(kBulk, 50);
  ASSERT_TRUE(world.until(kBulk, 5));
  std::vector<std::byte> small = pattern(8192, 2);
  const Instant began = world.world.now();
  post(world.port(0), 1, header_of(1000, small.size(), TrafficClass::kLatency), small, world.told);
  ASSERT_TRUE(world.until(TrafficClass::kLatency, 1));
  // What the connection has taken: its window, and a batch. Then a chunk.
  EXPECT_LE(seconds(world.world.now() - began), 0.002 + 4.0 * (256 << 10) / kHostLine);
}

std::uint64_t rate_of(int descriptor) {
  std::uint64_t rate = 0;
  socklen_t bytes = sizeof rate;
  return getsockopt(descriptor, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, &bytes) == 0 ? rate : 0;
}

// The rates of all connected TCP sockets of this process that have one, bytes a second, ascending.
std::vector<std::uint64_t> rates_of_sockets() {
  std::vector<std::uint64_t> found;
  for (int descriptor = 3; descriptor < 256; ++descriptor) {
    sockaddr_storage peer{};
    socklen_t bytes = sizeof peer;
    if (getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &bytes) != 0 || peer.ss_family != AF_INET) continue;
    if (const std::uint64_t rate = rate_of(descriptor); rate != ~std::uint64_t{0}) found.push_back(rate);
  }
  std::sort(found.begin(), found.end());
  return found;
}

// Each end paces what it sends; connections that share messages share the rate, too.
TEST(TcpShares, AConnectionIsPacedAsItsClassIs) {
  for (const int streams : {1, 2}) {
    RealTcp world(2, "127.0.0.1", streams, marks_of("", "rate=800mbit", "rate=80mbit"));
    Recorder receiver[2];
    Completion told;
    for (int rank = 0; rank < 2; ++rank) world.port(rank).set_receiver(receiver[rank]);
    std::vector<std::byte> payload = pattern(kMessage, 1), background = pattern(100, 2);
    for (int rank = 0; rank < 2; ++rank) {
      post(world.port(rank), 1 - rank, header_of(1, payload.size(), kBulk), payload, told);
      post(world.port(rank), 1 - rank, header_of(2, background.size(), kBackground), background, told);
    }
    std::vector<std::uint64_t> rates(2, 10'000'000);  // both ends
    rates.resize(2 + 2 * static_cast<std::size_t>(streams), 100'000'000 / static_cast<std::uint64_t>(streams));
    EXPECT_TRUE(world.run_until([&] { return told.told == 4 && rates_of_sockets() == rates; }));
  }
}

}  // namespace
}  // namespace aiacc::tcp_test
