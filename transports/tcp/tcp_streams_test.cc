// Several connections between two ranks: opened for long messages, shared by chunks, and made again when they die.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>

#include "transports/tcp/tcp_fixture_test.h"

namespace aiacc::tcp_test {
namespace {

using message_conformance::Completion;
using message_conformance::header_of;
using message_conformance::kRanks;
using message_conformance::pattern;
using message_conformance::Recorder;

constexpr int kStreams = 4;
constexpr std::uint64_t kPartsOfALife = 50;

// Kills a connection after each 50 frames with bytes of messages, of all ports together.
class Killer {
 public:
  template <class Kill>
  void look(std::uint64_t parts, Kill&& kill) {
    for (; parts >= next_; next_ += kPartsOfALife) kill();
  }

 private:
  std::uint64_t next_ = kPartsOfALife;
};

class FourSim : public SimTcp {
 public:
  FourSim(Encryption protection = Encryption::kNone, int ranks = kRanks, std::uint64_t seed = 42)
      : SimTcp(ranks, seed, protection, std::chrono::seconds(2), kStreams) {}
};

class DyingFourSim : public FourSim {
 public:
  using FourSim::FourSim;
  bool run_until(const std::function<bool()>& done) {
    return FourSim::run_until([&] {
      std::uint64_t parts = 0;
      for (const auto& host : hosts) parts += host->port->parts_sent();
      killer_.look(parts, [this] { kill_one(); });
      return done();
    });
  }

  void kill_one() {
    const auto ranks = hosts.size();
    const auto one = static_cast<int>(dice_.below(ranks));
    const int other = (one + 1 + static_cast<int>(dice_.below(ranks - 1))) % static_cast<int>(ranks);
    network.break_stream(one, other, dice_.below(kStreams));
  }

 private:
  Killer killer_;
  sim::Random dice_{7};
};

class DyingFourSealedSim : public DyingFourSim {
 public:
  DyingFourSealedSim() : DyingFourSim(Encryption::kData) {}
};

class FourReal : public RealTcp {
 public:
  FourReal() : RealTcp(kRanks, "127.0.0.1", kStreams) {}
};

class DyingFourReal : public FourReal {
 public:
  bool run_until(const std::function<bool()>& done) {
    return FourReal::run_until([&] {
      std::uint64_t parts = 0;
      for (const auto& port : ports) {
        if (const auto* tcp = dynamic_cast<const TcpPort*>(port.get())) parts += tcp->parts_sent();
      }
      killer_.look(parts, [this] { kill_one(); });
      return done();
    });
  }

 private:
  // The system's, without the port's knowledge.
  void kill_one() {
    std::vector<int> connected;
    for (int descriptor = 3; descriptor < 256; ++descriptor) {
      sockaddr_storage peer{};
      socklen_t bytes = sizeof peer;
      const bool is_tcp =
          getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &bytes) == 0 && peer.ss_family == AF_INET;
      if (is_tcp) connected.push_back(descriptor);
    }
    if (!connected.empty()) shutdown(connected[dice_.below(connected.size())], SHUT_RDWR);
  }

  Killer killer_;
  sim::Random dice_{7};
};

TEST(TcpStreams, OthersAreOpenedForALongMessage) {
  FourSim net(Encryption::kNone, 2);
  Recorder receiver[2];
  Completion told;
  for (int rank = 0; rank < 2; ++rank) net.port(rank).set_receiver(receiver[rank]);
  std::vector<std::byte> small = pattern(100, 1), large = pattern(10 << 20, 2);
  post(net.port(0), 1, header_of(1, small.size()), small, told);
  ASSERT_TRUE(net.run_until([&] { return receiver[1].placed == 1; }));
  net.world.run_until(after(net.world.now(), std::chrono::seconds(1)));
  EXPECT_EQ(net.port(0).connections(1), 1);
  post(net.port(0), 1, header_of(2, large.size()), large, told);
  ASSERT_TRUE(net.run_until([&] { return receiver[1].placed == 2 && told.told == 2; }));
  EXPECT_TRUE(receiver[1].messages.back().bytes == large);
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(net.port(rank).connections(1 - rank), kStreams);
}

// The simulated network limits each connection, not the host, as clouds do.
TEST(TcpStreams, FourConnectionsAreFasterThanOneWhereEachIsLimited) {
  Duration took[2];
  for (const int streams : {1, kStreams}) {
    SimTcp net(2, 42, Encryption::kNone, std::chrono::seconds(2), streams);
    Recorder receiver[2];
    Completion told;
    for (int rank = 0; rank < 2; ++rank) net.port(rank).set_receiver(receiver[rank]);
    std::vector<std::byte> large = pattern(32 << 20, 2);
    post(net.port(0), 1, header_of(1, large.size()), large, told);
    ASSERT_TRUE(net.run_until([&] { return told.told == 1; }));
    took[streams == 1 ? 0 : 1] = net.world.now().time_since_epoch();
  }
  EXPECT_LT(took[1] * 3, took[0]);
}

TEST(TcpStreams, TwoRanksThatDifferHaveTheSmallerNumber) {
  SimTcp net(2, 42, Encryption::kNone, std::chrono::seconds(2), kStreams);
  SimTcp::HostOf& other = *net.hosts[1];
  std::unique_ptr<io::Listener> listener = other.net.listen(io::Address::tcp("192.0.2.9", 0));
  const std::vector<io::Address> addresses = {net.addresses[0], listener->address()};
  TcpPort few(other.loop, other.net, std::move(listener),
              settings_of(1, addresses, other.entropy, std::chrono::seconds(2), 2));
  TcpPort* ports[2] = {&net.port(0), &few};
  Recorder receiver[2];
  Completion told[2];
  for (int rank = 0; rank < 2; ++rank) ports[rank]->set_receiver(receiver[rank]);
  std::vector<std::byte> large = pattern(4 << 20, 2);
  post(few, 0, header_of(1, large.size()), large, told[1]);
  ASSERT_TRUE(net.run_until([&] { return told[1].told == 1; }));
  post(net.port(0), 1, header_of(2, large.size()), large, told[0]);
  ASSERT_TRUE(net.run_until([&] { return told[0].told == 1; }));
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(ports[rank]->connections(1 - rank), 2);
  for (TcpPort* each : ports) each->close();
}

TEST(TcpStreams, AConnectionThatDiesIsMadeAgain) {
  DyingFourSim net(Encryption::kNone, 2);
  Recorder receiver[2];
  Completion told;
  for (int rank = 0; rank < 2; ++rank) net.port(rank).set_receiver(receiver[rank]);
  std::vector<std::byte> large = pattern(32 << 20, 2);
  post(net.port(0), 1, header_of(1, large.size()), large, told);
  ASSERT_TRUE(net.run_until([&] { return told.told == 1; }));
  EXPECT_TRUE(receiver[1].messages.back().bytes == large);
  EXPECT_GE(net.network.broken(), 2u);
  EXPECT_EQ(receiver[0].broken, 1) << "the path is broken where no connection is left, as before the first";
  ASSERT_TRUE(net.run_until([&] { return net.port(0).connections(1) == kStreams; }));
}

// What is missing of a held message may be behind a new header, on the connection that carries both.
TEST(TcpStreams, AHeldMessageGetsItsPlaceWhileOthersAreHeld) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    DyingFourSim net(Encryption::kNone, 2, seed);
    Recorder receiver[2];
    Completion told;
    bool open = false;
    receiver[1].decide = [&](int, const MessageHeader& header) {
      return open && header.step == 0 ? message_conformance::Action::kInto : message_conformance::Action::kHold;
    };
    for (int rank = 0; rank < 2; ++rank) net.port(rank).set_receiver(receiver[rank]);
    std::vector<std::vector<std::byte>> sent;
    for (std::uint32_t tag = 0; tag < 8; ++tag) sent.push_back(pattern(tag == 1 ? 1'300'000 : 300'000, tag));
    for (std::uint32_t tag = 0; tag < 8; ++tag) post(net.port(0), 1, header_of(tag, sent[tag].size()), sent[tag], told);
    const std::size_t asked = 2 + seed % 3;
    ASSERT_TRUE(net.run_until([&] { return receiver[1].asked.size() >= asked; }));
    net.network.break_stream(0, 1, seed);
    net.world.run_until(after(net.world.now(), std::chrono::microseconds(100 * seed)));
    open = true;
    net.port(1).release(0);
    ASSERT_TRUE(net.run_until([&] { return receiver[1].placed == 1; })) << seed;
    EXPECT_TRUE(receiver[1].messages.front().bytes == sent[0]) << seed;
  }
}

TEST(TcpStreams, WhoLeavesInOrderLosesNothing) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    FourSim net(Encryption::kNone, 2, seed);
    Recorder receiver[2];
    Completion told;
    for (int rank = 0; rank < 2; ++rank) net.port(rank).set_receiver(receiver[rank]);
    std::vector<std::byte> large = pattern(3'000'000, 5), small = pattern(10, 6);
    post(net.port(0), 1, header_of(1, large.size()), large, told);
    post(net.port(0), 1, header_of(2, small.size()), small, told);
    if (seed % 2 == 0) {
      ASSERT_TRUE(net.run_until([&] { return net.port(0).connections(1) == kStreams; }));
    }
    bool left = false;
    Task<void> leaving = leave(&net.port(0), &left);
    leaving.start();
    ASSERT_TRUE(net.run_until([&] { return left; })) << seed;
    EXPECT_EQ(receiver[1].placed, 2u) << seed;
    EXPECT_EQ(told.told, 2) << seed;
    EXPECT_LT(net.world.now().time_since_epoch(), std::chrono::milliseconds(100)) << "it waited for its limit";
    net.run_until([] { return false; });
    EXPECT_TRUE(receiver[1].lost.empty()) << receiver[1].lost[0].second.message();
  }
}

}  // namespace
}  // namespace aiacc::tcp_test

namespace aiacc::message_conformance {
using namespace tcp_test;
INSTANTIATE_TEST_SUITE_P(TcpFourSim, MessageConformance, ::testing::Values(&make<FourSim>));
INSTANTIATE_TEST_SUITE_P(TcpFourReal, MessageConformance, ::testing::Values(&make<FourReal>));
INSTANTIATE_TEST_SUITE_P(TcpDyingFourSim, MessageConformance, ::testing::Values(&make<DyingFourSim>));
INSTANTIATE_TEST_SUITE_P(TcpDyingFourSealedSim, MessageConformance, ::testing::Values(&make<DyingFourSealedSim>));
INSTANTIATE_TEST_SUITE_P(TcpDyingFourImmediateSim, MessageConformance,
                         ::testing::Values(&make<Immediate<DyingFourSim>>));
INSTANTIATE_TEST_SUITE_P(TcpDyingFourReal, MessageConformance, ::testing::Values(&make<DyingFourReal>));
}  // namespace aiacc::message_conformance
