// Traffic classes whose marks differ have connections of their own: marked at both ends, and made again when they die.
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

const TcpPort::Marks kThree = {{{48, 6}, {34, 4}, {10, 2}}};  // control, latency, bulk
const TcpPort::Marks kShort = {{{34, 4}, {34, 4}, {}}};       // control and latency share
const TcpPort::Marks kEqual = {{{10, 2}, {10, 2}, {10, 2}}};  // all share

class ClassesSim : public SimTcp {
 public:
  explicit ClassesSim(int ranks = kRanks, const TcpPort::Marks& marks = kThree, int streams = 1,
                      Encryption protection = Encryption::kNone)
      : SimTcp(ranks, 42, protection, std::chrono::seconds(2), streams, marks) {}
};

// A connection breaks after each 50 frames with bytes of messages.
class DyingClassesSim : public ClassesSim {
 public:
  using ClassesSim::ClassesSim;
  bool run_until(const std::function<bool()>& done) {
    return ClassesSim::run_until([&] {
      std::uint64_t parts = 0;
      for (const auto& host : hosts) parts += host->port->parts_sent();
      for (; parts >= next_; next_ += 50) break_one();
      return done();
    });
  }

 private:
  void break_one() {
    const auto ranks = hosts.size();
    const auto one = static_cast<int>(dice_.below(ranks));
    const int other = (one + 1 + static_cast<int>(dice_.below(ranks - 1))) % static_cast<int>(ranks);
    network.break_stream(one, other, dice_.below(6));
  }

  std::uint64_t next_ = 50;
  sim::Random dice_{7};
};

class DyingClassesFourSim : public DyingClassesSim {
 public:
  DyingClassesFourSim() : DyingClassesSim(kRanks, kThree, 4) {}
};

class DyingShortSealedSim : public DyingClassesSim {
 public:
  DyingShortSealedSim() : DyingClassesSim(kRanks, kShort, 1, Encryption::kData) {}
};

class ClassesReal : public RealTcp {
 public:
  explicit ClassesReal(int ranks = kRanks, const std::string& place = "127.0.0.1") : RealTcp(ranks, place, 1, kThree) {}
};

constexpr TrafficClass kEach[] = {TrafficClass::kBulk, TrafficClass::kLatency, TrafficClass::kControl};

// Sends a message of each class; how many connections there are then.
template <class World>
int connections_after(World& world, Recorder (&receiver)[2]) {
  Completion told;
  for (int rank = 0; rank < 2; ++rank) world.port(rank).set_receiver(receiver[rank]);
  std::vector<std::byte> small = pattern(100, 1);
  std::uint32_t tag = 0;
  for (const TrafficClass traffic : kEach) {
    post(world.port(0), 1, header_of(++tag, small.size(), traffic), small, told);
    post(world.port(1), 0, header_of(++tag, small.size(), traffic), small, told);
  }
  EXPECT_TRUE(world.run_until([&] { return receiver[0].placed == 3 && receiver[1].placed == 3; }));
  return dynamic_cast<TcpPort&>(world.port(0)).connections(1);
}

TEST(TcpClasses, HaveAConnectionForEachOfTheirMarks) {
  for (const auto& [marks, connections] : {std::pair(TcpPort::Marks{}, 1), {kEqual, 1}, {kShort, 2}, {kThree, 3}}) {
    ClassesSim world(2, marks);
    Recorder receiver[2];
    EXPECT_EQ(connections_after(world, receiver), connections);
  }
}

// Each end marks what it sends; a connection that only the other end wants brings that end's messages.
TEST(TcpClasses, OfRanksWithOtherMarksAreUnderstood) {
  SimTcp world(2);
  SimTcp::HostOf& other = *world.hosts[1];
  std::unique_ptr<io::Listener> listener = other.net.listen(io::Address::tcp("192.0.2.9", 0));
  const std::vector<io::Address> addresses = {world.addresses[0], listener->address()};
  other.port = std::make_unique<TcpPort>(other.loop, other.net, std::move(listener),
                                         settings_of(1, addresses, other.entropy, std::chrono::seconds(2), 1, kThree));
  Recorder receiver[2];
  EXPECT_EQ(connections_after(world, receiver), 3);
  EXPECT_TRUE(receiver[0].lost.empty() && receiver[1].lost.empty());
}

// On one connection the short message would wait until all of the long one is written.
TEST(TcpClasses, AShortMessageNeedNotWaitForALongOne) {
  for (const TcpPort::Marks& marks : {kEqual, kThree}) {
    ClassesSim world(2, marks);
    Recorder receiver[2];
    Completion told;
    for (int rank = 0; rank < 2; ++rank) world.port(rank).set_receiver(receiver[rank]);
    std::vector<std::byte> large = pattern(32 << 20, 2), small = pattern(8, 1);
    post(world.port(0), 1, header_of(1, large.size()), large, told);
    ASSERT_TRUE(world.run_until([&] { return receiver[1].asked.size() == 1; }));
    post(world.port(0), 1, header_of(2, small.size(), TrafficClass::kLatency), small, told);
    ASSERT_TRUE(world.run_until([&] { return receiver[1].placed == 1; }));
    EXPECT_EQ(receiver[1].messages.back().header.step == 2, marks == kThree);
    ASSERT_TRUE(world.run_until([&] { return receiver[1].placed == 2; }));
  }
}

// The only messages of the class are in flight when its connection breaks, and another one stands in for it.
TEST(TcpClasses, AConnectionThatBreaksIsMadeAgain) {
  ClassesSim world(2, kShort);
  Recorder receiver[2];
  ASSERT_EQ(connections_after(world, receiver), 2);
  Completion told;
  std::vector<std::byte> small = pattern(8, 1);
  std::uint32_t tag = 100;
  for (std::uint64_t broken = 0; broken < 8; ++broken) {
    world.network.break_stream(0, 1, broken);
    for (int i = 0; i < 10; ++i) {
      post(world.port(0), 1, header_of(++tag, small.size(), TrafficClass::kLatency), small, told);
    }
    ASSERT_TRUE(world.run_until([&] { return receiver[1].placed == 3 + 10 * (broken + 1); }));
    ASSERT_TRUE(world.run_until([&] { return world.port(0).connections(1) == 2; })) << broken;
  }
  std::vector<std::uint32_t> steps;
  for (const Recorder::Message& each : receiver[1].messages) {
    if (each.header.step > 100) steps.push_back(each.header.step);
  }
  EXPECT_TRUE(std::is_sorted(steps.begin(), steps.end()));
}

int option_of(int descriptor, int level, int option) {
  int value = -1;
  socklen_t bytes = sizeof value;
  return getsockopt(descriptor, level, option, &value, &bytes) == 0 ? value : -1;
}

// The marks of all connected TCP sockets of this process that have a priority, sorted: DSCP and priority.
std::vector<std::pair<int, int>> marks_of_sockets(bool v6) {
  std::vector<std::pair<int, int>> found;
  for (int descriptor = 3; descriptor < 256; ++descriptor) {
    sockaddr_storage peer{};
    socklen_t bytes = sizeof peer;
    if (getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &bytes) != 0) continue;
    if (peer.ss_family != (v6 ? AF_INET6 : AF_INET)) continue;
    const int byte = v6 ? option_of(descriptor, IPPROTO_IPV6, IPV6_TCLASS) : option_of(descriptor, IPPROTO_IP, IP_TOS);
    found.emplace_back(byte >> 2, option_of(descriptor, SOL_SOCKET, SO_PRIORITY));
  }
  std::sort(found.begin(), found.end());
  return found;
}

TEST(TcpClasses, BothEndsOfAConnectionAreMarked) {
  const bool v6 = access("/proc/net/if_inet6", F_OK) == 0;
  for (const std::string& place : {std::string("127.0.0.1"), std::string("::1")}) {
    if (place == "::1" && !v6) continue;
    ClassesReal world(2, place);
    Recorder receiver[2];
    EXPECT_EQ(connections_after(world, receiver), 3);
    const std::vector<std::pair<int, int>> both = {{10, 2}, {10, 2}, {34, 4}, {34, 4}, {48, 6}, {48, 6}};
    EXPECT_EQ(marks_of_sockets(place == "::1"), both);
  }
}

// The connection of a class is not there yet when the rank leaves.
TEST(TcpClasses, WhoLeavesInOrderLosesNothing) {
  ClassesSim world(2);
  Recorder receiver[2];
  Completion told;
  for (int rank = 0; rank < 2; ++rank) world.port(rank).set_receiver(receiver[rank]);
  std::vector<std::byte> small = pattern(10, 6);
  post(world.port(0), 1, header_of(1, small.size()), small, told);
  ASSERT_TRUE(world.run_until([&] { return receiver[1].placed == 1; }));
  post(world.port(0), 1, header_of(2, small.size(), TrafficClass::kLatency), small, told);
  bool left = false;
  Task<void> leaving = leave(&world.port(0), &left);
  leaving.start();
  ASSERT_TRUE(world.run_until([&] { return left; }));
  EXPECT_EQ(receiver[1].placed, 2u);
  EXPECT_LT(world.world.now().time_since_epoch(), std::chrono::milliseconds(500)) << "it waited for its limit";
}

}  // namespace
}  // namespace aiacc::tcp_test

namespace aiacc::message_conformance {
using namespace tcp_test;
INSTANTIATE_TEST_SUITE_P(TcpClassesSim, MessageConformance, ::testing::Values(&make<ClassesSim>));
INSTANTIATE_TEST_SUITE_P(TcpDyingClassesSim, MessageConformance, ::testing::Values(&make<DyingClassesSim>));
INSTANTIATE_TEST_SUITE_P(TcpDyingClassesImmediateSim, MessageConformance,
                         ::testing::Values(&make<Immediate<DyingClassesSim>>));
INSTANTIATE_TEST_SUITE_P(TcpDyingClassesFourSim, MessageConformance, ::testing::Values(&make<DyingClassesFourSim>));
INSTANTIATE_TEST_SUITE_P(TcpDyingShortSealedSim, MessageConformance, ::testing::Values(&make<DyingShortSealedSim>));
INSTANTIATE_TEST_SUITE_P(TcpClassesReal, MessageConformance, ::testing::Values(&make<ClassesReal>));
}  // namespace aiacc::message_conformance
