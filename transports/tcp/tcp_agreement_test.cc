// Who the ends of a connection are and how they protect it: both know, or say the same.
#include <gtest/gtest.h>

#include "transports/tcp/tcp_fixture_test.h"
#include "transports/tcp/tcp_port.h"

namespace aiacc::tcp_test {
namespace {

using message_conformance::Completion;
using message_conformance::header_of;
using message_conformance::pattern;
using message_conformance::Recorder;

TEST(TcpAgreement, AnUnauthenticatedPeerAtAnAddressIsPassedBy) {
  SimTcp net(3);
  Recorder receiver[2];
  Completion told;
  // Where rank 2 listens somebody of another job answers first.
  TcpPort::Settings settings = settings_of(0, net.addresses, net.hosts[0]->entropy, std::chrono::seconds(2));
  settings.peers[1].addresses = {net.addresses[2], net.addresses[1]};
  SimTcp::HostOf fourth(net, 3);
  settings.rank = 0;
  TcpPort port(fourth.loop, fourth.net, fourth.net.listen(io::Address::tcp("192.0.2.9", 0)), std::move(settings));
  Recorder third;
  net.port(2).set_receiver(third);
  port.set_receiver(receiver[0]);
  net.port(1).set_receiver(receiver[1]);
  std::vector<std::byte> bytes = pattern(10, 1);
  post(port, 1, header_of(1, bytes.size()), bytes, told);
  ASSERT_TRUE(net.run_until([&] { return receiver[1].placed == 1; }));
  EXPECT_TRUE(third.messages.empty());
  port.close();
}

// It takes the proof of this rank and has none of its own: the other addresses come first from then on.
TEST(TcpAgreement, WhoTakesAProofAndGivesNoneKeepsNobodyFromThePeer) {
  SimTcp net(3);
  Recorder receiver[2];
  Completion told;
  SimTcp::HostOf fifth(net, 4);
  TcpPort::Settings theirs = settings_of(1, net.addresses, fifth.entropy, std::chrono::seconds(2));
  theirs.secret = secret_of(2);
  std::unique_ptr<io::Listener> trap = fifth.net.listen(io::Address::tcp("192.0.2.8", 0));
  TcpPort::Settings settings = settings_of(0, net.addresses, net.hosts[0]->entropy, std::chrono::seconds(2));
  settings.peers[1].addresses = {trap->address(), net.addresses[1]};
  TcpPort other(fifth.loop, fifth.net, std::move(trap), std::move(theirs));
  Recorder deceived;
  other.set_receiver(deceived);
  SimTcp::HostOf fourth(net, 3);
  TcpPort port(fourth.loop, fourth.net, fourth.net.listen(io::Address::tcp("192.0.2.9", 0)), std::move(settings));
  port.set_receiver(receiver[0]);
  net.port(1).set_receiver(receiver[1]);
  std::vector<std::byte> bytes = pattern(10, 1);
  post(port, 1, header_of(1, bytes.size()), bytes, told);
  ASSERT_TRUE(net.run_until([&] { return receiver[1].placed == 1; }));
  EXPECT_LT(net.world.now().time_since_epoch(), std::chrono::milliseconds(200));
  EXPECT_EQ(deceived.placed, 0u);
  port.close();
  other.close();
}

TEST(TcpAgreement, WhoEncryptsAndWhoDoesNotSayTheSame) {
  for (int encrypting : {0, 1}) {
    for (int speaking : {0, 1}) {
      SimTcp net(2);
      net.port(encrypting).encrypt();
      Recorder receiver[2];
      Completion told;
      for (int rank = 0; rank < 2; ++rank) net.port(rank).set_receiver(receiver[rank]);
      post(net.port(speaking), 1 - speaking, header_of(1, 0), *std::make_unique<std::vector<std::byte>>(), told);
      ASSERT_TRUE(net.run_until([&] {
        // What an end knows it tells before anything else happens: the other one may exit for it.
        const std::optional<BrokenPath> path = net.port(speaking).broken_path(1 - speaking);
        EXPECT_TRUE(!path || path->reason.find("AIACC_ENCRYPT") == std::string::npos) << path->reason;
        return receiver[0].lost.size() == 1 && receiver[1].lost.size() == 1;
      }));
      const std::string sentence = "rank " + std::to_string(encrypting) + " on host " + std::to_string(encrypting) +
                                   " encrypts its messages and rank " + std::to_string(1 - encrypting) + " on host " +
                                   std::to_string(1 - encrypting) +
                                   " does not: give AIACC_ENCRYPT the same value on all ranks";
      for (int rank = 0; rank < 2; ++rank) {
        EXPECT_EQ(receiver[rank].lost[0].first, 1 - rank);
        EXPECT_EQ(receiver[rank].lost[0].second.message(), sentence);
      }
      EXPECT_EQ(net.port(0).refused() + net.port(1).refused(), 0u) << "no unauthenticated peer";
    }
  }
}

TEST(TcpAgreement, WhoAuthenticatesAndWhoDoesNotOrEncryptsSayTheSame) {
  for (const bool encrypts : {false, true}) {
    SimTcp net(2);
    net.port(0).authenticate();
    if (encrypts) net.port(1).encrypt();
    Recorder receiver[2];
    Completion told;
    for (int rank = 0; rank < 2; ++rank) net.port(rank).set_receiver(receiver[rank]);
    post(net.port(0), 1, header_of(1, 0), *std::make_unique<std::vector<std::byte>>(), told);
    ASSERT_TRUE(net.run_until([&] { return receiver[0].lost.size() == 1 && receiver[1].lost.size() == 1; }));
    const std::string sentence =
        encrypts ? "rank 1 on host 1 encrypts its messages and rank 0 on host 0 only authenticates them: give "
                   "AIACC_ENCRYPT the same value on all ranks"
                 : "rank 0 on host 0 authenticates its messages and rank 1 on host 1 does not: give AIACC_ENCRYPT the "
                   "same value on all ranks";
    for (const Recorder& each : receiver) EXPECT_EQ(each.lost[0].second.message(), sentence);
  }
}

}  // namespace
}  // namespace aiacc::tcp_test
