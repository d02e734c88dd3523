// What a port does with parts of a message and with acknowledgements that no port of ours sends, or that fail.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transports/active/active_fixture_test.h"
#include "transports/active/active_tapped_test.h"
#include "transports/active/frame.h"

namespace aiacc {
namespace {

using active::Began;
using active::FrameKind;
using active_test::TappedPorts;
using message_conformance::Completion;
using message_conformance::header_of;
using message_conformance::pattern;

constexpr std::uint64_t kMessageBytes = 300'000;

class ActiveParts : public ::testing::TestWithParam<const active_test::Way*> {
 protected:
  using Change = std::function<void(active::FramedMessage&)>;

  void SetUp() override {
    const std::string& obstacle = active_test::obstacle(*GetParam());
    if (!obstacle.empty()) GTEST_SKIP() << obstacle;
    // One part at a time, because no acknowledgement makes the window wider.
    const io::TrafficMarks bulk = io::TrafficMarks::parse("AIACC_TC_BULK", "delay=10us");
    ports = std::make_unique<TappedPorts>(*GetParam(), 1,
                                          ActivePortFactory::Marks{io::TrafficMarks{}, io::TrafficMarks{}, bulk, {}});
  }
  void TearDown() override {
    if (ports != nullptr) ports->tap = nullptr;
  }
  void post(std::uint64_t length = kMessageBytes) {
    bytes = pattern(length, 1);
    tcp_test::post(*ports->ports[0], 1, header_of(1, bytes.size()), bytes, told);
  }
  // Sends a message of which `change` sees the parts. What rank 1 says of its loss.
  std::string loss_by(const Change& change) {
    ports->tap = [change](TappedPorts::Sent& sent) -> std::optional<Began> {
      if (sent.message.frame.kind == FrameKind::kPart) change(sent.message);
      return std::nullopt;
    };
    post();
    EXPECT_TRUE(ports->run_until([&] { return !ports->receiver[1].lost.empty(); }));
    return ports->receiver[1].lost.empty() ? "" : ports->receiver[1].lost[0].second.message();
  }

  std::vector<std::byte> bytes;
  Completion told;
  std::unique_ptr<TappedPorts> ports;
};

std::string without_those_before(std::uint64_t first, std::uint64_t end) {
  return "rank 0: it sent bytes " + std::to_string(first) + " to " + std::to_string(end) +
         " of a message without those before them";
}

TEST_P(ActiveParts, OneIsJoinedOnlyToTheOnesBeforeIt) {
  std::uint64_t part = 0;
  const std::string said = loss_by([&](active::FramedMessage& message) {
    if (message.frame.number == 1) part = message.offset++;
  });
  EXPECT_EQ(said, without_those_before(part + 1, 2 * part + 1));
  EXPECT_EQ(ports->receiver[1].placed, 0u);
}

TEST_P(ActiveParts, OneThatEndsBehindItsMessageIsRefused) {
  const std::string said = loss_by([&](active::FramedMessage& message) {
    if (message.frame.number == 1) message.header.length = 2 * message.offset - 1;
  });
  EXPECT_NE(said.find("bytes in place of"), std::string::npos) << said;
  EXPECT_EQ(ports->receiver[1].placed, 0u);
}

TEST_P(ActiveParts, OneThatBeginsBehindItsMessageIsRefused) {
  const std::string said = loss_by([&](active::FramedMessage& message) {
    if (message.frame.number == 1) message.offset = ~std::uint64_t{0};
  });
  EXPECT_NE(said.find("bytes in place of"), std::string::npos) << said;
}

TEST_P(ActiveParts, TheirMessageHasALengthUpToWhichMemoryIsTaken) {
  const std::string said =
      loss_by([&](active::FramedMessage& message) { message.header.length = active::kMostDivided + 1; });
  EXPECT_NE(said.find("it sent bytes 0 to "), std::string::npos) << said;
}

TEST_P(ActiveParts, TheirMessageMayHaveThatLength) {
  const std::string said = loss_by([&](active::FramedMessage& message) {
    if (message.frame.number == 0) message.header.length = active::kMostDivided;
  });
  EXPECT_EQ(said.find("it sent bytes 0 to "), std::string::npos) << "the second one has another length: " << said;
}

// Message 1 comes in place of the second part: what is left of the first one is joined to nothing.
TEST_P(ActiveParts, AnotherMessageEndsOneThatHasNotCome) {
  std::uint64_t part = 0;
  const std::string said = loss_by([&](active::FramedMessage& message) {
    if (message.frame.number == 1) {
      part = std::exchange(message.offset, 0);
      message.header.length = part;
    } else if (message.frame.number == 2) {
      message.offset = part;
    }
  });
  EXPECT_EQ(ports->receiver[1].placed, 1u) << "the other one";
  EXPECT_EQ(said, without_those_before(part, 2 * part));
}

// Acknowledgements may be under way when the peer has left, and end with its endpoint.
TEST_P(ActiveParts, AnAcknowledgementThatFailsAfterThePeerHasLeftIsNoLoss) {
  std::vector<active::Operation*> under_way;
  ports->tap = [&](TappedPorts::Sent& sent) -> std::optional<Began> {
    if (sent.message.frame.kind != FrameKind::kCame) return std::nullopt;
    under_way.push_back(sent.operation);
    return Began::kPending;
  };
  post(1000);
  ASSERT_TRUE(ports->run_until([&] { return ports->receiver[1].placed == 1 && told.told == 1; }));
  ASSERT_EQ(under_way.size(), 1u);
  Stop stop;
  Task<void> first = ports->ports[0]->leave(std::chrono::seconds(50), stop);
  first.start();
  ASSERT_TRUE(ports->run_until([&] { return first.done(); }));
  ports->fail(*under_way.front(), "its endpoint is gone");
  Task<void> second = ports->ports[1]->leave(std::chrono::seconds(50), stop);
  second.start();
  EXPECT_TRUE(ports->run_until([&] { return second.done(); }));
  EXPECT_TRUE(ports->receiver[1].lost.empty()) << ports->receiver[1].lost[0].second.message();
}

// While the peer is there it is a broken path, as of any message.
TEST_P(ActiveParts, AnAcknowledgementThatFailsBeforeIsOne) {
  ports->tap = [&](TappedPorts::Sent& sent) -> std::optional<Began> {
    if (sent.message.frame.kind != FrameKind::kCame) return std::nullopt;
    ports->fail(*sent.operation, "its endpoint is gone");
    return Began::kPending;
  };
  post(1000);
  ASSERT_TRUE(ports->run_until([&] { return !ports->receiver[1].lost.empty(); }));
  EXPECT_NE(ports->receiver[1].lost[0].second.message().find("its endpoint is gone"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Active, ActiveParts, ::testing::Values(&active_test::kUcxOverTcp, &active_test::kOfiOverTcp),
                         [](const auto& one) { return one.param->name; });

}  // namespace
}  // namespace aiacc
