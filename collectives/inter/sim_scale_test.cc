// A thousand simulated ranks on one thread, and their failures. Times are virtual and exact for a seed; real time is
// printed and never asserted.
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <malloc.h>

#include <chrono>
#include <map>
#include <string>

#include "collectives/inter/double_tree.h"
#include "collectives/inter/halving_doubling_allreduce.h"
#include "collectives/inter/ring_allreduce.h"
#include "collectives/inter/select.h"
#include "transports/sim/sim_cluster.h"
#include "transports/stall_times.h"

namespace aiacc {
namespace {

using sim::SimCluster;
using sim::SimRank;
using std::chrono::seconds;

using Algorithm = Task<void> (*)(Operation&);

constexpr int kRanks = 1000;
constexpr std::size_t kCount = 1'000'000;

// The deadline of an operation, as a runtime watches it.
class StallWatch final : private Timer {
 public:
  // Requests `stop` with kTimeout at `deadline`; `call` describes the operation.
  StallWatch(Messenger& messenger, std::uint64_t group, std::uint64_t sequence, Instant deadline, std::string call,
             Stop& stop)
      : messenger_(messenger),
        group_(group),
        sequence_(sequence),
        began_(messenger.mailbox().loop().now()),
        deadline_(deadline),
        times_(began_, deadline),
        call_(std::move(call)),
        stop_(stop) {
    arm();
  }

 private:
  void arm();
  void expired() noexcept override;

  Messenger& messenger_;
  std::uint64_t group_;
  std::uint64_t sequence_;
  Instant began_;
  Instant deadline_;
  StallTimes times_;
  std::string call_;
  Stop& stop_;
};

void StallWatch::arm() { messenger_.mailbox().loop().arm(*this, times_.next(messenger_.mailbox().loop().now())); }

void StallWatch::expired() noexcept {
  const Instant now = messenger_.mailbox().loop().now();
  if (now < deadline_) {
    messenger_.stragglers().investigate(group_, sequence_);
    arm();
    return;
  }
  const StragglerDiagnosis diagnosis = messenger_.stragglers().diagnosis(group_, sequence_);
  std::string waits;
  for (int rank : messenger_.mailbox().waited_for(group_, sequence_))
    waits += fmt::format("{}{}", waits.empty() ? "" : ", ", rank);
  std::string sentence = fmt::format("{} (operation {}) did not end within {} s: {}", call_, sequence_,
                                     aiacc::seconds(deadline_ - began_), diagnosis.text());
  if (!waits.empty()) sentence += fmt::format("; this rank waits for rank {}", waits);
  stop_.request(std::make_exception_ptr(Error(Code::kTimeout, std::move(sentence), diagnosis.rank)));
}

// An allreduce as a runtime runs it: with a deadline, and with an error that ends the group on all members.
Task<void> allreduce(SimCluster* cluster, SimRank* self, Buffer buffer, std::size_t count, Duration timeout,
                     Algorithm algorithm = &inter::ring_allreduce) {
  Team team{cluster->view(), self->rank(), self->loop(), self->compute(), nullptr, &self->mailbox()};
  Call call;
  call.kind = Collective::kAllreduce;
  call.count = count;
  Stop stop(self->stop());
  Operation op{team, call, 1, stop, buffer, buffer};
  StallWatch watch(self->messenger(), team.view->id(), op.sequence, after(self->loop().now(), timeout), call.describe(),
                   stop);
  try {
    co_await algorithm(op);
  } catch (const Error& error) {
    self->messenger().aborts().abort(team.view, team.rank, std::make_exception_ptr(error));
    throw;
  }
}

void start_all(SimCluster& cluster, std::size_t count = kCount, Duration timeout = seconds(1800),
               Algorithm algorithm = &inter::ring_allreduce) {
  const Buffer elided{nullptr, count * 4};
  for (int rank = 0; rank < cluster.size(); ++rank) {
    cluster.rank(rank).start(allreduce(&cluster, &cluster.rank(rank), elided, count, timeout, algorithm));
  }
}

class RealTime {
 public:
  explicit RealTime(SimCluster& cluster) : cluster_(cluster) {}
  ~RealTime() {
    const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
    fmt::print("  {} ranks: {:.2f} s, {} events, {} messages, {:.6f} s of virtual time\n", cluster_.size(), took,
               cluster_.world().events(), cluster_.fabric().messages(), seconds_of(cluster_.world().now()));
  }

 private:
  static double seconds_of(Instant instant) { return aiacc::seconds(instant.time_since_epoch()); }
  SimCluster& cluster_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

TEST(SimScale, AThousandRanksReduceOnOneThread) {
  constexpr std::size_t kElements = 2001;
  SimCluster cluster(2, kRanks);
  std::vector<std::vector<float>> values(kRanks);
  {
    RealTime print(cluster);
    for (int rank = 0; rank < kRanks; ++rank) {
      auto& mine = values[static_cast<std::size_t>(rank)];
      for (std::size_t i = 0; i < kElements; ++i)
        mine.push_back(static_cast<float>((i + static_cast<std::size_t>(rank)) % 7));
      const Buffer buffer{reinterpret_cast<std::byte*>(mine.data()), kElements * 4};
      cluster.rank(rank).start(allreduce(&cluster, &cluster.rank(rank), buffer, kElements, seconds(1800)));
    }
    ASSERT_TRUE(cluster.run());
  }
  for (std::size_t i = 0; i < kElements; ++i) {
    float expected = 0;
    for (std::size_t rank = 0; rank < kRanks; ++rank) expected += static_cast<float>((i + rank) % 7);
    ASSERT_EQ(values[0][i], expected);
  }
  for (const std::vector<float>& each : values) ASSERT_EQ(each, values[0]);
  // At least 2(n−1)α; at most that with the other costs of each message.
  const Duration took = cluster.world().now().time_since_epoch();
  EXPECT_GE(took, 2 * (kRanks - 1) * std::chrono::microseconds(5));
  EXPECT_LE(took, 2 * (kRanks - 1) * std::chrono::microseconds(9));
}

TEST(SimScale, AKilledRankIsNamedToEverySurvivorWithinASecondOfTheFirstNotice) {
  for (const auto& [ranks, victim] : {std::pair{kRanks, 617}, std::pair{100, 0}, std::pair{101, 100}}) {
    SimCluster cluster(3, ranks);
    RealTime print(cluster);
    start_all(cluster);
    // In the middle of the operation: a thousand ranks take about 12 ms.
    const Instant death(ranks == kRanks ? std::chrono::microseconds(4000) : std::chrono::microseconds(500));
    cluster.world().at(death, [&] { cluster.kill(victim); });
    ASSERT_TRUE(cluster.run());
    Instant first = kNever, last{};
    for (int rank = 0; rank < ranks; ++rank) {
      if (rank == victim) continue;
      const SimRank& survivor = cluster.rank(rank);
      ASSERT_TRUE(survivor.error()) << rank;
      ASSERT_EQ(survivor.error()->code(), Code::kPeerFailed) << rank << ": " << survivor.error()->message();
      ASSERT_EQ(survivor.error()->peer(), victim);
      first = std::min(first, survivor.ended_at());
      last = std::max(last, survivor.ended_at());
    }
    EXPECT_GT(first, death);
    EXPECT_LT(last - first, seconds(1));
    fmt::print("  rank {} died: first notice after {:.6f} s, the last rank {:.6f} s later\n", victim,
               aiacc::seconds(first - death), aiacc::seconds(last - first));
  }
}

// Small worlds in which a rank is killed at every third event of the history.
void expect_any_moment_to_end_all(Algorithm algorithm, int ranks, std::size_t count) {
  const auto start = [&](SimCluster& cluster) { start_all(cluster, count, seconds(1800), algorithm); };
  std::uint64_t events = 0;
  {
    SimCluster cluster(7, ranks);
    start(cluster);
    ASSERT_TRUE(cluster.run());
    events = cluster.world().events();
  }
  int died_in_time = 0;
  for (std::uint64_t event = 0; event < events; event += 3) {
    SimCluster cluster(7, ranks);
    start(cluster);
    const int victim = static_cast<int>(event % static_cast<std::uint64_t>(ranks));
    cluster.world().at_event(event, [&] { cluster.kill(victim); });
    ASSERT_TRUE(cluster.run()) << "killed at event " << event;
    bool failed = false;
    for (int rank = 0; rank < ranks; ++rank) {
      if (rank == victim || !cluster.rank(rank).error()) continue;
      failed = true;
      ASSERT_EQ(cluster.rank(rank).error()->code(), Code::kPeerFailed) << "killed at event " << event;
      ASSERT_EQ(cluster.rank(rank).error()->peer(), victim);
    }
    died_in_time += failed ? 1 : 0;
  }
  EXPECT_GT(died_in_time, static_cast<int>(events / 3) / 2);
}

TEST(SimScale, AnyMomentIsAMomentToDie) {
  expect_any_moment_to_end_all(&inter::ring_allreduce, 5, 100'000);
  expect_any_moment_to_end_all(&inter::halving_doubling_allreduce, 8, 600'000);  // three segments
  expect_any_moment_to_end_all(&inter::double_tree_allreduce, 6, 100'000);       // five chunks of each tree
}

TEST(SimScale, AFrozenRankStallsTheOthersAndIsNamedAtTheDeadlineAndNotBefore) {
  constexpr int kFrozen = 123;
  constexpr int kStalled = 300;  // fewer than a thousand, which would only take longer
  SimCluster cluster(6, kStalled);
  RealTime print(cluster);
  start_all(cluster, kCount, seconds(10));
  cluster.world().at(Instant(std::chrono::milliseconds(1)), [&] { cluster.freeze(kFrozen); });
  cluster.world().run_until(Instant(seconds(10)) - Duration(1));
  for (int rank = 0; rank < kStalled; ++rank) ASSERT_FALSE(cluster.rank(rank).ended()) << rank;
  cluster.world().run_until(Instant(seconds(11)));
  for (int rank = 0; rank < kStalled; ++rank) {
    if (rank == kFrozen) continue;
    ASSERT_TRUE(cluster.rank(rank).ended()) << rank;
    const Error error = *cluster.rank(rank).error();
    ASSERT_EQ(error.code(), Code::kTimeout) << error.message();
    ASSERT_EQ(error.peer(), kFrozen) << "rank " << rank << ": " << error.message();
    ASSERT_NE(error.message().find("rank 123 does not answer"), std::string::npos) << error.message();
  }
  EXPECT_FALSE(cluster.rank(kFrozen).ended());
  EXPECT_EQ(cluster.rank(124).error()->message(),
            "allreduce of 1000000 fp32, sum (operation 1) did not end within 10 s: rank 123 does not answer; this rank "
            "waits for rank 123");
  cluster.thaw(kFrozen);
  ASSERT_TRUE(cluster.run());
  EXPECT_TRUE(cluster.rank(kFrozen).error());
}

TEST(SimScale, AFrozenRankThatThawsInTimeHarmsNobody) {
  SimCluster cluster(6, 50);
  start_all(cluster, kCount, seconds(10));
  cluster.world().at(Instant(std::chrono::microseconds(200)), [&] { cluster.freeze(7); });
  cluster.world().at(Instant(seconds(5)), [&] { cluster.thaw(7); });
  ASSERT_TRUE(cluster.run());
  for (int rank = 0; rank < 50; ++rank) ASSERT_FALSE(cluster.rank(rank).error());
  EXPECT_GE(cluster.world().now(), Instant(seconds(5)));
}

TEST(SimScale, ARankThatNeverCallsIsNamed) {
  SimCluster cluster(6, 20);
  cluster.rank(11).mailbox().join(cluster.view(), 11);
  const Buffer elided{nullptr, kCount * 4};
  for (int rank = 0; rank < 20; ++rank) {
    if (rank != 11) cluster.rank(rank).start(allreduce(&cluster, &cluster.rank(rank), elided, kCount, seconds(10)));
  }
  ASSERT_TRUE(cluster.run());
  for (int rank = 0; rank < 20; ++rank) {
    if (rank == 11) continue;
    EXPECT_EQ(cluster.rank(rank).error()->code(), Code::kTimeout);
    EXPECT_EQ(cluster.rank(rank).error()->peer(), 11);
  }
  EXPECT_NE(cluster.rank(12).error()->message().find("rank 11 has not made this call"), std::string::npos);
}

TEST(SimScale, AnIdleContextCostsAtMost64KiB) {
  const auto heap = [] { return mallinfo2().uordblks + mallinfo2().hblkhd; };
  const std::size_t before = heap();
  SimCluster cluster(8, kRanks);
  for (int rank = 0; rank < kRanks; ++rank) cluster.rank(rank).mailbox().join(cluster.view(), rank);
  const std::size_t each = (heap() - before) / kRanks;
  fmt::print("  {} bytes an idle rank\n", each);
  EXPECT_LE(each, 64u << 10);
}

std::uint64_t hash_of(std::uint64_t seed, bool faults) {
  SimCluster cluster(seed, 64, {}, 4);
  start_all(cluster, 50'000);
  if (faults) {
    cluster.world().at_event(5'000, [&] { cluster.freeze(3); });
    cluster.world().at_event(6'000, [&] { cluster.thaw(3); });
    cluster.world().at_event(20'000, [&] { cluster.kill(40); });
  }
  EXPECT_TRUE(cluster.run());
  return cluster.world().trace_hash();
}

// The optimisation level must not change the history either: .ci/jobs/optimise compares the recorded property of two
// builds.
TEST(SimScale, OneSeedIsOneHistoryAndAnotherSeedIsAnother) {
  std::string hashes;
  for (bool faults : {false, true}) {
    const std::uint64_t hash = hash_of(11, faults);
    hashes += fmt::format("{:016x}", hash);
    EXPECT_EQ(hash, hash_of(11, faults));
    EXPECT_NE(hash, hash_of(12, faults));
  }
  RecordProperty("trace_hash", hashes);
}

}  // namespace
}  // namespace aiacc
