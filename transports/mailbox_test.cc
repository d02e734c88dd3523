#include "transports/mailbox.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>

#include "transports/exchange.h"
#include "transports/sim/sim_cluster.h"

namespace aiacc {
namespace {

using sim::SimCluster;
using sim::SimRank;

struct FakeCall {
  char text[48];
  std::string describe() const { return text; }
};

CallNote note_of(const std::string& text) {
  FakeCall call{};
  text.copy(call.text, sizeof call.text - 1);
  return CallNote(call);
}

std::uint64_t fingerprint_of(const std::string& text) { return Hash64().add(text).value(); }

// One transfer as a program of a rank: a send if `to` is set, otherwise a receive.
struct Step {
  int to = -1;
  int from = -1;
  std::uint32_t tag = 0;
  std::uint64_t sequence = 1;
  std::string call = "a call";
  Duration begins{};
  ViewPtr view{};  // null: the world
};

Task<void> transfer(SimCluster* cluster, SimRank* self, Step step, std::span<std::byte> bytes) {
  if (step.begins > Duration{}) co_await sleep_for(self->loop(), step.begins, self->stop());
  const ViewPtr view = step.view == nullptr ? cluster->view() : step.view;
  const int rank = view->rank_of(cluster->view()->member(self->rank()));
  Exchange exchange(self->mailbox(), view, rank, step.sequence, fingerprint_of(step.call), note_of(step.call));
  const Buffer buffer{bytes.data(), bytes.size()};
  if (step.to >= 0) {
    co_await exchange.send(step.to, step.tag, buffer, self->stop());
  } else {
    co_await exchange.recv(step.from, step.tag, buffer, self->stop());
  }
}

std::vector<std::byte> pattern(std::size_t size, unsigned salt = 0) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>((i * 7 + salt + (i >> 9)) & 0xff);
  return bytes;
}

class MailboxSizes : public ::testing::TestWithParam<std::size_t> {};

TEST_P(MailboxSizes, ArriveWhoeverComesFirst) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    for (const Duration late : {Duration{}, Duration(std::chrono::milliseconds(5))}) {
      for (const bool sender_late : {false, true}) {
        SimCluster cluster(seed, 2);
        std::vector<std::byte> sent = pattern(GetParam(), static_cast<unsigned>(seed)), got(GetParam());
        cluster.rank(0).start(
            transfer(&cluster, &cluster.rank(0), {.to = 1, .begins = sender_late ? late : Duration{}}, sent));
        cluster.rank(1).start(
            transfer(&cluster, &cluster.rank(1), {.from = 0, .begins = sender_late ? Duration{} : late}, got));
        ASSERT_TRUE(cluster.run());
        EXPECT_FALSE(cluster.rank(0).error());
        EXPECT_FALSE(cluster.rank(1).error());
        EXPECT_TRUE(got == sent);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AroundTheEdges, MailboxSizes,
                         ::testing::Values(0, 1, Mailbox::kEagerBytes - 1, Mailbox::kEagerBytes,
                                           Mailbox::kEagerBytes + 1, Mailbox::kChunkBytes, Mailbox::kChunkBytes + 1,
                                           5 * Mailbox::kChunkBytes + 3));

// --- the sender decides the length -----------------------------------------------------------------------------------------

struct Bounded {
  std::size_t bound;
  std::size_t length;
  bool early_rts;
  bool sender_late;
};

Task<void> send_coded(SimCluster* cluster, SimRank* self, Bounded test, std::span<std::byte> bytes) {
  Exchange exchange(self->mailbox(), cluster->view(), self->rank(), 1 | Exchange::kPairSequence, 7, note_of("coded"));
  if (test.early_rts) exchange.send_early_rts(1, 3, test.bound);
  if (test.sender_late) co_await sleep_for(self->loop(), std::chrono::milliseconds(5), self->stop());
  co_await exchange.send(1, 3, Buffer{bytes.data(), test.length}, self->stop());
  co_await exchange.send(1, 4, Buffer{bytes.data(), 100}, self->stop());
}

Task<void> recv_coded(SimCluster* cluster, SimRank* self, Bounded test, std::span<std::byte> bytes, std::size_t* got) {
  if (!test.sender_late) co_await sleep_for(self->loop(), std::chrono::milliseconds(5), self->stop());
  Exchange exchange(self->mailbox(), cluster->view(), self->rank(), 1 | Exchange::kPairSequence, 7, note_of("coded"));
  Transfer transfer = exchange.recv_at_most(0, 3, Buffer{bytes.data(), test.bound}, self->stop());
  co_await transfer;
  *got = transfer.received();
  EXPECT_EQ(self->mailbox().unexpected_from(cluster->view()->id(), 3, [](int, std::uint64_t) { return true; }), -1)
      << "an RTS is left that no receive will take";
  std::vector<std::byte> next(100);
  co_await exchange.recv(0, 4, Buffer{next.data(), next.size()}, self->stop());
}

// By every way that a message takes: eagerly, before or after its receive; offered; announced as long as it may become, and
// then as long, or so short that it is sent eagerly.
TEST(MailboxBounds, AReceiveOfABoundLearnsTheLength) {
  constexpr std::size_t kEager = Mailbox::kEagerBytes, kChunk = Mailbox::kChunkBytes;
  for (const std::size_t bound : {std::size_t{1}, kEager, kEager + 1, 3 * kChunk}) {
    for (const std::size_t length : {std::size_t{0}, std::size_t{1}, kEager, kEager + 1, 2 * kChunk + 5, 3 * kChunk}) {
      if (length > bound) continue;
      for (const bool early_rts : {false, true}) {
        for (const bool sender_late : {false, true}) {
          SCOPED_TRACE(std::to_string(length) + " of " + std::to_string(bound) + (early_rts ? ", announced" : "") +
                       (sender_late ? ", sender late" : ""));
          const Bounded test{bound, length, early_rts, sender_late};
          SimCluster cluster(bound + length, 2);
          std::vector<std::byte> sent = pattern(std::max<std::size_t>(length, 100)), got(bound, std::byte{0xee});
          std::size_t received = 77;
          cluster.rank(0).start(send_coded(&cluster, &cluster.rank(0), test, sent));
          cluster.rank(1).start(recv_coded(&cluster, &cluster.rank(1), test, got, &received));
          ASSERT_TRUE(cluster.run());
          ASSERT_FALSE(cluster.rank(0).error());
          ASSERT_FALSE(cluster.rank(1).error()) << cluster.rank(1).error()->message();
          ASSERT_EQ(received, length);
          EXPECT_TRUE(std::equal(got.begin(), got.begin() + static_cast<long>(length), sent.begin()));
          EXPECT_TRUE(std::all_of(got.begin() + static_cast<long>(length), got.end(), [](std::byte byte) {
            return byte == std::byte{0xee};
          })) << "nothing behind it is written";
        }
      }
    }
  }
}

TEST(MailboxBounds, MoreThanTheBoundIsAMismatchThatSaysSo) {
  for (const std::size_t bound : {std::size_t{10}, Mailbox::kEagerBytes, 2 * Mailbox::kChunkBytes}) {
    for (const bool sender_late : {false, true}) {
      const Bounded test{bound, bound + 1, false, sender_late};
      SimCluster cluster(bound, 2);
      std::vector<std::byte> sent = pattern(bound + 100), got(bound);
      std::size_t received = 77;
      cluster.rank(0).start(send_coded(&cluster, &cluster.rank(0), test, sent));
      cluster.rank(1).start(recv_coded(&cluster, &cluster.rank(1), test, got, &received));
      ASSERT_TRUE(cluster.run());
      ASSERT_TRUE(cluster.rank(1).error());
      EXPECT_EQ(cluster.rank(1).error()->code(), Code::kMismatch);
      const std::string& sentence = cluster.rank(1).error()->message();
      EXPECT_NE(sentence.find("expects at most " + std::to_string(bound)), std::string::npos) << sentence;
      EXPECT_EQ(received, 77u);
    }
  }
}

// --- tags ------------------------------------------------------------------------------------------------------------------

Task<void> swap_by_algorithm(SimCluster* cluster, SimRank* self, std::vector<int>* got) {
  Exchange exchange(self->mailbox(), cluster->view(), self->rank(), 1, 7, note_of("swap"));
  const int other = 1 - self->rank();
  constexpr std::uint16_t kAlgorithms[] = {0, 1, 16, 17, 255, 256, 65535};
  if (self->rank() == 0) {
    for (const std::uint16_t algorithm : kAlgorithms) {
      std::byte byte = static_cast<std::byte>(algorithm % 251);
      co_await exchange.send(other, {~std::uint32_t{0}, algorithm}, Buffer{&byte, 1}, self->stop());
    }
    co_return;
  }
  for (std::size_t i = std::size(kAlgorithms); i-- > 0;) {
    std::byte byte{};
    co_await exchange.recv(other, {~std::uint32_t{0}, kAlgorithms[i]}, Buffer{&byte, 1}, self->stop());
    if (byte == static_cast<std::byte>(kAlgorithms[i] % 251)) got->push_back(kAlgorithms[i]);
  }
}

TEST(MailboxTags, ManyAlgorithmsWithAllStepsNeverMatchEachOther) {
  SimCluster cluster(1, 2);
  std::vector<int> got;
  for (int rank = 0; rank < 2; ++rank) {
    cluster.rank(rank).start(swap_by_algorithm(&cluster, &cluster.rank(rank), &got));
  }
  ASSERT_TRUE(cluster.run());
  EXPECT_EQ(got, (std::vector<int>{65535, 256, 255, 17, 16, 1, 0}));
}

TEST(Mailbox, ALargeSendEndsOnlyWhenTheReceiverHasAPlace) {
  SimCluster cluster(1, 2);
  std::vector<std::byte> sent = pattern(Mailbox::kEagerBytes + 1), got(sent.size());
  cluster.rank(0).start(transfer(&cluster, &cluster.rank(0), {.to = 1}, sent));
  cluster.rank(1).start(transfer(&cluster, &cluster.rank(1), {.from = 0, .begins = std::chrono::seconds(1)}, got));
  ASSERT_TRUE(cluster.run());
  EXPECT_GE(cluster.rank(0).ended_at().time_since_epoch(), std::chrono::seconds(1));
}

Task<void> send_many(SimCluster* cluster, SimRank* self, std::span<std::byte> bytes, std::uint32_t count) {
  Exchange exchange(self->mailbox(), cluster->view(), self->rank(), 1, 7, note_of("many"));
  for (std::uint32_t tag = 0; tag < count; ++tag) {
    co_await exchange.send(1, tag, Buffer{bytes.data(), bytes.size()}, self->stop());
  }
}

Task<void> recv_many_backwards(SimCluster* cluster, SimRank* self, std::uint32_t count, std::size_t size, bool* right) {
  co_await sleep_for(self->loop(), std::chrono::milliseconds(1), self->stop());
  const std::vector<std::byte> expected = pattern(size);
  std::vector<std::byte> got(size);
  Exchange exchange(self->mailbox(), cluster->view(), self->rank(), 1, 7, note_of("many"));
  for (std::uint32_t tag = count; tag-- > 0;) {
    std::fill(got.begin(), got.end(), std::byte{});
    co_await exchange.recv(0, tag, Buffer{got.data(), got.size()}, self->stop());
    *right = *right && got == expected;
  }
}

TEST(Mailbox, ManyUnexpectedMessagesNeedNoMoreMemoryThanTheirCreditAndAllArrive) {
  // Four fit the credit. The fifth posts an RTS instead and waits for its CTS, while the receiver asks for the sixth: a
  // deadlock of this program, which a receiver that stored without bound would hide.
  SimCluster fits(1, 2);
  bool right = true;
  std::vector<std::byte> bytes = pattern(Mailbox::kEagerBytes);
  fits.rank(0).start(send_many(&fits, &fits.rank(0), bytes, 4));
  fits.rank(1).start(recv_many_backwards(&fits, &fits.rank(1), 4, bytes.size(), &right));
  EXPECT_TRUE(fits.run());
  EXPECT_TRUE(right);

  SimCluster too_many(1, 2);
  too_many.rank(0).start(send_many(&too_many, &too_many.rank(0), bytes, 6));
  too_many.rank(1).start(recv_many_backwards(&too_many, &too_many.rank(1), 6, bytes.size(), &right));
  EXPECT_FALSE(too_many.run());
  EXPECT_EQ(too_many.rank(0).mailbox().waited_for(too_many.view()->id(), 1), (std::vector<int>{1}));
}

Task<void> recv_many(SimCluster* cluster, SimRank* self, std::uint32_t count, std::size_t size) {
  std::vector<std::byte> got(size);
  Exchange exchange(self->mailbox(), cluster->view(), self->rank(), 1, 7, note_of("many"));
  for (std::uint32_t tag = 0; tag < count; ++tag) {
    co_await exchange.recv(0, tag, Buffer{got.data(), got.size()}, self->stop());
  }
}

TEST(Mailbox, AStreamInOneDirectionGetsItsCreditBack) {
  SimCluster cluster(3, 2);
  std::vector<std::byte> bytes = pattern(Mailbox::kEagerBytes);
  cluster.rank(0).start(send_many(&cluster, &cluster.rank(0), bytes, 100));
  cluster.rank(1).start(recv_many(&cluster, &cluster.rank(1), 100, bytes.size()));
  ASSERT_TRUE(cluster.run());
  // RTS, CTS and data instead of one eager message about every fifth time, when the CTS brings new credit.
  EXPECT_LT(cluster.fabric().messages(), 160u);
}

void expect_mismatch(SimRank& rank, int peer) {
  ASSERT_TRUE(rank.error()) << "rank " << rank.rank();
  EXPECT_EQ(rank.error()->code(), Code::kMismatch);
  EXPECT_EQ(rank.error()->peer(), peer) << "rank " << rank.rank();
  EXPECT_EQ(
      rank.error()->message(),
      "members disagree on operation 1 of their group: rank 0 called sum of 8; rank 1 called sum of 9. All members "
      "must make the same calls in the same order");
}

TEST(Mailbox, AMismatchIsToldToBothWithBothDescriptions) {
  for (std::size_t size : {std::size_t{8}, Mailbox::kEagerBytes + 1}) {
    for (int late = 0; late < 3; ++late) {
      SimCluster cluster(5, 2);
      std::vector<std::byte> sent = pattern(size), got(size);
      const Duration wait = std::chrono::milliseconds(1);
      cluster.rank(0).start(transfer(&cluster, &cluster.rank(0),
                                     {.to = 1, .tag = 3, .call = "sum of 8", .begins = late == 1 ? wait : Duration{}},
                                     sent));
      cluster.rank(1).start(transfer(&cluster, &cluster.rank(1),
                                     {.from = 0, .tag = 9, .call = "sum of 9", .begins = late == 2 ? wait : Duration{}},
                                     got));
      ASSERT_TRUE(cluster.run());
      expect_mismatch(cluster.rank(1), 0);
      if (size > Mailbox::kEagerBytes) {
        expect_mismatch(cluster.rank(0), 1);
      } else {
        // Its eager send was over: the group has the error, and its next transfer throws it.
        EXPECT_FALSE(cluster.rank(0).error());
        ASSERT_TRUE(cluster.rank(0).mailbox().error_of(cluster.view()->id()));
        EXPECT_EQ(as_error(cluster.rank(0).mailbox().error_of(cluster.view()->id())).message(),
                  cluster.rank(1).error()->message());
      }
    }
  }
}

TEST(Mailbox, TwoThatBothReceiveAreNotAMismatchOfEachOtherButOfWhoSends) {
  // Ranks 1 and 2 disagree about what rank 0 sends them: rank 2 is told too, though it never spoke with rank 1.
  SimCluster cluster(5, 3);
  std::vector<std::byte> bytes = pattern(Mailbox::kEagerBytes + 1), one(bytes.size()), two(bytes.size());
  cluster.rank(0).start(transfer(&cluster, &cluster.rank(0), {.to = 1, .call = "sum of 8"}, bytes));
  cluster.rank(1).start(transfer(&cluster, &cluster.rank(1), {.from = 0, .call = "sum of 9"}, one));
  cluster.rank(2).start(transfer(&cluster, &cluster.rank(2), {.from = 0, .call = "sum of 8"}, two));
  ASSERT_TRUE(cluster.run());
  expect_mismatch(cluster.rank(0), 1);
  expect_mismatch(cluster.rank(1), 0);
  ASSERT_TRUE(cluster.rank(2).error());
  EXPECT_EQ(cluster.rank(2).error()->code(), Code::kMismatch);
}

TEST(Mailbox, AFrozenPeerDoesNotKeepAMismatchSecret) {
  SimCluster cluster(5, 2);
  std::vector<std::byte> bytes = pattern(8), got(8);
  cluster.rank(0).start(transfer(&cluster, &cluster.rank(0), {.to = 1, .call = "sum of 8"}, bytes));
  cluster.rank(1).start(transfer(&cluster, &cluster.rank(1),
                                 {.from = 0, .call = "sum of 9", .begins = std::chrono::milliseconds(1)}, got));
  cluster.world().at(Instant(std::chrono::microseconds(500)), [&] { cluster.freeze(0); });
  cluster.world().run_until(Instant(std::chrono::seconds(3)));
  ASSERT_TRUE(cluster.rank(1).ended());
  EXPECT_EQ(cluster.rank(1).error()->code(), Code::kMismatch);
  EXPECT_NE(cluster.rank(1).error()->message().find("rank 1 called sum of 9"), std::string::npos);
  EXPECT_LE(cluster.rank(1).ended_at().time_since_epoch(), std::chrono::milliseconds(1002));
}

TEST(Mailbox, ADeadPeerFailsEveryWaitOfItsGroupsAndOfNoOther) {
  SimCluster cluster(9, 4);
  const auto without_3 = std::make_shared<const View>(
      1, cluster.view()->id(), 0, 1,
      std::vector<Member>(cluster.view()->members().begin(), cluster.view()->members().begin() + 3));
  std::vector<std::byte> big = pattern(3 << 20), place(big.size()), other(100), small = pattern(100), third(100);
  // 0 receives from 3, which dies in the middle; 1 waits for 2 in the world; 2 receives from 1 in the other group, later.
  cluster.rank(3).start(transfer(&cluster, &cluster.rank(3), {.to = 0}, big));
  cluster.rank(0).start(transfer(&cluster, &cluster.rank(0), {.from = 3}, place));
  cluster.rank(1).start(transfer(&cluster, &cluster.rank(1), {.from = 2}, other));
  cluster.rank(2).start(transfer(&cluster, &cluster.rank(2), {.from = 0, .view = without_3}, third));
  cluster.world().at(Instant(std::chrono::microseconds(100)), [&] { cluster.kill(3); });
  cluster.world().run_until(Instant(std::chrono::seconds(1)));
  for (int rank : {0, 1}) {
    ASSERT_TRUE(cluster.rank(rank).ended()) << rank;
    EXPECT_EQ(cluster.rank(rank).error()->code(), Code::kPeerFailed);
    EXPECT_EQ(cluster.rank(rank).error()->peer(), 3);
    EXPECT_EQ(cluster.rank(rank).error()->message(), "rank 3 (host 3) has died");
    EXPECT_LE(cluster.rank(rank).ended_at().time_since_epoch(), std::chrono::milliseconds(2));
  }
  EXPECT_FALSE(cluster.rank(2).ended()) << "another group was touched";
  cluster.rank(0).start(transfer(&cluster, &cluster.rank(0), {.to = 2, .view = without_3}, small));
  ASSERT_TRUE(cluster.run());
  EXPECT_FALSE(cluster.rank(2).error());
  EXPECT_EQ(third, small);
  // A group that is made later with the dead rank fails at once.
  const auto late = std::make_shared<const View>(
      1, 0, 77, 1, std::vector<Member>(cluster.view()->members().begin(), cluster.view()->members().end()));
  cluster.rank(0).start(transfer(&cluster, &cluster.rank(0), {.from = 1, .view = late}, other));
  ASSERT_TRUE(cluster.rank(0).ended());
  EXPECT_EQ(cluster.rank(0).error()->peer(), 3);
}

Task<void> leave(SimRank* self) {
  LeaveDeadline deadline(self->loop());
  co_await self->messenger().leave({}, deadline, self->stop());
}

// Whoever says that it leaves has got all it needs; it may not have given all that others need.
TEST(Mailbox, WhoDiesWhenItHasLeftIsMissedByWhoWaitsForIt) {
  for (const int awaited : {1, 2}) {
    SimCluster cluster(5, 3);
    std::vector<std::byte> sent = pattern(100), got(100), more(100);
    cluster.rank(1).start(transfer(&cluster, &cluster.rank(1), {.to = 0}, sent));
    cluster.rank(0).start(transfer(&cluster, &cluster.rank(0), {.from = 1}, got));
    ASSERT_TRUE(cluster.run());
    cluster.rank(1).start(leave(&cluster.rank(1)));
    cluster.rank(0).start(transfer(&cluster, &cluster.rank(0), {.from = awaited, .sequence = 2}, more));
    cluster.world().run_until(after(cluster.world().now(), std::chrono::milliseconds(1)));
    EXPECT_FALSE(cluster.rank(1).ended()) << "rank 0 has not left";
    cluster.kill(1);
    cluster.world().run_until(after(cluster.world().now(), std::chrono::seconds(1)));
    ASSERT_EQ(cluster.rank(0).ended(), awaited == 1);
    if (awaited != 1) continue;
    EXPECT_EQ(cluster.rank(0).error()->code(), Code::kPeerFailed);
    EXPECT_EQ(cluster.rank(0).error()->peer(), 1);
  }
}

TEST(Mailbox, AnAbortReachesAllMembersWithItsSentence) {
  constexpr int kRanks = 37;
  SimCluster cluster(11, kRanks);
  std::vector<std::byte> place(8);
  for (int rank = 0; rank < kRanks; ++rank) {
    cluster.rank(rank).start(transfer(&cluster, &cluster.rank(rank), {.from = (rank + 1) % kRanks}, place));
  }
  cluster.world().run_until(Instant(std::chrono::seconds(1)));
  cluster.rank(5).messenger().aborts().abort(
      cluster.view(), 5, std::make_exception_ptr(Error(Code::kInternal, "rank 5 is out of its mind", 5)));
  ASSERT_TRUE(cluster.run());
  for (int rank = 0; rank < kRanks; ++rank) {
    ASSERT_TRUE(cluster.rank(rank).error());
    EXPECT_EQ(cluster.rank(rank).error()->message(), "rank 5 is out of its mind");
    EXPECT_EQ(cluster.rank(rank).error()->peer(), 5);
    EXPECT_LE(cluster.rank(rank).ended_at().time_since_epoch(), std::chrono::milliseconds(1001));
  }
}

// Whom the news would have come through may be frozen: it takes both ways round.
TEST(Mailbox, AnAbortFindsItsWayAroundRanksThatAreSilent) {
  constexpr int kRanks = 8;
  SimCluster cluster(11, kRanks);
  std::vector<std::byte> place(8);
  for (int rank = 0; rank < kRanks; ++rank) {
    cluster.rank(rank).start(transfer(&cluster, &cluster.rank(rank), {.from = (rank + 1) % kRanks}, place));
  }
  cluster.world().run_until(Instant(std::chrono::seconds(1)));
  for (const int silent : {1, 2, 4}) cluster.freeze(silent);
  cluster.rank(0).messenger().aborts().abort(cluster.view(), 0,
                                             std::make_exception_ptr(Error(Code::kInternal, "enough", 0)));
  cluster.world().run_until(Instant(std::chrono::seconds(2)));
  for (const int rank : {3, 5, 6, 7}) {
    ASSERT_TRUE(cluster.rank(rank).error()) << rank;
    EXPECT_EQ(cluster.rank(rank).error()->message(), "enough");
  }
}

// After an error nobody writes into the receiver's buffer or reads the sender's, whenever the stop comes.
TEST(Mailbox, AStoppedTransferHasItsBufferBack) {
  int stopped_in_the_middle = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    SimCluster cluster(seed, 2);
    const std::size_t size = seed % 2 == 0 ? Mailbox::kEagerBytes : 3 * Mailbox::kChunkBytes;
    std::vector<std::byte> sent = pattern(size), got(size);
    cluster.rank(0).start(transfer(&cluster, &cluster.rank(0), {.to = 1}, sent));
    cluster.rank(1).start(transfer(&cluster, &cluster.rank(1), {.from = 0}, got));
    const auto error = std::make_exception_ptr(Error(Code::kAborted, "enough"));
    const int victim = static_cast<int>(seed / 2 % 2);
    cluster.world().at_event(seed / 4 % 25, [&] { cluster.rank(victim).stop().request(error); });
    std::vector<std::byte>& mine = victim == 0 ? sent : got;
    ASSERT_TRUE(cluster.world().run_while_not([&] { return cluster.rank(victim).ended(); }));
    if (!cluster.rank(victim).error()) continue;
    ++stopped_in_the_middle;
    std::fill(mine.begin(), mine.end(), std::byte{0x5a});
    cluster.world().run();
    if (victim == 1) {
      EXPECT_EQ(std::count(got.begin(), got.end(), std::byte{0x5a}), static_cast<long>(size)) << "seed " << seed;
    } else if (cluster.rank(1).ended()) {
      EXPECT_TRUE(got == pattern(size)) << "seed " << seed;
    }
  }
  EXPECT_GT(stopped_in_the_middle, 40);
}

TEST(Mailbox, LateMessagesOfAForgottenGroupAreDropped) {
  SimCluster cluster(2, 2);
  std::vector<std::byte> bytes = pattern(100);
  cluster.rank(1).mailbox().join(cluster.view(), 1);
  cluster.rank(1).messenger().forget(cluster.view()->id());
  const std::uint64_t messages =
      2 * Mailbox::kCreditBytes / bytes.size();  // far beyond the credit: dropping gives it back
  for (std::uint64_t sequence = 1; sequence <= messages; ++sequence) {
    cluster.rank(0).start(transfer(&cluster, &cluster.rank(0), {.to = 1, .sequence = sequence}, bytes));
    if (!cluster.run()) break;
  }
  // Credit returns only with messages of the other side; without any, an RTS that nobody answers waits at last.
  EXPECT_FALSE(cluster.rank(0).ended());
}

}  // namespace
}  // namespace aiacc
