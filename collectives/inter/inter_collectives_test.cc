// Compares every algorithm over messages with an exact reference, on simulated ranks.
#include <gtest/gtest.h>

#include <cstring>

#include "base/data/reference_reduce.h"
#include "collectives/inter/binomial_broadcast.h"
#include "collectives/inter/binomial_reduce.h"
#include "collectives/inter/chain_broadcast.h"
#include "collectives/inter/dissemination_barrier.h"
#include "collectives/inter/inter_call.h"
#include "collectives/inter/inter_world_test.h"
#include "collectives/inter/point_to_point.h"
#include "collectives/inter/recursive_doubling_allgather.h"
#include "collectives/inter/recursive_doubling_allreduce.h"
#include "collectives/inter/recursive_halving_reduce_scatter.h"
#include "collectives/inter/ring_allgather.h"
#include "collectives/inter/ring_allreduce.h"
#include "collectives/inter/ring_reduce_scatter.h"
#include "collectives/inter/select.h"

namespace aiacc {
namespace {

using namespace inter_test;

// Long calls are slow to check (the reference works element by element), so only two numbers of ranks run them.
bool takes_long_calls(int ranks) { return ranks == 2 || ranks == 5; }

// Counts around the boundaries of slices and segments of fp32.
std::vector<std::size_t> counts_for(int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  const std::size_t segment = n * inter::kSliceBytes / 4;
  if (!takes_long_calls(ranks)) return {0, 1, n - 1, n, n + 1, 1000};
  return {0, 1, n - 1, n, n + 1, 1000, segment - 1, segment, segment + 1, ranks == 2 ? 5 * segment + 3 : 1};
}

// Counts around the boundaries of chunks, with more chunks than slots.
std::vector<std::size_t> chunk_counts_for(int ranks) {
  constexpr std::size_t kChunk = inter::kSliceBytes / 4;
  if (!takes_long_calls(ranks)) return {0, 1, 1000};
  return {0, 1, 1000, kChunk + 1, 5 * kChunk - 1};
}

constexpr Algorithm kAllreduces[] = {&inter::ring_allreduce, &inter::recursive_doubling_allreduce};

TEST(NetAllreduce, AnyNumberOfRanksAndAnyCount) {
  for (Algorithm algorithm : kAllreduces) {
    for (int ranks : kRankCounts) {
      for (std::size_t count : counts_for(ranks)) {
        for (bool in_place : {false, true})
          check_allreduce(algorithm, {.ranks = ranks, .count = count, .in_place = in_place});
      }
    }
  }
}

TEST(NetAllreduce, AnyTypeAndOperator) {
  for (Algorithm algorithm : kAllreduces) {
    for (int ranks : {1, 2, 3, 5, 8}) {
      for (int type = 0; type < kDTypes; ++type) {
        for (int op = 0; op < kReduceOps; ++op) {
          Case test{.ranks = ranks, .count = 101, .type = static_cast<DType>(type), .op = static_cast<ReduceOp>(op)};
          if (!supports(test.op, test.type)) continue;
          check_allreduce(algorithm, test);
          test.in_place = true;
          check_allreduce(algorithm, test);
        }
      }
    }
  }
}

TEST(NetAllreduce, ScalesEachInputOnceAndTheResultOnce) {
  for (Algorithm algorithm : kAllreduces) {
    for (int ranks : kRankCounts) {
      for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
        for (bool in_place : {false, true}) {
          check_allreduce(
              algorithm,
              {.ranks = ranks, .count = 37, .op = op, .in_place = in_place, .prescale = 0.5, .postscale = 4.0});
          check_allreduce(algorithm, {.ranks = ranks, .count = 37, .op = op, .in_place = in_place, .postscale = 0.25});
        }
      }
    }
  }
}

TEST(NetAllreduce, EveryRankHasTheSameBitsWhateverTheOrderOfArrival) {
  for (Algorithm algorithm : kAllreduces) {
    Bytes first;
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      sum_of_random_numbers(algorithm, 7, 3001, DType::kFloat16, seed);
      const Bytes sum = sum_of_random_numbers(algorithm, 7, 3001, DType::kFloat32, seed);
      if (first.empty()) first = sum;
      ASSERT_TRUE(sum == first) << "seed " << seed;
    }
  }
}

// More ranks than the one-round algorithm serves: ⌈log₂ n⌉ messages each, and one rounding at the end.
TEST(NetAllreduce, SmallHalvesOfManyRanksTravelInLogNMessages) {
  for (const Collective kind : {Collective::kAllreduce, Collective::kReduce}) {
    for (const DType type : {DType::kFloat16, DType::kBFloat16}) {
      constexpr int kRanks = 16;
      SimCluster cluster(3, kRanks);
      Case test{.ranks = kRanks, .count = 3, .type = type, .op = ReduceOp::kAvg, .root = 5, .prescale = 0.5};
      const Call call = test.call(kind);
      // 16 plus fifteen values that are each too small to change a 16-bit sum.
      const auto word = [type](float value) {
        return type == DType::kFloat16 ? reference::float_to_half(value) : reference::float_to_bfloat(value);
      };
      const float tiny = type == DType::kFloat16 ? 0x1p-8f : 0x1p-5f;
      std::vector<Bytes> buffers(kRanks, Bytes(test.count * 2));
      for (int rank = 0; rank < kRanks; ++rank) {
        const std::uint16_t value = word(rank == 2 ? 16.0f : tiny);
        for (std::size_t i = 0; i < test.count; ++i) {
          std::memcpy(buffers[static_cast<std::size_t>(rank)].data() + 2 * i, &value, 2);
        }
      }
      for (int rank = 0; rank < kRanks; ++rank) {
        const Buffer buffer = buffer_of(buffers[static_cast<std::size_t>(rank)]);
        const Buffer to = kind == Collective::kAllreduce || rank == test.root ? buffer : Buffer{};
        cluster.rank(rank).start(perform(&cluster, &cluster.rank(rank), &inter::run, call, 1, buffer, to));
      }
      expect_all_ended_well(cluster, test);
      const std::uint16_t expected = word((16.0f + 15 * tiny) / 32);
      for (std::size_t i = 0; i < test.count; ++i) {
        EXPECT_EQ(std::memcmp(buffers[5].data() + 2 * i, &expected, 2), 0);
      }
      if (kind == Collective::kAllreduce) {
        for (const Bytes& bytes : buffers) EXPECT_TRUE(bytes == buffers[0]);
      }
      EXPECT_EQ(cluster.fabric().messages(), kind == Collective::kAllreduce ? kRanks * 4u : kRanks - 1u);
    }
  }
}

void check_reduce(const Case& test) {
  SimCluster cluster(seed_of(test), test.ranks);
  const Call call = test.call(Collective::kReduce);
  std::vector<Bytes> inputs, sends;
  for (int rank = 0; rank < test.ranks; ++rank) inputs.push_back(input_of(test.type, test.op, test.count, rank));
  sends = inputs;
  Bytes result(inputs[0].size(), std::byte{0xcc}), untouched = result;
  for (int rank = 0; rank < test.ranks; ++rank) {
    const Buffer send = buffer_of(sends[static_cast<std::size_t>(rank)]);
    const Buffer recv = rank != test.root ? buffer_of(untouched) : test.in_place ? send : buffer_of(result);
    cluster.rank(rank).start(perform(&cluster, &cluster.rank(rank), &inter::binomial_reduce, call, 1, send, recv));
  }
  expect_all_ended_well(cluster, test);
  const auto root = static_cast<std::size_t>(test.root);
  ASSERT_TRUE((test.in_place ? sends[root] : result) == reduced(inputs, call, test.count)) << test.text();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (i != root || !test.in_place) {
      ASSERT_TRUE(sends[i] == inputs[i]) << test.text() << ": the input changed";
    }
  }
  ASSERT_EQ(std::count(untouched.begin(), untouched.end(), std::byte{0xcc}), static_cast<long>(untouched.size()));
}

TEST(NetReduce, AnyRootRanksAndCount) {
  for (int ranks : kRankCounts) {
    for (std::size_t count : chunk_counts_for(ranks)) {
      for (int root : {0, ranks / 2, ranks - 1}) {
        for (bool in_place : {false, true}) {
          check_reduce({.ranks = ranks, .count = count, .in_place = in_place, .root = root});
          check_reduce({.ranks = ranks,
                        .count = count,
                        .op = ReduceOp::kAvg,
                        .in_place = in_place,
                        .root = root,
                        .prescale = 2.0,
                        .postscale = 0.5});
        }
      }
    }
  }
}

void check_broadcast(Algorithm algorithm, const Case& test, bool apart) {
  SimCluster cluster(seed_of(test), test.ranks);
  const Call call = test.call(Collective::kBroadcast);
  const Bytes expected = input_of(test.type, test.op, test.count, 4);
  Bytes source = expected;
  std::vector<Bytes> buffers(static_cast<std::size_t>(test.ranks), Bytes(expected.size(), std::byte{0xcc}));
  if (!apart) buffers[static_cast<std::size_t>(test.root)] = expected;
  for (int rank = 0; rank < test.ranks; ++rank) {
    const Buffer buffer = buffer_of(buffers[static_cast<std::size_t>(rank)]);
    const Buffer send = rank == test.root && apart ? buffer_of(source) : buffer;
    cluster.rank(rank).start(perform(&cluster, &cluster.rank(rank), algorithm, call, 1, send, buffer));
  }
  expect_all_ended_well(cluster, test);
  for (const Bytes& bytes : buffers) ASSERT_TRUE(bytes == expected) << test.text();
}

TEST(NetBroadcast, AnyRootRanksAndCount) {
  for (int ranks : kRankCounts) {
    for (std::size_t count : chunk_counts_for(ranks)) {
      for (int root : {0, ranks / 2, ranks - 1}) {
        for (bool apart : {false, true}) {
          for (const Algorithm algorithm : {&inter::binomial_broadcast, &inter::chain_broadcast}) {
            check_broadcast(algorithm, {.ranks = ranks, .count = count, .root = root}, apart);
          }
        }
      }
    }
  }
}

void check_allgather(Algorithm algorithm, const Case& test) {
  SimCluster cluster(seed_of(test), test.ranks);
  const Call call = test.call(Collective::kAllgather);
  const std::size_t block = call.bytes();
  std::vector<Bytes> sends, recvs;
  Bytes expected;
  for (int rank = 0; rank < test.ranks; ++rank) {
    sends.push_back(input_of(test.type, test.op, test.count, rank));
    expected.insert(expected.end(), sends.back().begin(), sends.back().end());
    recvs.push_back(Bytes(block * static_cast<std::size_t>(test.ranks), std::byte{0xcc}));
    if (test.in_place)
      std::copy(sends.back().begin(), sends.back().end(), recvs.back().begin() + static_cast<long>(block) * rank);
  }
  for (int rank = 0; rank < test.ranks; ++rank) {
    const auto i = static_cast<std::size_t>(rank);
    const Buffer recv = buffer_of(recvs[i]);
    const Buffer send = test.in_place ? recv.slice(block * i, block) : buffer_of(sends[i]);
    cluster.rank(rank).start(perform(&cluster, &cluster.rank(rank), algorithm, call, 1, send, recv));
  }
  expect_all_ended_well(cluster, test);
  for (const Bytes& bytes : recvs) ASSERT_TRUE(bytes == expected) << test.text();
}

TEST(NetAllgather, AnyRanksAndCount) {
  for (int ranks : kRankCounts) {
    for (std::size_t count : chunk_counts_for(ranks)) {
      for (bool in_place : {false, true})
        check_allgather(&inter::ring_allgather, {.ranks = ranks, .count = count, .in_place = in_place});
    }
  }
}

// Up to the longest block for which doubling and halving apply.
std::vector<std::size_t> doubled_counts(int ranks) {
  const std::size_t most = Mailbox::kSwappedEagerBytes / static_cast<std::size_t>(ranks / 2) / sizeof(float);
  EXPECT_TRUE(inter::recursive_doubling_applies(ranks, most * sizeof(float)));
  EXPECT_FALSE(inter::recursive_doubling_applies(ranks, most * sizeof(float) + 1));
  return {0, 1, 700, most};
}

TEST(NetAllgather, ByRecursiveDoubling) {
  for (const int ranks : {4, 8, 16}) {
    for (const std::size_t count : doubled_counts(ranks)) {
      for (const bool in_place : {false, true}) {
        check_allgather(&inter::recursive_doubling_allgather, {.ranks = ranks, .count = count, .in_place = in_place});
      }
    }
  }
}

// Messages of each rank to others. Equal blocks that are short take as many steps as the number of ranks has doublings.
TEST(NetAllgather, ShortBlocksTravelInLogNMessages) {
  for (const Collective kind : {Collective::kAllgather, Collective::kReduceScatter}) {
    for (const int ranks : {2, 3, 4, 8}) {
      SimCluster cluster(1, ranks);
      const Call call = Case{.ranks = ranks, .count = 5}.call(kind);
      std::vector<Bytes> all(static_cast<std::size_t>(ranks), Bytes(call.bytes() * static_cast<std::size_t>(ranks)));
      for (int rank = 0; rank < ranks; ++rank) {
        const auto own = static_cast<std::size_t>(rank);
        const Buffer buffer = buffer_of(all[own]), block = buffer.slice(call.bytes() * own, call.bytes());
        const bool gathers = kind == Collective::kAllgather;
        cluster.rank(rank).start(perform(&cluster, &cluster.rank(rank), &inter::run, call, 1, gathers ? block : buffer,
                                         gathers ? buffer : block));
      }
      expect_all_ended_well(cluster, {.ranks = ranks, .count = 5});
      const int each = ranks == 8 ? 3 : ranks == 3 ? 2 : ranks / 2;
      EXPECT_EQ(cluster.fabric().messages(), static_cast<std::uint64_t>(ranks * each)) << ranks << " ranks";
    }
  }
}

void check_reduce_scatter(Algorithm algorithm, const Case& test) {
  SimCluster cluster(seed_of(test), test.ranks);
  const Call call = test.call(Collective::kReduceScatter);
  const auto n = static_cast<std::size_t>(test.ranks);
  const std::size_t block = call.bytes();
  std::vector<Bytes> inputs, sends, recvs;
  for (int rank = 0; rank < test.ranks; ++rank) {
    inputs.push_back(input_of(test.type, test.op, test.count * n, rank));
    recvs.push_back(Bytes(block, std::byte{0xcc}));
  }
  sends = inputs;
  for (std::size_t i = 0; i < n; ++i) {
    const Buffer send = buffer_of(sends[i]);
    const int rank = static_cast<int>(i);
    cluster.rank(rank).start(perform(&cluster, &cluster.rank(rank), algorithm, call, 1, send,
                                     test.in_place ? send.slice(block * i, block) : buffer_of(recvs[i])));
  }
  expect_all_ended_well(cluster, test);
  const Bytes expected = reduced(inputs, call, test.count * n);
  for (std::size_t i = 0; i < n; ++i) {
    const auto begin = expected.begin() + static_cast<long>(block * i);
    const auto& place = test.in_place ? sends[i] : recvs[i];
    const auto got = place.begin() + static_cast<long>(test.in_place ? block * i : 0);
    ASSERT_TRUE(std::equal(begin, begin + static_cast<long>(block), got)) << test.text() << ", rank " << i;
    if (!test.in_place) {
      ASSERT_TRUE(sends[i] == inputs[i]) << test.text() << ": the input changed";
    }
  }
}

TEST(NetReduceScatter, AnyRanksAndCount) {
  for (int ranks : kRankCounts) {
    for (std::size_t count : chunk_counts_for(ranks)) {
      for (bool in_place : {false, true}) {
        check_reduce_scatter(&inter::ring_reduce_scatter, {.ranks = ranks, .count = count, .in_place = in_place});
        check_reduce_scatter(
            &inter::ring_reduce_scatter,
            {.ranks = ranks, .count = count, .op = ReduceOp::kAvg, .in_place = in_place, .prescale = 2.0});
      }
    }
  }
}

TEST(NetReduceScatter, ByRecursiveHalving) {
  for (const int ranks : {4, 8, 16}) {
    for (const std::size_t count : doubled_counts(ranks)) {
      for (const bool in_place : {false, true}) {
        for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax}) {
          const double prescale = op == ReduceOp::kAvg ? 2.0 : 1.0;
          check_reduce_scatter(
              &inter::recursive_halving_reduce_scatter,
              {.ranks = ranks, .count = count, .op = op, .in_place = in_place, .prescale = prescale, .postscale = 0.5});
        }
      }
    }
  }
}

TEST(NetBarrier, NobodyLeavesBeforeTheLastHasCome) { check_barrier(&inter::dissemination_barrier); }

TEST(NetPointToPoint, PairsCountTheirCallsThemselves) {
  // Ranks 0→1 and 1→2 use the same sequence number for different calls.
  SimCluster cluster(4, 3);
  Bytes a = input_of(DType::kFloat32, ReduceOp::kSum, 100, 0), b = input_of(DType::kFloat32, ReduceOp::kSum, 9000, 1);
  Bytes got_a(a.size()), got_b(b.size());
  const auto call = [](Collective kind, std::size_t count, int peer) {
    Call result;
    result.kind = kind;
    result.count = count;
    result.root = peer;
    result.tag = 5;
    return result;
  };
  cluster.rank(0).start(
      perform(&cluster, &cluster.rank(0), &inter::run, call(Collective::kSend, 100, 1), 1, buffer_of(a), {}));
  cluster.rank(2).start(
      perform(&cluster, &cluster.rank(2), &inter::run, call(Collective::kRecv, 9000, 1), 1, {}, buffer_of(got_b)));
  cluster.rank(1).start(
      perform(&cluster, &cluster.rank(1), &inter::run, call(Collective::kRecv, 100, 0), 1, {}, buffer_of(got_a)));
  ASSERT_TRUE(cluster.world().run_while_not([&] { return cluster.rank(1).ended(); }));
  cluster.rank(1).start(
      perform(&cluster, &cluster.rank(1), &inter::run, call(Collective::kSend, 9000, 2), 1, buffer_of(b), {}));
  expect_all_ended_well(cluster, {.ranks = 3, .count = 100});
  EXPECT_EQ(got_a, a);
  EXPECT_EQ(got_b, b);
}

TEST(NetPointToPoint, LengthsThatDifferAreAMismatchOnBothSides) {
  for (std::size_t count : {std::size_t{10}, std::size_t{100'000}}) {
    SimCluster cluster(4, 2);
    Bytes sent(count * 4), got(count * 4 + 4);
    Call send;
    send.kind = Collective::kSend;
    send.count = count;
    send.root = 1;
    Call recv = send;
    recv.kind = Collective::kRecv;
    recv.count = count + 1;
    recv.root = 0;
    cluster.rank(0).start(perform(&cluster, &cluster.rank(0), &inter::run, send, 1, buffer_of(sent), {}));
    cluster.rank(1).start(perform(&cluster, &cluster.rank(1), &inter::run, recv, 1, {}, buffer_of(got)));
    ASSERT_TRUE(cluster.run());
    ASSERT_TRUE(cluster.rank(1).error());
    EXPECT_EQ(cluster.rank(1).error()->code(), Code::kMismatch);
    EXPECT_NE(cluster.rank(1).error()->message().find("rank 0 called " + send.describe()), std::string::npos);
    EXPECT_NE(cluster.rank(1).error()->message().find("rank 1 called " + recv.describe()), std::string::npos);
    EXPECT_TRUE(cluster.rank(0).mailbox().error_of(cluster.view()->id()));
  }
}

TEST(NetSelect, DifferentCollectivesOfOneTicketAreAMismatchOnAllMembers) {
  for (std::size_t count : {std::size_t{8}, std::size_t{100'000}}) {
    SimCluster cluster(4, 5);
    std::vector<Bytes> buffers(5, Bytes(count * 4));
    for (int rank = 0; rank < 5; ++rank) {
      Call call;
      call.kind = rank == 3 ? Collective::kBroadcast : Collective::kAllreduce;
      call.count = count;
      const Buffer buffer = buffer_of(buffers[static_cast<std::size_t>(rank)]);
      cluster.rank(rank).start(perform(&cluster, &cluster.rank(rank), &inter::run, call, 1, buffer, buffer));
    }
    ASSERT_TRUE(cluster.run());
    for (int rank = 0; rank < 5; ++rank) {
      ASSERT_TRUE(cluster.rank(rank).error()) << rank;
      EXPECT_EQ(cluster.rank(rank).error()->code(), Code::kMismatch);
      EXPECT_NE(cluster.rank(rank).error()->message().find("rank 3 called broadcast of"), std::string::npos);
      // Both neighbours of rank 3 in the chain of a long broadcast may notice at once, and others hear of either first.
      if (count > 8) continue;
      EXPECT_EQ(cluster.rank(rank).error()->message(), cluster.rank(0).error()->message());
    }
  }
}

}  // namespace
}  // namespace aiacc
