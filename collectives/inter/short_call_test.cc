// Short calls on simulated ranks, with each other and with members that run the same call as an operation.
#include "collectives/inter/short_call.h"

#include <gtest/gtest.h>

#include <algorithm>
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
using inter::name_of;

// Continues as a rank does whose short call was not finished at once. `anyhow`: also a call that would not be one.
Task<void> short_call(Operation& op, bool anyhow) {
  CpuCompute cpu;
  Team team{op.team.view, op.team.rank, op.team.loop, cpu, nullptr, op.team.mailbox};
  if (!anyhow && !inter::ShortCall::serves(team, op.call, op.send, op.recv))
    throw Error(Code::kInternal, "a call that is not served");
  inter::ShortCall call(team, op.call, op.sequence, op.stop, op.send, op.recv);
  co_await call.finish();
}

Task<void> short_call(Operation& op) { return short_call(op, false); }

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

constexpr Collective kPlainKinds[] = {Collective::kBroadcast, Collective::kAllgather, Collective::kGather,
                                      Collective::kScatter,   Collective::kReduce,    Collective::kReduceScatter};

std::size_t most_bytes(Collective kind) {
  const bool sums = kind == Collective::kReduce || kind == Collective::kReduceScatter;
  return sums ? inter::ShortCall::kMostBytes : inter::ShortCall::kMostPlainBytes;
}

TEST(ShortCall, ServesEachKindAmongFewRanksUpToItsLength) {
  SimCluster cluster(1, 4);
  CpuCompute cpu;
  std::vector<float> data(4 * inter::ShortCall::kMostPlainBytes / sizeof(float) + 4);
  Team team{cluster.view(), 0, cluster.rank(0).loop(), cpu, nullptr, &cluster.rank(0).mailbox()};
  const Buffer all{reinterpret_cast<std::byte*>(data.data()), data.size() * sizeof(float)};
  for (const Collective kind : kPlainKinds) {
    const bool doubles = kind == Collective::kAllgather || kind == Collective::kReduceScatter;
    const std::size_t most = doubles ? most_bytes(kind) / 2 : most_bytes(kind);  // two blocks in a message
    for (std::size_t bytes = 4; bytes <= most; bytes *= 2) {
      const Case test{.ranks = 4, .count = bytes / sizeof(float), .root = 1};
      EXPECT_TRUE(inter::ShortCall::serves(team, test.call(kind), all, all)) << name_of(kind) << " of " << bytes;
    }
    Call call = Case{.ranks = 4, .count = most / sizeof(float) + 1}.call(kind);
    EXPECT_FALSE(inter::ShortCall::serves(team, call, all, all)) << name_of(kind) << ": too long";
    call.count = 0;
    EXPECT_FALSE(inter::ShortCall::serves(team, call, all, all)) << name_of(kind) << ": nothing to send";
    call.count = 1;
    call.uneven = true;
    EXPECT_FALSE(inter::ShortCall::serves(team, call, all, all)) << name_of(kind) << ": uneven";
    call.uneven = false;
    Buffer elsewhere = all;
    elsewhere.kind = MemoryKind::kCuda;
    EXPECT_FALSE(inter::ShortCall::serves(team, call, elsewhere, all)) << name_of(kind) << ": memory of a device";
  }
}

TEST(ShortCall, ServesAnAlltoallOfTwoRanksUnlessItIsInPlace) {
  std::vector<float> data(16);
  const auto memory = reinterpret_cast<std::byte*>(data.data());
  for (const int ranks : {2, 4}) {
    SimCluster cluster(1, ranks);
    CpuCompute cpu;
    Team team{cluster.view(), 0, cluster.rank(0).loop(), cpu, nullptr, &cluster.rank(0).mailbox()};
    const Call call = Case{.ranks = ranks, .count = 1}.call(Collective::kAlltoall);
    const std::size_t bytes = static_cast<std::size_t>(ranks) * sizeof(float);
    EXPECT_EQ(inter::ShortCall::serves(team, call, {memory, bytes}, {memory + bytes, bytes}), ranks == 2) << ranks;
    EXPECT_FALSE(inter::ShortCall::serves(team, call, {memory, bytes}, {memory, bytes})) << ranks << ", in place";
  }
}

// The messages to the root of a longer gather come in any order; its operation has receives for all of them.
TEST(ShortCall, ServesTheRootOfAGatherAmongMoreThanTwoOnlyIfItIsVeryShort) {
  constexpr std::size_t kMost = inter::ShortCall::kMostGatheredBytes / sizeof(float);
  std::vector<float> data(4 * (kMost + 1));
  const Buffer all{reinterpret_cast<std::byte*>(data.data()), data.size() * sizeof(float)};
  for (const int ranks : {2, 3, 4}) {
    SimCluster cluster(1, ranks);
    CpuCompute cpu;
    for (int rank = 0; rank < ranks; ++rank) {
      Team team{cluster.view(), rank, cluster.rank(rank).loop(), cpu, nullptr, &cluster.rank(rank).mailbox()};
      for (const std::size_t count : {kMost, kMost + 1}) {
        const Call call = Case{.ranks = ranks, .count = count, .root = 1}.call(Collective::kGather);
        EXPECT_EQ(inter::ShortCall::serves(team, call, all, all), rank != 1 || ranks == 2 || count == kMost)
            << "rank " << rank << " of " << ranks << ", " << count;
      }
    }
  }
}

std::size_t elements(bool blocks, bool has, const Case& test) {
  if (!has) return 0;
  return blocks ? test.count * static_cast<std::size_t>(test.ranks) : test.count;
}

// Of the elements of rank r of a buffer with blocks, those of block b have the value of (r, b).
float value_of(int rank, std::size_t block) {
  return static_cast<float>(3 * rank + 1) + static_cast<float>(block) / 16;
}

std::vector<float> filled(int rank, std::size_t length, std::size_t block) {
  std::vector<float> data(length);
  for (std::size_t i = 0; i < length; ++i) data[i] = value_of(rank, i / block);
  return data;
}

// What the rank is to have.
std::vector<float> expected_at(int rank, Collective kind, const Case& test, std::size_t length) {
  const auto own = static_cast<std::size_t>(rank);
  const double scale = test.postscale / (test.op == ReduceOp::kAvg ? test.ranks : 1);
  std::vector<float> result(length);
  for (std::size_t i = 0; i < length; ++i) {
    const std::size_t block = i / test.count;
    switch (kind) {
      case Collective::kBroadcast: result[i] = value_of(test.root, 0); break;
      case Collective::kScatter: result[i] = value_of(test.root, own); break;
      case Collective::kAlltoall: result[i] = value_of(static_cast<int>(block), own); break;
      case Collective::kReduce:
        for (int other = 0; other < test.ranks; ++other) result[i] += value_of(other, 0);
        result[i] = static_cast<float>(result[i] * scale);
        break;
      case Collective::kReduceScatter:
        for (int other = 0; other < test.ranks; ++other) result[i] += value_of(other, own);
        result[i] = static_cast<float>(result[i] * scale);
        break;
      default: result[i] = value_of(static_cast<int>(block), 0);
    }
  }
  return result;
}

void check_call(Algorithm algorithm, Collective kind, const Case& test) {
  SimCluster cluster(seed_of(test), test.ranks);
  const bool swaps = kind == Collective::kAlltoall;
  const bool many_in = kind == Collective::kScatter || kind == Collective::kReduceScatter || swaps;
  const bool many_out = kind == Collective::kGather || kind == Collective::kAllgather || swaps;
  const bool to_root = kind == Collective::kGather || kind == Collective::kReduce;
  std::vector<std::vector<float>> sends, recvs;
  for (int rank = 0; rank < test.ranks; ++rank) {
    const bool root = rank == test.root;
    sends.push_back(filled(rank, elements(many_in, kind != Collective::kScatter || root, test), test.count));
    recvs.emplace_back(elements(many_out, !to_root || root, test));
  }
  const auto buffer_of_all = [](std::vector<float>& data) {
    return Buffer{reinterpret_cast<std::byte*>(data.data()), data.size() * sizeof(float)};
  };
  for (int rank = 0; rank < test.ranks; ++rank) {
    const auto i = static_cast<std::size_t>(rank);
    Buffer send = buffer_of_all(sends[i]), recv = buffer_of_all(recvs[i]);
    const std::size_t own = i * test.count * sizeof(float), bytes = test.count * sizeof(float);
    if (test.in_place && recv.bytes == send.bytes && !many_in) recv = send;
    if (test.in_place && many_out && recv.bytes > 0) {
      std::copy(sends[i].begin(), sends[i].end(), recvs[i].begin() + static_cast<std::ptrdiff_t>(i * test.count));
      send = recv.slice(own, bytes);
    }
    if (test.in_place && many_in && send.bytes > 0) recv = send.slice(own, bytes);
    cluster.rank(rank).start(perform(&cluster, &cluster.rank(rank), algorithm, test.call(kind), 1, send, recv));
  }
  expect_all_ended_well(cluster, test);
  for (int rank = 0; rank < test.ranks; ++rank) {
    const auto i = static_cast<std::size_t>(rank);
    const auto begin = static_cast<std::ptrdiff_t>(many_in ? i * test.count : 0);
    const auto count = static_cast<std::ptrdiff_t>(test.count);
    const bool is_whole = kind == Collective::kBroadcast || (kind == Collective::kReduce && rank == test.root);
    const bool in_sends = test.in_place && (is_whole || (many_in && !sends[i].empty()));
    const std::vector<float> got =
        in_sends ? std::vector<float>(sends[i].begin() + begin, sends[i].begin() + begin + count) : recvs[i];
    ASSERT_EQ(got, expected_at(rank, kind, test, got.size()))
        << name_of(kind) << ", " << test.text() << ", rank " << rank;
  }
}

Task<void> short_call_anyhow(Operation& op) { return short_call(op, true); }

Task<void> short_call_anyhow_of_odd_ranks(Operation& op) {
  return op.team.rank % 2 == 1 ? short_call(op, true) : inter::short_algorithm(op.call, op.team.size())->run(op);
}

// Each member may take the other path, whether or not such a call is a short one.
TEST(ShortCall, ItsMessagesAreThoseOfTheAlgorithm) {
  for (const Collective kind : kPlainKinds) {
    const std::size_t most = most_bytes(kind);
    for (Algorithm algorithm : {&short_call_anyhow, &short_call_anyhow_of_odd_ranks}) {
      for (const int ranks : {2, 3, 4, 5, 7, 8}) {
        for (const std::size_t count : {std::size_t{1}, std::size_t{700}, most / sizeof(float)}) {
          for (const int root : {0, 1, ranks - 1}) {
            for (const bool in_place : {false, true}) {
              check_call(algorithm, kind, {.ranks = ranks, .count = count, .in_place = in_place, .root = root});
            }
          }
        }
      }
      check_call(algorithm, kind, {.ranks = 40, .count = 1});  // more rounds in a ring than an int has bits
    }
  }
}

// Powers of two, so that means and scaled sums are exact.
TEST(ShortCall, ScalesOnlyTheWholeSum) {
  for (const Collective kind : {Collective::kReduce, Collective::kReduceScatter}) {
    for (Algorithm algorithm : {&short_call, &short_call_of_odd_ranks}) {
      for (const int ranks : {2, 4, 8}) {
        for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
          for (const bool in_place : {false, true}) {
            check_call(algorithm, kind,
                       {.ranks = ranks, .count = 7, .op = op, .in_place = in_place, .root = 1, .postscale = 0.25});
          }
        }
      }
    }
  }
}

TEST(ShortCall, AnAlltoallOfTwoRanksIsOneSwap) {
  for (Algorithm algorithm : {&short_call, &short_call_of_odd_ranks}) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{700}, inter::ShortCall::kMostPlainBytes / 4}) {
      check_call(algorithm, Collective::kAlltoall, {.ranks = 2, .count = count});
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

TEST(ShortCall, ShortAllreducesAreServedByRecursiveDoubling) {
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
