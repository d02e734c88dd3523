// Short calls on simulated ranks, with each other and with members that run the same call as an operation.
#include "collectives/inter/short_call.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "base/data/cpu_compute.h"
#include "collectives/inter/algorithms.h"
#include "collectives/inter/inter_world_test.h"
#include "collectives/inter/select.h"
#include "collectives/inter/selector.h"

namespace aiacc {
namespace {

using namespace inter_test;

// Continues as a rank does whose short call was not finished at once.
Task<void> short_call(Operation& op) {
  CpuCompute cpu;
  Team team{op.team.view, op.team.rank, op.team.loop, cpu, nullptr, op.team.mailbox};
  if (!inter::ShortCall::serves(team, op.call, op.send, op.recv))
    throw Error(Code::kInternal, "a call that is not served");
  inter::ShortCall call(team, op.call, op.sequence, op.stop, op.send, op.recv);
  co_await call.finish();
}

// One call in which the members with odd ranks take the short path.
Task<void> short_call_of_odd_ranks(Operation& op) { return op.team.rank % 2 == 1 ? short_call(op) : inter::run(op); }

TEST(ShortCall, ItsMessagesAreThoseOfRecursiveDoubling) {
  for (Algorithm algorithm : {&short_call, &short_call_of_odd_ranks}) {
    for (int ranks : {2, 4, 8, 16}) {
      for (std::size_t count : {std::size_t{1}, std::size_t{7}, inter::ShortCall::kMostBytes / 4}) {
        for (bool in_place : {false, true}) {
          for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax}) {
            check_allreduce(algorithm,
                            {.ranks = ranks, .count = count, .op = op, .in_place = in_place, .postscale = 0.25});
          }
        }
      }
    }
  }
}

TEST(ShortCall, WhatNoShortCallServes) {
  SimCluster cluster(1, 4);
  CpuCompute cpu;
  std::vector<float> data(1000);
  const auto serves = [&](const Case& test, int members, std::size_t bytes) {
    std::vector<Member> ranks;
    for (int rank = 0; rank < members; ++rank) {
      ranks.push_back({static_cast<std::uint32_t>(rank), 0, static_cast<std::uint32_t>(rank)});
    }
    const auto view = std::make_shared<const View>(1, 2, 0, 0, std::move(ranks));
    Team team{view, 0, cluster.rank(0).loop(), cpu, nullptr, &cluster.rank(0).mailbox()};
    const Buffer buffer{reinterpret_cast<std::byte*>(data.data()), bytes};
    return inter::ShortCall::serves(team, test.call(Collective::kAllreduce), buffer, buffer);
  };
  constexpr std::size_t kMost = inter::ShortCall::kMostBytes;
  EXPECT_TRUE(serves({.ranks = 4, .count = kMost / 4}, 4, kMost));
  EXPECT_FALSE(serves({.ranks = 4, .count = kMost / 4 + 1}, 4, kMost + 4)) << "too long";
  EXPECT_FALSE(serves({.ranks = 4, .count = 0}, 4, 0)) << "nothing to send";
  EXPECT_FALSE(serves({.ranks = 3, .count = 1}, 3, 4)) << "no power of two";
  EXPECT_FALSE(serves({.ranks = 4, .count = 1, .type = DType::kFloat16}, 4, 2)) << "rounded once only";
  EXPECT_FALSE(serves({.ranks = 4, .count = 1, .prescale = 0.5}, 4, 4)) << "each input is scaled";
}

TEST(ShortCall, CombinesInTheOrderOfRanksWhereTheOperatorDoesNotCommute) {
  UserOp op;
  op.record_bytes = sizeof(Affine);
  op.function = compose;
  for (const int ranks : {2, 4, 8}) {
    Call call = Case{.ranks = ranks, .count = 3, .type = DType::kRecord}.call(Collective::kAllreduce);
    call.reduction.user = &op;
    for (Algorithm algorithm : {&short_call, &short_call_of_odd_ranks}) {
      SimCluster cluster(1, ranks);
      std::vector<std::vector<Affine>> maps;
      std::vector<Affine> want(3, Affine{1, 0});
      for (int rank = 0; rank < ranks; ++rank) {
        const auto own = static_cast<std::uint32_t>(rank);
        maps.push_back({{2, own}, {3, 1}, {own + 1, 5}});
        compose(want.data(), maps.back().data(), 3, nullptr);
      }
      for (int rank = 0; rank < ranks; ++rank) {
        std::vector<Affine>& own = maps[static_cast<std::size_t>(rank)];
        const Buffer buffer{reinterpret_cast<std::byte*>(own.data()), own.size() * sizeof(Affine)};
        cluster.rank(rank).start(perform(&cluster, &cluster.rank(rank), algorithm, call, 1, buffer, buffer));
      }
      expect_all_ended_well(cluster, {.ranks = ranks, .count = 3});
      for (const std::vector<Affine>& own : maps) EXPECT_EQ(own, want) << ranks << " ranks";
    }
  }
}

// Every 32nd call of a rank is no short call, and its messages must be those that the others expect.
TEST(ShortCall, EveryShortCallIsOneThatRecursiveDoublingServes) {
  for (int ranks = 2; ranks <= 1 << 16; ranks *= 2) {
    for (std::size_t bytes = 4; bytes <= inter::ShortCall::kMostBytes; bytes += 4) {
      for (const bool ordered : {false, true}) {
        const inter::Shape shape{
            .kind = Collective::kAllreduce, .ranks = ranks, .bytes = bytes, .wide_bytes = bytes, .ordered = ordered};
        ASSERT_EQ(inter::usual_algorithm(shape).name, "recursive-doubling") << ranks << " ranks, " << bytes << " bytes";
      }
    }
  }
}

// Members would wait for messages of another algorithm.
TEST(ShortCall, AnAllreduceThatMayNotUseRecursiveDoublingIsNoShortCall) {
  struct Deaf final : inter::Selector::Listener {
    void no_permitted_algorithm(const std::string&) noexcept override {}
  } deaf;
  SimCluster cluster(1, 4);
  CpuCompute cpu;
  std::byte data[4] = {};
  for (const auto& [setting, serves] : {std::pair{"allreduce=ring", false}, std::pair{"reduce=binomial", true}}) {
    const auto rules = inter::AlgorithmRules::parse("AIACC_ALGORITHM", setting);
    inter::Selector selector(rules, deaf);
    Team team{cluster.view(), 0, cluster.rank(0).loop(), cpu, nullptr, &cluster.rank(0).mailbox(), nullptr, &selector};
    const Call call = Case{.ranks = 4, .count = 1}.call(Collective::kAllreduce);
    EXPECT_EQ(inter::ShortCall::serves(team, call, {data, 4}, {data, 4}), serves) << setting;
    EXPECT_TRUE(inter::ShortCall::serves(team, {}, {}, {})) << "a barrier";
  }
}

TEST(ShortCall, NobodyLeavesABarrierBeforeTheLastHasCome) { check_barrier(&short_call_of_odd_ranks); }

}  // namespace
}  // namespace aiacc
