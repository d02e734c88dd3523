#include "transports/failover/failover_port.h"

#include <gtest/gtest.h>

#include <string>
#include <type_traits>

#include "base/wire/codec.h"
#include "base/wire/path_messages.h"
#include "transports/failover/failover_fixture_test.h"
#include "transports/failover/receipts.h"

namespace aiacc {
namespace {

using failover_test::leave;
using failover_test::Sent;
using failover_test::SimFailover;
using failover_test::TwoRanks;
using message_conformance::Completion;
using message_conformance::header_of;
using message_conformance::MessageConformance;
using namespace std::chrono_literals;

INSTANTIATE_TEST_SUITE_P(Failover, MessageConformance,
                         testing::Values(&message_conformance::make<SimFailover>,
                                         &message_conformance::make<tcp_test::Immediate<SimFailover>>));

TEST(Failover, NothingIsLostAndNothingComesTwiceWhateverBreaksWhen) {
  int went_over = 0, revoked = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    TwoRanks ranks(seed);
    sim::Random random(seed * 7919);
    bool open = false;
    for (int rank = 0; rank < 2; ++rank) {
      ranks.inbox[rank].holds = [&](const MessageHeader& header) { return !open && header.step % 7 == seed % 7; };
    }
    const int messages = 10 + static_cast<int>(random.below(60));
    const int breaks_at = static_cast<int>(random.below(static_cast<std::uint64_t>(messages)));
    for (int message = 0; message < messages; ++message) {
      const std::size_t bytes = random.below(4) == 0 ? random.below(300'000) : random.below(3000);
      const int from = static_cast<int>(random.below(2));
      Sent& one = ranks.post(from, bytes, static_cast<TrafficClass>(random.below(kTrafficClasses)));
      if (message == breaks_at) {
        if (random.below(4) == 0) {
          ranks.cut_first(static_cast<int>(random.below(2)));
        } else {
          ranks.break_first();
        }
      }
      if (random.below(10) == 0 && one.completion.told == 0) {
        one.withdrawn = true;
        ranks.port(from).withdraw(one.completion);
      }
      ranks.run(Duration(random.below(3) == 0 ? random.below(2'000'000) : 0));
      if (random.below(3) == 0) ranks.revoke_one(1 - from);
    }
    ranks.run(Duration(random.below(5'000'000)));
    open = true;
    for (int turn = 0; turn < 100 && !(ranks.all_told() && ranks.all_came()); ++turn) {
      for (int rank = 0; rank < 2; ++rank) ranks.port(rank).release(1 - rank);
      ranks.run(100ms);
    }
    ranks.run(1s);
    for (int rank = 0; rank < 2; ++rank) {
      for (const auto& [which, entry] : ranks.inbox[rank].entries) {
        EXPECT_TRUE(!entry.revoked || entry.placed == 1) << "its place has come back";
        revoked += entry.revoked;
      }
      ranks.expect_delivered(rank);
      EXPECT_TRUE(ranks.inbox[rank].lost.empty()) << seed;
      went_over += !ranks.hosts[static_cast<std::size_t>(rank)]->remarks.empty();
    }
    if (testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
  EXPECT_GT(went_over, 400);
  EXPECT_GT(revoked, 30);
}

TEST(Failover, BothEndsTellTheUserOnce) {
  TwoRanks ranks;
  ranks.post(0, 10);
  ASSERT_TRUE(ranks.run_until([&] { return ranks.inbox[1].entries.size() == 1; }));
  ranks.break_first();
  ranks.post(1, 10);
  ranks.run(1s);
  ranks.expect_delivered(1);
  for (int rank = 0; rank < 2; ++rank) {
    const std::vector<std::string>& remarks = ranks.hosts[static_cast<std::size_t>(rank)]->remarks;
    ASSERT_EQ(remarks.size(), 1u);
    EXPECT_TRUE(remarks[0].starts_with("the path over a between rank 0 on host 0 and rank 1 on host 1 broke ("))
        << remarks[0];
    EXPECT_TRUE(remarks[0].ends_with("); their messages go over b from now on")) << remarks[0];
  }
}

TEST(Failover, WhenTheSecondNetworkBreaksTooThePathIsBrokenUntilItIsBack) {
  TwoRanks ranks;
  ranks.post(0, 10);
  ASSERT_TRUE(ranks.run_until([&] { return ranks.inbox[1].entries.size() == 1; }));
  ranks.networks[1].cut(0, 1);
  ranks.break_first();
  ranks.post(0, 200'000);
  ranks.run(30s);
  EXPECT_FALSE(ranks.all_told());
  EXPECT_TRUE(ranks.port(0).broken_path(1).has_value());
  ranks.networks[1].heal(0, 1);
  EXPECT_TRUE(ranks.run_until([&] { return ranks.all_told(); }));
  ranks.expect_delivered(0);
}

TEST(Failover, ARankThatIsGoneIsLostOverBoth) {
  TwoRanks ranks;
  ranks.post(0, 10);
  ASSERT_TRUE(ranks.run_until([&] { return ranks.inbox[1].entries.size() == 1; }));
  ranks.lose(1);
  Sent& late = ranks.post(0, 200'000);
  ASSERT_TRUE(ranks.run_until([&] { return late.completion.told == 1; }));
  EXPECT_EQ(as_error(late.completion.error).code(), Code::kPeerFailed);
  ranks.run(5s);
  ASSERT_EQ(ranks.inbox[0].lost.size(), 1u);
  EXPECT_EQ(ranks.inbox[0].lost[0].first, 1);
  EXPECT_TRUE(ranks.hosts[0]->remarks.empty()) << "nothing goes over the other network";
}

TEST(Failover, RanksLeaveInOrderThoughAPathBreaksMeanwhile) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    TwoRanks ranks(seed, seed % 4 < 2 ? 0ms : 1ms, 10);
    sim::Random random(seed * 7919);
    for (int message = 0; message < 20; ++message) ranks.post(message % 2, random.below(100'000));
    if (seed % 2 == 0) ranks.run(Duration(random.below(1'000'000)));
    if (seed % 2 == 0) ranks.break_first();
    ASSERT_TRUE(
        ranks.run_until([&] { return ranks.all_told() && ranks.inbox[0].placed + ranks.inbox[1].placed == 20; }));
    bool left[2] = {};
    Task<void> leaving[2] = {leave(&ranks.port(0), &left[0]), leave(&ranks.port(1), &left[1])};
    for (Task<void>& each : leaving) each.start();
    ranks.run(Duration(random.below(1'000'000)));
    ranks.break_first();
    EXPECT_TRUE(ranks.run_until([&] { return left[0] && left[1]; })) << seed;
    for (int rank = 0; rank < 2; ++rank) {
      ranks.expect_delivered(rank);
      for (const auto& [other, error] : ranks.inbox[rank].lost)
        EXPECT_TRUE(error.message().ends_with(" has left the job"));
    }
    if (testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
}

TEST(Failover, ReceiptsWithoutSenseEndThePair) {
  wire::Receipts fine, of_nothing;
  fine.complete = {0, 0, 0, 0};
  of_nothing.complete = {0, 0, 1, 0};  // nothing was sent
  const auto end = [](const auto& said, TrafficClass traffic, std::size_t more = 0) {
    wire::Bytes bytes;
    wire::Writer writer(bytes);
    writer.put(std::remove_cvref_t<decltype(said)>::kType);
    writer.put(said);
    bytes.resize(bytes.size() + more);
    TwoRanks ranks;
    MessageHeader header = header_of(1, bytes.size(), traffic);
    header.kind = MessageKind::kPath;
    Completion told;
    wire::Bytes copy = bytes;
    const Buffer piece{copy.data(), copy.size()};
    ranks.port(0).post(1, header, std::span(&piece, 1), told);
    ranks.run(1s);
    EXPECT_TRUE(ranks.inbox[1].entries.empty());
    if (ranks.inbox[1].lost.empty()) return std::string();
    EXPECT_EQ(ranks.inbox[1].lost[0].second.code(), Code::kProtocol);
    return ranks.inbox[1].lost[0].second.message();
  };
  EXPECT_EQ(end(fine, TrafficClass::kControl), "");
  EXPECT_EQ(end(of_nothing, TrafficClass::kControl), "rank 0 on host 0: it has received messages that were not sent");
  const std::string senseless = "rank 0 on host 0: it sent a message about the path that makes no sense";
  EXPECT_EQ(end(fine, TrafficClass::kBulk), senseless);
  EXPECT_EQ(end(fine, TrafficClass::kControl, 2 << 20), senseless);
  EXPECT_NE(end(fine, TrafficClass::kControl, 1), "");
  EXPECT_NE(end(wire::Return{}, TrafficClass::kControl), "") << "it is no probe";
  EXPECT_EQ(end(wire::Return{wire::Return::Step::kProbe, 0}, TrafficClass::kControl), "");
}

TEST(ReceivedNumbers, AreCompleteUpToTheFirstThatIsMissing) {
  failover::ReceivedNumbers numbers;
  for (const std::uint64_t number : {1, 0, 4, 3, 0}) numbers.add(number);
  EXPECT_EQ(numbers.complete(), 2u);
  numbers.add(8);
  EXPECT_EQ(numbers.beyond(), (failover::ReceivedNumbers::Ranges{{3, 5}, {8, 9}}));
  numbers.add(2);
  EXPECT_EQ(numbers.complete(), 5u);
  EXPECT_EQ(numbers.beyond(), (failover::ReceivedNumbers::Ranges{{8, 9}}));
}

}  // namespace
}  // namespace aiacc
