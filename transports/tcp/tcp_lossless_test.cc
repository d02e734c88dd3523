// A class whose setting says lossless=yes: the first loss of what it sends is reported, and no other one.
#include <gtest/gtest.h>

#include "transports/tcp/tcp_fixture_test.h"

namespace aiacc::tcp_test {
namespace {

using message_conformance::Completion;
using message_conformance::header_of;
using message_conformance::pattern;
using message_conformance::Recorder;

TcpPort::Marks marks_with_bulk(const std::string& text) {
  TcpPort::Marks marks{};
  marks[static_cast<std::size_t>(TrafficClass::kLatency)] = io::TrafficMarks::parse("lat", "dscp=34");
  marks[static_cast<std::size_t>(TrafficClass::kBulk)] = io::TrafficMarks::parse("bulk", text);
  return marks;
}

// Rank 0 sends to rank 1; `remarks` are rank 0's.
class LosslessSim : public SimTcp {
 public:
  explicit LosslessSim(const std::string& bulk)
      : SimTcp(2, 42, Encryption::kNone, std::chrono::seconds(2), 1, marks_with_bulk(bulk)) {
    for (int rank = 0; rank < 2; ++rank) port(rank).set_receiver(receiver[rank]);
    port(0).tell_remarks_to([this](const std::string& remark) { remarks.push_back(remark); });
  }
  void send(TrafficClass traffic) {
    const std::size_t done = ++sent;
    post(port(0), 1, header_of(static_cast<std::uint32_t>(sent), message.size(), traffic), message, told);
    ASSERT_TRUE(run_until([&] { return receiver[1].placed == done; }));
  }
  void wait(Duration time) { world.run_until(after(world.now(), time)); }

  Recorder receiver[2];
  Completion told;
  std::vector<std::byte> message = pattern(256 << 10, 1);  // which is acknowledged at once
  std::size_t sent = 0;
  std::vector<std::string> remarks;
};

const std::vector<std::string> kTold = {
    "AIACC_TC_BULK says lossless=yes, but TCP has sent 7 of its segments to rank 1 on host 1 again: the network loses "
    "some of them; aiacc-info --qos says whether this host has priority flow control for them"};

TEST(TcpLossless, TheFirstLossIsToldWhileMessagesAreSent) {
  LosslessSim sim("dscp=26,lossless=yes");
  sim.send(TrafficClass::kBulk);
  sim.network.say_sent_again(7);
  for (int i = 0; i < 3; ++i) {
    sim.wait(std::chrono::seconds(2));
    sim.send(TrafficClass::kBulk);
    sim.wait(std::chrono::seconds(2));
    sim.network.say_sent_again(8);
  }
  EXPECT_EQ(sim.remarks, kTold);
}

TEST(TcpLossless, AHandshakeThatWasSentAgainIsNoLoss) {
  LosslessSim sim("dscp=26,lossless=yes");
  sim.network.say_sent_again(3);
  sim.send(TrafficClass::kBulk);
  sim.wait(std::chrono::seconds(2));
  sim.send(TrafficClass::kBulk);
  EXPECT_EQ(sim.remarks, std::vector<std::string>{});
  sim.network.say_sent_again(10);
  sim.wait(std::chrono::seconds(2));
  sim.send(TrafficClass::kBulk);
  EXPECT_EQ(sim.remarks, kTold);
}

TEST(TcpLossless, ALossIsToldWhenAConnectionEnds) {
  LosslessSim sim("dscp=26,lossless=yes");
  sim.send(TrafficClass::kBulk);
  sim.network.say_sent_again(7);
  sim.network.break_streams(0, 1);
  sim.wait(std::chrono::milliseconds(500));
  sim.network.break_streams(0, 1);
  sim.wait(std::chrono::milliseconds(400));
  EXPECT_EQ(sim.remarks, kTold);
}

TEST(TcpLossless, LossesOfOtherClassesAreNotTold) {
  for (const char* bulk : {"dscp=26,lossless=no", "dscp=26"}) {
    LosslessSim sim(bulk);
    sim.network.say_sent_again(7);
    for (const TrafficClass traffic : {TrafficClass::kBulk, TrafficClass::kLatency, TrafficClass::kBulk}) {
      sim.send(traffic);
      sim.wait(std::chrono::seconds(2));
    }
    sim.network.break_streams(0, 1);
    sim.wait(std::chrono::milliseconds(500));
    EXPECT_EQ(sim.remarks, std::vector<std::string>{}) << bulk;
  }
}

}  // namespace
}  // namespace aiacc::tcp_test
