// Simulated ranks that run one algorithm over messages, and the results that each must have. For tests only.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "base/data/reference_reduce.h"
#include "collectives/operation.h"
#include "tests/exact_inputs.h"
#include "transports/sim/sim_cluster.h"

namespace aiacc::inter_test {

using exact::buffer_of;
using exact::Bytes;
using exact::input_of;
using exact::reduced;
using sim::SimCluster;
using sim::SimRank;
using Algorithm = Task<void> (*)(Operation&);

inline constexpr int kRankCounts[] = {1, 2, 3, 4, 5, 7, 8};

inline Task<void> perform(SimCluster* cluster, SimRank* self, Algorithm algorithm, Call call, std::uint64_t sequence,
                          Buffer send, Buffer recv) {
  Team team{cluster->view(), self->rank(), self->loop(), self->compute(), nullptr, &self->mailbox()};
  Operation op{team, call, sequence, self->stop(), send, recv};
  co_await algorithm(op);
}

// x ↦ ax + b, and the composition of two such maps, which does not commute.
struct Affine {
  std::uint32_t a, b;
  bool operator==(const Affine&) const = default;
};

inline void compose(void* inout, const void* in, std::size_t records, void*) {
  auto* const lower = static_cast<Affine*>(inout);
  const auto* const upper = static_cast<const Affine*>(in);
  for (std::size_t i = 0; i < records; ++i) lower[i] = {lower[i].a * upper[i].a, lower[i].a * upper[i].b + lower[i].b};
}

struct Case {
  int ranks;
  std::size_t count;
  DType type = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  bool in_place = false;
  int root = 0;
  double prescale = 1.0;
  double postscale = 1.0;

  Call call(Collective kind) const {
    Call result;
    result.kind = kind;
    result.count = count;
    result.reduction.type = type;
    result.reduction.op = op;
    result.reduction.prescale = prescale;
    result.reduction.postscale = postscale;
    result.root = root;
    return result;
  }
  std::string text() const {
    return std::to_string(ranks) + " ranks, " + std::to_string(count) + " " + std::string(name_of(type)) + ", " +
           std::string(name_of(op)) + (in_place ? ", in place" : "") + ", root " + std::to_string(root);
  }
};

inline void expect_all_ended_well(SimCluster& cluster, const Case& test) {
  ASSERT_TRUE(cluster.run()) << test.text();
  for (int rank = 0; rank < test.ranks; ++rank) {
    ASSERT_FALSE(cluster.rank(rank).error()) << test.text() << ": " << cluster.rank(rank).error()->message();
  }
}

inline std::uint64_t seed_of(const Case& test) { return Hash64().add(test.text()).value(); }

inline void check_allreduce(Algorithm algorithm, const Case& test) {
  SimCluster cluster(seed_of(test), test.ranks);
  const Call call = test.call(Collective::kAllreduce);
  std::vector<Bytes> inputs, sends, recvs;
  for (int rank = 0; rank < test.ranks; ++rank) {
    inputs.push_back(input_of(test.type, test.op, test.count, rank));
    sends.push_back(inputs.back());
    recvs.push_back(Bytes(inputs.back().size(), std::byte{0xcc}));
  }
  for (int rank = 0; rank < test.ranks; ++rank) {
    const auto i = static_cast<std::size_t>(rank);
    const Buffer send = buffer_of(sends[i]);
    cluster.rank(rank).start(
        perform(&cluster, &cluster.rank(rank), algorithm, call, 1, send, test.in_place ? send : buffer_of(recvs[i])));
  }
  expect_all_ended_well(cluster, test);
  const Bytes expected = reduced(inputs, call, test.count);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    ASSERT_TRUE((test.in_place ? sends[i] : recvs[i]) == expected) << test.text() << ", rank " << i;
    if (!test.in_place) {
      ASSERT_TRUE(sends[i] == inputs[i]) << test.text() << ": the input changed";
    }
  }
}

// An allreduce in place of numbers that are the same for every seed and whose sum depends on the order of additions.
// All ranks must get the same bits.
inline Bytes sum_of_random_numbers(Algorithm algorithm, int ranks, std::size_t count, DType type, std::uint64_t seed) {
  SimCluster cluster(seed, ranks);
  const Case test{.ranks = ranks, .count = count, .type = type};
  sim::Random random(99);
  std::vector<Bytes> buffers(static_cast<std::size_t>(ranks), Bytes(count * size_of(type)));
  for (Bytes& bytes : buffers) {
    for (std::size_t i = 0; i < count; ++i) {
      const float value = static_cast<float>(static_cast<double>(random.next() % 2'000'001) / 1e5 - 10.0);
      const std::uint32_t word =
          type == DType::kFloat32 ? std::bit_cast<std::uint32_t>(value) : reference::float_to_half(value);
      std::memcpy(bytes.data() + i * size_of(type), &word, size_of(type));
    }
  }
  for (int rank = 0; rank < ranks; ++rank) {
    const Buffer buffer = buffer_of(buffers[static_cast<std::size_t>(rank)]);
    cluster.rank(rank).start(
        perform(&cluster, &cluster.rank(rank), algorithm, test.call(Collective::kAllreduce), 1, buffer, buffer));
  }
  expect_all_ended_well(cluster, test);
  for (const Bytes& bytes : buffers) EXPECT_TRUE(bytes == buffers[0]) << test.text() << ", seed " << seed;
  return buffers[0];
}

inline Task<void> late_barrier(SimCluster* cluster, SimRank* self, Algorithm algorithm, Duration late, Instant* left) {
  co_await sleep_for(self->loop(), late, self->stop());
  Task<void> barrier = perform(cluster, self, algorithm, Call{}, 1, {}, {});
  co_await std::move(barrier);
  *left = self->loop().now();
}

// No rank leaves the barrier before the last one has entered it.
inline void check_barrier(Algorithm algorithm) {
  for (int ranks : kRankCounts) {
    for (int last = 0; last < ranks; ++last) {
      SimCluster cluster(static_cast<std::uint64_t>(ranks * 10 + last), ranks);
      std::vector<Instant> left(static_cast<std::size_t>(ranks));
      for (int rank = 0; rank < ranks; ++rank) {
        const Duration late = rank == last ? std::chrono::milliseconds(50) : std::chrono::milliseconds(rank);
        cluster.rank(rank).start(
            late_barrier(&cluster, &cluster.rank(rank), algorithm, late, &left[static_cast<std::size_t>(rank)]));
      }
      expect_all_ended_well(cluster, {.ranks = ranks, .count = 0});
      for (Instant instant : left) {
        EXPECT_GE(instant.time_since_epoch(), std::chrono::milliseconds(50));
        EXPECT_LE(instant.time_since_epoch(), std::chrono::milliseconds(51));
      }
    }
  }
}

}  // namespace aiacc::inter_test
