// The choice of a transport, and ports of a second transport that a rank prefers to TCP.
#include "transports/port_factory.h"

#include <gtest/gtest.h>

#include <utility>

#include "base/error.h"
#include "transports/tcp/tcp_fixture_test.h"
#include "transports/tcp/tcp_port_factory.h"

namespace aiacc {
namespace {

// A transport of another name, whose addresses are not TCP's.
class OtherFactory final : public PortFactory {
 public:
  explicit OtherFactory(std::unique_ptr<PortFactory> below) : below_(std::move(below)) {}
  std::string_view transport() const noexcept override { return "other"; }
  std::vector<std::uint8_t> address() const override {
    std::vector<std::uint8_t> bytes = below_->address();
    bytes.insert(bytes.begin(), {'o', 't', 'h', 'e', 'r'});
    return bytes;
  }
  std::unique_ptr<MessagePort> open(PortWorld world) override {
    for (PortWorld::Peer& peer : world.peers) {
      if (peer.address.size() < 5 || peer.address[0] != 'o')
        throw Error(Code::kProtocol, "no address of this transport");
      peer.address.erase(peer.address.begin(), peer.address.begin() + 5);
    }
    return below_->open(std::move(world));
  }

 private:
  std::unique_ptr<PortFactory> below_;
};

// Ranks that listen on both networks, `first` preferred, and open the one that they choose.
class TwoNetworks {
 public:
  explicit TwoNetworks(bool other_is_preferred = true) {
    constexpr auto kRanks = static_cast<std::size_t>(message_conformance::kRanks);
    std::vector<NetworkPorts> networks(kRanks);
    std::vector<wire::RankPorts> ranks;
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      loops.push_back(std::make_unique<io::RealLoop>());
      nets.push_back(std::make_unique<io::RealNet>(*loops.back()));
      const auto tcp = [&] {
        return std::make_unique<TcpPortFactory>(*loops.back(), *nets.back(), entropy,
                                                nets.back()->listen(io::Address::tcp("127.0.0.1", 0)));
      };
      if (!other_is_preferred) networks[rank].add(tcp());
      networks[rank].add(std::make_unique<OtherFactory>(tcp()));
      if (other_is_preferred) networks[rank].add(tcp());
      ranks.push_back(networks[rank].addresses());
    }
    const wire::Secret secret = wire::Secret::fresh(entropy);
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      PortWorld world;
      world.rank = static_cast<int>(rank);
      world.job = 7;
      world.secret = secret;
      world.refused_limit = std::chrono::milliseconds(500);
      for (std::size_t peer = 0; peer < kRanks; ++peer) {
        world.peers.push_back({"rank " + std::to_string(peer), {"127.0.0.1"}, {}});
      }
      ports.push_back(networks[rank].open(std::move(world), ranks));
    }
  }
  MessagePort& port(int rank) { return *ports[static_cast<std::size_t>(rank)]; }
  bool run_until(const std::function<bool()>& done) {
    const Instant end = after(clock.now(), std::chrono::seconds(60));
    while (!done() && clock.now() < end) {
      for (const auto& loop : loops) loop->look();
    }
    return done();
  }
  void lose(int rank) { ports[static_cast<std::size_t>(rank)] = std::make_unique<tcp_test::NoPort>(); }

  io::RealClock clock;
  io::RealEntropy entropy;
  std::vector<std::unique_ptr<io::RealLoop>> loops;
  std::vector<std::unique_ptr<io::RealNet>> nets;
  std::vector<std::unique_ptr<MessagePort>> ports;
};

wire::RankPorts with(std::vector<std::string> transports) {
  wire::RankPorts ports;
  for (std::string& name : transports) ports.ports.push_back({std::move(name), {1, 2}});
  return ports;
}

std::string chosen(const std::vector<wire::RankPorts>& ranks) {
  std::vector<PortWorld::Peer> names;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) names.push_back({"rank " + std::to_string(rank), {}, {}});
  return choose_transport(ranks, names);
}

TEST(PortFactory, TheFirstTransportOfRankZeroThatAllRanksHaveIsChosen) {
  EXPECT_EQ(chosen({with({"tcp"}), with({"tcp"})}), "tcp");
  EXPECT_EQ(chosen({with({"ucx", "tcp"}), with({"tcp", "ucx"})}), "ucx");
  EXPECT_EQ(chosen({with({"ucx", "tcp"}), with({"ucx", "tcp"}), with({"tcp"})}), "tcp");
  EXPECT_EQ(chosen({with({"tcp", "ucx"}), with({"ucx"})}), "ucx");
}

TEST(PortFactory, NoCommonTransportIsOneSentence) {
  try {
    chosen({with({"ucx", "ofi"}), with({"ucx", "tcp"}), with({"tcp"})});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kUnsupported);
    EXPECT_EQ(error.message(),
              "the ranks have no network transport in common: rank 0 has ucx, ofi, and rank 2 has tcp");
  }
  EXPECT_THROW(chosen({with({}), with({"tcp"})}), Error);
}

TEST(PortFactory, TheChosenFactoryGetsTheAddressesOfItsTransport) {
  TwoNetworks other(true), tcp(false);  // OtherFactory refuses addresses of TCP, and TcpPortFactory those of the other
}

// The user's choice is never left out silently.
TEST(PortFactory, ADemandedTransportThatARankLacksIsOneSentence) {
  NetworkPorts networks;
  networks.require("ucx");
  PortWorld world;
  world.peers = {{"rank 0", {}, {}}, {"rank 1", {}, {}}};
  const std::vector<wire::RankPorts> ranks = {with({"ucx", "tcp"}), with({"tcp"})};
  try {
    networks.open(world, ranks);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kUnsupported);
    EXPECT_EQ(error.message(),
              "AIACC_TRANSPORT=ucx is not possible: rank 1 has tcp and prefers tcp; all ranks need the same value");
  }
}

// Ranks that choose algorithms differently would wait for each other for ever.
TEST(PortFactory, ASettingThatRanksHaveDifferentlyIsOneSentenceOnAll) {
  const auto sentence = [](const std::vector<std::string>& values) {
    std::string all;
    for (std::size_t rank = 0; rank < values.size(); ++rank) {
      std::vector<wire::RankPorts> ranks;
      PortWorld world;
      for (std::size_t peer = 0; peer < values.size(); ++peer) {
        NetworkPorts its;
        its.require_alike("AIACC_ALGORITHM", values[peer]);
        ranks.push_back(its.addresses());
        ranks.back().ports.insert(ranks.back().ports.begin(), with({"none"}).ports.front());
        world.peers.push_back({"rank " + std::to_string(peer), {}, {}});
      }
      NetworkPorts networks;
      networks.require_alike("AIACC_ALGORITHM", values[rank]);
      try {
        networks.open(world, ranks);
      } catch (const Error& error) {
        if (rank > 0) {
          EXPECT_EQ(error.message(), all);
        }
        all = error.message();
      }
    }
    return all;
  };
  EXPECT_EQ(
      sentence({"allreduce=ring", "allreduce=ring", "reduce=binomial"}),
      "rank 0 has AIACC_ALGORITHM=allreduce=ring, and rank 2 has AIACC_ALGORITHM=reduce=binomial; give all ranks the "
      "same");
  EXPECT_EQ(sentence({"", "allreduce=ring"}),
            "rank 0 has no AIACC_ALGORITHM, and rank 1 has AIACC_ALGORITHM=allreduce=ring; give all ranks the same");
  EXPECT_NE(sentence({"allreduce=ring", "allreduce=ring"}).find("transport 'none'"), std::string::npos) << "it went on";
  EXPECT_THROW(chosen({with({"AIACC_ALGORITHM", "ucx"}), with({"AIACC_ALGORITHM", "tcp"})}), Error);
}

// A file of rank 0's host is one for all, and nobody compares it.
TEST(PortFactory, ASettingOfRank0IsThatOfAll) {
  class Given final : public PortFactory {
   public:
    std::string_view transport() const noexcept override { return "none"; }
    std::vector<std::uint8_t> address() const override { return {}; }
    std::unique_ptr<MessagePort> open(PortWorld) override { return nullptr; }
  };
  for (const std::string& value : {std::string(), std::string("a table\nof two lines\n")}) {
    std::vector<wire::RankPorts> ranks;
    std::vector<NetworkPorts> networks(2);
    PortWorld world;
    for (int rank = 0; rank < 2; ++rank) {
      networks[rank].add(std::make_unique<Given>());
      networks[rank].require_alike("AIACC_ALGORITHM", "allreduce=ring");
      networks[rank].take_from_rank_0("AIACC_ALGORITHM_TABLE", rank == 0 ? value : "another");
      ranks.push_back(networks[rank].addresses());
      world.peers.push_back({"rank " + std::to_string(rank), {}, {}});
    }
    for (NetworkPorts& its : networks) {
      its.open(world, ranks);
      EXPECT_EQ(its.from_rank_0(), value);
      EXPECT_EQ(its.opened_transport(), "none");
    }
  }
}

TEST(PortFactory, ATcpAddressIsAPort) {
  EXPECT_EQ(wire::tcp_port_of(wire::tcp_address(40'112).bytes), 40'112);
  EXPECT_EQ(wire::tcp_port_of(std::vector<std::uint8_t>{1, 2, 3}), std::nullopt);
  EXPECT_EQ(wire::tcp_port_of(std::vector<std::uint8_t>{0, 0}), std::nullopt);
  EXPECT_EQ(wire::tcp_port_of(with({"ucx"})), std::nullopt);
}

// Protection is never left out silently.
TEST(PortFactory, APortThatCannotProtectItsMessagesSaysSo) {
  tcp_test::NoPort plain;
  for (void (MessagePort::*protect)() : {&MessagePort::encrypt, &MessagePort::authenticate}) {
    MessagePort& port = plain;
    try {
      (port.*protect)();
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kUnsupported);
      EXPECT_NE(error.message().find("AIACC_ENCRYPT="), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace aiacc

namespace aiacc::message_conformance {
INSTANTIATE_TEST_SUITE_P(SecondTransport, MessageConformance, ::testing::Values(&make<aiacc::TwoNetworks>));
}  // namespace aiacc::message_conformance
