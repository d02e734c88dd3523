// Messages whose sender asks for their place before they are there.
#include <gtest/gtest.h>

#include <vector>

#include "transports/exchange.h"
#include "transports/sim/sim_cluster.h"

namespace aiacc {
namespace {

using namespace std::chrono_literals;
using sim::SimCluster;
using sim::SimRank;

constexpr std::size_t kLarge = 4 * Mailbox::kEagerBytes;
constexpr Duration kReady = 1ms;  // when the sender has what it sends

struct UnnamedCall {
  std::string describe() const { return "a call"; }
};

Task<void> give(SimCluster* cluster, SimRank* self, bool early_rts, std::vector<std::byte>* bytes) {
  Exchange exchange(self->mailbox(), cluster->view(), self->rank(), 1, 7, CallNote(UnnamedCall{}));
  if (early_rts) exchange.send_early_rts(1, 5, bytes->size());
  co_await sleep_for(self->loop(), kReady, self->stop());
  co_await exchange.send(1, 5, Buffer{bytes->data(), bytes->size()}, self->stop());
}

Task<void> take(SimCluster* cluster, SimRank* self, Duration begins, std::vector<std::byte>* bytes) {
  if (begins > Duration{}) co_await sleep_for(self->loop(), begins, self->stop());
  Exchange exchange(self->mailbox(), cluster->view(), self->rank(), 1, 7, CallNote(UnnamedCall{}));
  co_await exchange.recv(0, 5, Buffer{bytes->data(), bytes->size()}, self->stop());
}

// How long after the sender had it the message was there.
Duration took(std::size_t size, bool early_rts, Duration receiver_begins) {
  SimCluster cluster(1, 2);
  std::vector<std::byte> sent(size, std::byte{42}), got(size);
  cluster.rank(0).start(give(&cluster, &cluster.rank(0), early_rts, &sent));
  cluster.rank(1).start(take(&cluster, &cluster.rank(1), receiver_begins, &got));
  EXPECT_TRUE(cluster.run());
  EXPECT_EQ(got, sent);
  return cluster.rank(1).ended_at().time_since_epoch() - kReady;
}

TEST(EarlyRts, SparesAMessageTheRoundTripOfRtsAndCts) {
  const Duration latency = sim::LinkModel{}.latency;
  EXPECT_GE(took(kLarge, false, 0ms) - took(kLarge, true, 0ms), 2 * latency);
}

TEST(EarlyRts, OfAnEagerMessageDoesNothing) {
  EXPECT_EQ(took(Mailbox::kEagerBytes, true, 0ms), took(Mailbox::kEagerBytes, false, 0ms));
}

TEST(EarlyRts, WaitsForAReceiverThatComesLate) {
  // Before the sender is ready, and after.
  EXPECT_LT(took(kLarge, true, kReady / 2), took(kLarge, false, kReady / 2));
  EXPECT_GT(took(kLarge, true, 2 * kReady), kReady);
}

Task<void> send_early_rts_and_fail(SimCluster* cluster, SimRank* self) {
  {
    Exchange exchange(self->mailbox(), cluster->view(), self->rank(), 1, 7, CallNote(UnnamedCall{}));
    exchange.send_early_rts(1, 5, kLarge);
    co_await sleep_for(self->loop(), kReady, self->stop());
  }
  self->messenger().aborts().abort(cluster->view(), self->rank(),
                                   std::make_exception_ptr(Error(Code::kAborted, "it will not come", self->rank())));
}

TEST(EarlyRts, OfAMessageThatNeverComesEndsWithItsGroup) {
  SimCluster cluster(1, 2);
  std::vector<std::byte> got(kLarge);
  cluster.rank(0).start(send_early_rts_and_fail(&cluster, &cluster.rank(0)));
  cluster.rank(1).start(take(&cluster, &cluster.rank(1), 0ms, &got));
  ASSERT_TRUE(cluster.run());
  ASSERT_TRUE(cluster.rank(1).error());
  EXPECT_EQ(cluster.rank(1).error()->code(), Code::kAborted);
}

enum class In { kOneTransfer, kTwo };

Task<void> swap(SimCluster* cluster, SimRank* self, std::uint64_t sequence, bool short_call, In transfers,
                std::vector<std::byte>* sent, std::vector<std::byte>* got) {
  Exchange exchange(self->mailbox(), cluster->view(), self->rank(), sequence, 7, CallNote(UnnamedCall{}));
  if (short_call) exchange.swap_long();
  const int other = 1 - self->rank();
  if (transfers == In::kTwo) {
    Transfer leaves = exchange.send(other, 5, Buffer{sent->data(), sent->size()}, self->stop(), nullptr, true);
    leaves.start();
    co_await exchange.recv(other, 5, Buffer{got->data(), got->size()}, self->stop(), nullptr, true);
    co_await leaves;
    co_return;
  }
  co_await exchange.send_recv({other, 5, Buffer{sent->data(), sent->size()}},
                              {other, 5, Buffer{got->data(), got->size()}}, self->stop());
}

// How long two ranks take that send each other so much.
Duration swap_took(std::size_t size, std::uint64_t sequence = 1, bool short_call = false,
                   In transfers = In::kOneTransfer) {
  SimCluster cluster(1, 2);
  std::vector<std::byte> sent[2], got[2];
  for (int rank = 0; rank < 2; ++rank) {
    sent[rank].assign(size, std::byte{static_cast<unsigned char>(rank + 1)});
    got[rank].resize(size);
    cluster.rank(rank).start(
        swap(&cluster, &cluster.rank(rank), sequence, short_call, transfers, &sent[rank], &got[rank]));
  }
  EXPECT_TRUE(cluster.run());
  EXPECT_EQ(got[0], sent[1]);
  EXPECT_EQ(got[1], sent[0]);
  return cluster.rank(1).ended_at().time_since_epoch();
}

// In a collective. Of messages nobody knows whether the receive is posted.
TEST(Swaps, AreEagerUpToTwiceTheLength) {
  const Duration latency = sim::LinkModel{}.latency;
  constexpr std::size_t kMost = Mailbox::kSwappedEagerBytes;
  EXPECT_GE(swap_took(kMost + 1) - swap_took(kMost), 2 * latency);
  EXPECT_GE(swap_took(kMost, 1 | Exchange::kPairSequence) - swap_took(kMost), 2 * latency);
  EXPECT_GE(took(kMost, false, 0ms) - swap_took(kMost), 2 * latency) << "a message in one direction";
}

TEST(Swaps, OfAShortCallAreEagerUpToFourTimesTheLength) {
  const Duration latency = sim::LinkModel{}.latency;
  constexpr std::size_t kMost = Mailbox::kLongSwapBytes;
  for (const In transfers : {In::kOneTransfer, In::kTwo}) {
    EXPECT_GE(swap_took(kMost, 1, false, transfers) - swap_took(kMost, 1, true, transfers), 2 * latency);
    EXPECT_GE(swap_took(kMost + 1, 1, true, transfers) - swap_took(kMost, 1, true, transfers), 2 * latency);
  }
}

}  // namespace
}  // namespace aiacc
