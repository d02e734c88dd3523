// The chain of a broadcast beside the binomial tree on simulated ranks: which is chosen, what both take, and what happens when
// a rank in the middle dies.
#include "collectives/inter/chain_broadcast.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include "collectives/hier/hier_world_test.h"
#include "collectives/inter/algorithms.h"
#include "collectives/inter/binomial_broadcast.h"
#include "collectives/inter/inter_world_test.h"
#include "collectives/inter/selector.h"

namespace aiacc {
namespace {

using inter_test::perform;
using sim::SimCluster;
using sim::SimRank;

Call broadcast_of(std::size_t bytes) {
  Call call;
  call.kind = Collective::kBroadcast;
  call.reduction.type = DType::kUInt8;
  call.count = bytes;
  return call;
}

inter::Shape broadcast_shape(int ranks, std::size_t bytes) {
  return {.kind = Collective::kBroadcast, .ranks = ranks, .bytes = bytes, .wide_bytes = bytes};
}

double simulated_broadcast_us(const inter::AlgorithmInfo& algorithm, int ranks, std::size_t bytes) {
  SimCluster cluster(1, ranks);
  const Buffer elided{nullptr, bytes};
  for (int rank = 0; rank < ranks; ++rank) {
    cluster.rank(rank).start(
        perform(&cluster, &cluster.rank(rank), algorithm.run, broadcast_of(bytes), 1, elided, elided));
  }
  inter_test::expect_all_ended_well(cluster, {.ranks = ranks, .count = bytes});
  return std::chrono::duration<double, std::micro>(cluster.world().now().time_since_epoch()).count();
}

TEST(ChainBroadcast, IsChosenWhereItIsFasterThanTheTree) {
  fmt::print("  virtual microseconds, 100 Gbit/s and 5 us: tree, chain\n");
  for (const int ranks : {2, 3, 4, 5, 8, 16}) {
    for (std::size_t bytes = 1 << 10; bytes <= 64 << 20; bytes *= 4) {
      const double tree = simulated_broadcast_us(inter::kBinomialBroadcastInfo, ranks, bytes);
      const double chain = simulated_broadcast_us(inter::kChainBroadcastInfo, ranks, bytes);
      const inter::AlgorithmInfo& chosen = inter::usual_algorithm(broadcast_shape(ranks, bytes));
      const double taken = &chosen == &inter::kBinomialBroadcastInfo ? tree
                           : &chosen == &inter::kChainBroadcastInfo  ? chain
                                                                     : simulated_broadcast_us(chosen, ranks, bytes);
      fmt::print("  {:2} ranks {:8} KiB {:9.0f} {:9.0f}  {} {:.0f}\n", ranks, bytes >> 10, tree, chain, chosen.name,
                 taken);
      EXPECT_LE(taken, 1.15 * std::min(tree, chain)) << ranks << " ranks, " << bytes;
    }
  }
}

// Where a link carries the payload once, that is nearly all the time.
TEST(ChainBroadcast, OfALongMessageTakesLittleMoreThanOneTransfer) {
  constexpr std::size_t kBytes = 64 << 20;
  const double transfer_us = kBytes / 12'500.0;
  for (const int ranks : {4, 8, 16}) {
    EXPECT_LT(simulated_broadcast_us(inter::kChainBroadcastInfo, ranks, kBytes), 1.15 * transfer_us) << ranks;
  }
}

struct Silent final : inter::Selector::Listener {
  void no_permitted_algorithm(const std::string&) noexcept override {}
};

double simulated_over_hosts_us(const hier_test::Placement& placement, std::size_t bytes, std::string_view setting) {
  const inter::AlgorithmRules rules = inter::AlgorithmRules::parse("AIACC_ALGORITHM", setting);
  Silent silent;
  inter::Selector selector(rules, silent);
  sim::FabricModel model;
  model.between_hosts.bytes_per_second = 3'125'000'000;  // slower than the copies on the hosts
  SimCluster cluster(1, placement, model);
  std::deque<hier_test::Rank> ranks;
  std::deque<std::vector<std::byte>> buffers;
  for (int rank = 0; rank < cluster.size(); ++rank) {
    ranks.emplace_back(cluster, rank).team.selector = &selector;
    const Buffer buffer = exact::buffer_of(buffers.emplace_back(bytes));
    cluster.rank(rank).start(hier_test::open_and_perform(&ranks.back(), broadcast_of(bytes), buffer, buffer));
  }
  EXPECT_TRUE(cluster.run());
  return std::chrono::duration<double, std::micro>(cluster.world().now().time_since_epoch()).count();
}

// Hosts of two ranks: their leaders are a chain for the whole payload, although it goes between hosts in slices, and hand each
// slice on to their hosts while the next ones come.
TEST(ChainBroadcast, OfLeadersIsChosenForTheWholePayload) {
  const hier_test::Placement placement{0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7};
  constexpr std::size_t kBytes = 8 << 20;
  const double tree = simulated_over_hosts_us(placement, kBytes, "broadcast=binomial");
  const double chosen = simulated_over_hosts_us(placement, kBytes, "");
  fmt::print("  8 hosts of two ranks, 8 MiB at 25 Gbit/s, virtual microseconds: tree {:.0f}, chosen {:.0f}\n", tree,
             chosen);
  EXPECT_LT(chosen, 0.5 * tree);
}

// Among so many hosts the tree would be chosen for one slice.
TEST(ChainBroadcast, IsNotChosenSliceBySlice) {
  hier_test::Placement placement{0, 0};
  for (std::uint32_t host = 1; host < 48; ++host) placement.push_back(host);
  constexpr std::size_t kBytes = 4 << 20, kSlice = 1 << 20;
  constexpr std::uint32_t kTreeAndChain = 0b011;
  ASSERT_EQ(inter::cheapest_algorithm(broadcast_shape(48, kSlice), kTreeAndChain)->name, "binomial");
  const double tree = simulated_over_hosts_us(placement, kBytes, "broadcast=binomial");
  EXPECT_LT(simulated_over_hosts_us(placement, kBytes, "broadcast=binomial|chain"), 0.75 * tree);
}

// A broadcast as a runtime runs it: an error ends the group on all members.
Task<void> broadcast(SimCluster* cluster, SimRank* self, Buffer buffer) {
  Team team{cluster->view(), self->rank(), self->loop(), self->compute(), nullptr, &self->mailbox()};
  Operation op{team, broadcast_of(buffer.bytes), 1, self->stop(), buffer, buffer};
  try {
    co_await inter::chain_broadcast(op);
  } catch (const Error& error) {
    self->messenger().aborts().abort(team.view, team.rank, std::make_exception_ptr(error));
    throw;
  }
}

// A rank is killed at every third event of the history: whoever has not got everything by then learns which rank it was.
TEST(ChainBroadcast, EndsOnAllRanksWhenOneDies) {
  constexpr int kRanks = 6;
  constexpr std::size_t kBytes = 1 << 20;
  const auto start = [](SimCluster& cluster) {
    for (int rank = 0; rank < kRanks; ++rank) {
      cluster.rank(rank).start(broadcast(&cluster, &cluster.rank(rank), Buffer{nullptr, kBytes}));
    }
  };
  std::uint64_t events = 0;
  {
    SimCluster cluster(7, kRanks);
    start(cluster);
    ASSERT_TRUE(cluster.run());
    events = cluster.world().events();
  }
  int failed = 0;
  for (std::uint64_t event = 0; event < events; event += 3) {
    SimCluster cluster(7, kRanks);
    start(cluster);
    const int victim = 1 + static_cast<int>(event % (kRanks - 1));
    cluster.world().at_event(event, [&] { cluster.kill(victim); });
    ASSERT_TRUE(cluster.run()) << "rank " << victim << " killed at event " << event;
    bool heard = false;
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == victim || !cluster.rank(rank).error()) continue;
      heard = true;
      ASSERT_EQ(cluster.rank(rank).error()->code(), Code::kPeerFailed) << "killed at event " << event;
      ASSERT_EQ(cluster.rank(rank).error()->peer(), victim);
    }
    failed += heard ? 1 : 0;
  }
  EXPECT_GT(failed, static_cast<int>(events / 3) / 2);
}

}  // namespace
}  // namespace aiacc
