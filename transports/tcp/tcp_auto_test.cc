// The number of connections of a pair, found while it sends: in virtual time, on a line on which each connection is limited.
#include <gtest/gtest.h>

#include "transports/tcp/outbound.h"
#include "transports/tcp/tcp_fixture_test.h"

namespace aiacc::tcp_test {
namespace {

using message_conformance::Completion;
using message_conformance::header_of;
using message_conformance::pattern;
using message_conformance::Recorder;
using tcp::Outbound;

constexpr std::uint64_t kLine = 100'000'000;

// Two ranks on a line, on which each connection has at most this.
class Capped : public SimTcp {
 public:
  explicit Capped(std::uint64_t cap, io::StreamRange here = {1, 64}, std::uint64_t seed = 42)
      : SimTcp(2, seed, Encryption::kNone, std::chrono::seconds(2), here, {}, model(cap)) {
    for (int rank = 0; rank < 2; ++rank) port(rank).set_receiver(receiver[rank]);
  }
  // Sends for so long, with a few messages under way. The bytes a second.
  double send_for(Duration time, std::size_t bytes = 2 << 20) {
    constexpr int kUnderWay = 4;
    std::vector<std::byte> payload = pattern(bytes, 3);
    const Instant began = world.now();
    const std::size_t before = receiver[1].placed;
    told.told = 0;
    int sent = 0;
    while (world.now() < after(began, time)) {
      for (; sent < told.told + kUnderWay; ++sent) post(port(0), 1, header_of(next_++, bytes), payload, told);
      EXPECT_TRUE(run_until([&] { return told.told > sent - kUnderWay; }));
    }
    const double speed = static_cast<double>(bytes) * told.told / seconds(world.now() - began);
    EXPECT_TRUE(run_until([&] { return told.told == sent && receiver[1].placed == before + sent; }));
    EXPECT_TRUE(receiver[1].messages.back().bytes == payload);
    receiver[1].messages.clear();
    return speed;
  }

  Recorder receiver[2];
  Completion told;

 private:
  static sim::StreamModel model(std::uint64_t cap) {
    sim::StreamModel model;
    model.bytes_per_second = cap;
    model.host_bytes_per_second = kLine;
    model.window_bytes = 512 << 10;
    return model;
  }
  std::uint32_t next_ = 1;
};

TEST(TcpAuto, FourAreFoundWhereEachHasThirtyPercent) {
  for (std::uint64_t seed = 1; seed <= 7; ++seed) {
    Capped net(kLine * 3 / 10, {1, 64}, seed);
    EXPECT_LE(net.send_for(std::chrono::milliseconds(150)), 0.31 * kLine) << seed;
    net.send_for(std::chrono::seconds(4));
    EXPECT_EQ(net.port(0).wanted_connections(1), 4) << seed;
    EXPECT_EQ(net.port(0).chunks_in_flight(1), 8) << "two for each";
    EXPECT_GE(net.send_for(std::chrono::milliseconds(500)), 0.95 * kLine) << seed;
    EXPECT_EQ(net.port(0).wanted_connections(1), 4) << seed;
    EXPECT_EQ(net.port(1).wanted_connections(0), 1) << "it sends nothing long";
    EXPECT_EQ(net.port(1).chunks_in_flight(0), 2);
  }
}

TEST(TcpAuto, OneStaysWhereItHasTheLine) {
  Capped net(kLine);
  const double with_one = net.send_for(std::chrono::milliseconds(200));
  const double afterwards = net.send_for(std::chrono::seconds(5));
  EXPECT_EQ(net.port(0).wanted_connections(1), 1);
  EXPECT_LE(net.port(0).connections(1), 2) << "a second one was tried";
  EXPECT_GE(afterwards, 0.98 * with_one);
}

TEST(TcpAuto, ShortMessagesNeverOpenASecondOne) {
  Capped net(kLine / 10);
  net.send_for(std::chrono::seconds(2), Outbound::kWholeBytes);
  EXPECT_EQ(net.port(0).connections(1), 1);
}

TEST(TcpAuto, AnotherLimitIsFound) {
  Capped net(kLine);
  net.send_for(std::chrono::seconds(1));
  net.network.cap_all(kLine * 3 / 10);
  net.send_for(std::chrono::seconds(5));
  EXPECT_GE(net.send_for(std::chrono::milliseconds(500)), 0.95 * kLine);
}

TEST(TcpAuto, ItStaysInItsRange) {
  Capped net(kLine / 10, {2, 3});
  net.send_for(std::chrono::seconds(4));
  EXPECT_EQ(net.port(0).wanted_connections(1), 3);
  Capped wide(kLine, {2, 3});
  wide.send_for(std::chrono::seconds(4));
  EXPECT_EQ(wide.port(0).wanted_connections(1), 2);
}

class OneToFourSim : public SimTcp {
 public:
  OneToFourSim() : SimTcp(message_conformance::kRanks, 42, Encryption::kNone, std::chrono::seconds(2), {1, 4}) {}
};
class OneToFourReal : public RealTcp {
 public:
  OneToFourReal() : RealTcp(message_conformance::kRanks, "127.0.0.1", {1, 4}) {}
};

}  // namespace
}  // namespace aiacc::tcp_test

namespace aiacc::message_conformance {
using namespace tcp_test;
INSTANTIATE_TEST_SUITE_P(TcpOneToFourSim, MessageConformance, ::testing::Values(&make<OneToFourSim>));
INSTANTIATE_TEST_SUITE_P(TcpOneToFourReal, MessageConformance, ::testing::Values(&make<OneToFourReal>));
}  // namespace aiacc::message_conformance
