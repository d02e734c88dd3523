// Every collective of groups over several hosts against the slow reference, on simulated ranks in every kind of placement:
// even, uneven, in turn, and one rank a host. Counts stand around the edges of leaders, shards and slices.
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "collectives/host/host_team.h"
#include "collectives/hosts/select.h"
#include "tests/exact_inputs.h"
#include "transports/sim/sim_cluster.h"

namespace aiacc {
namespace {

using exact::Bytes;
using exact::input_of;
using sim::SimCluster;
using sim::SimRank;
using Placement = std::vector<std::uint32_t>;

enum class Memory { kPrivate, kShared, kMixed };

struct Case {
  Call call;
  Memory memory = Memory::kPrivate;
  bool in_place = false;
};

Call call_of(Collective kind, std::size_t count, DType type = DType::kFloat32, ReduceOp op = ReduceOp::kSum,
             int root = 0) {
  Call call;
  call.kind = kind;
  call.count = count;
  call.reduction.type = type;
  call.reduction.op = op;
  call.root = root;
  return call;
}

struct Shape {
  std::size_t send;  // elements
  std::size_t recv;
  std::size_t own;  // where, in place, the smaller of both stands in the larger
};

Shape shape_of(const Call& call, int rank, int size) {
  const std::size_t count = call.count;
  const auto n = static_cast<std::size_t>(size);
  const std::size_t own = count * static_cast<std::size_t>(rank);
  const bool root = rank == call.root;
  switch (call.kind) {
    case Collective::kAllreduce: return {count, count, 0};
    case Collective::kReduce: return {count, root ? count : 0, 0};
    case Collective::kBroadcast: return {root ? count : 0, root ? 0 : count, 0};
    case Collective::kAllgather: return {count, count * n, own};
    case Collective::kReduceScatter: return {count * n, count, own};
    default: return {0, 0, 0};
  }
}

// What the whole group has in the end, of which each rank gets its part.
Bytes result_of(const Call& call, int size) {
  std::vector<Bytes> inputs;
  for (int rank = 0; rank < size; ++rank) {
    inputs.push_back(input_of(call.reduction.type, call.reduction.op, shape_of(call, rank, size).send, rank));
  }
  if (call.kind == Collective::kBroadcast) return inputs[static_cast<std::size_t>(call.root)];
  if (call.kind == Collective::kBarrier) return {};
  if (call.kind == Collective::kAllgather) {
    Bytes all;
    for (const Bytes& input : inputs) all.insert(all.end(), input.begin(), input.end());
    return all;
  }
  return exact::reduced(inputs, call, inputs[0].size() / call.element_bytes());
}

// A buffer of the kind that the case wants for this rank.
class Place {
 public:
  Place(SimRank& rank, Memory memory, std::size_t bytes) : domain_(rank.domain()) {
    const bool shared = memory == Memory::kShared || (memory == Memory::kMixed && rank.rank() % 2 == 1);
    if (shared && domain_ != nullptr) {
      range_ = domain_->allocate(bytes + 1);
      data_ = domain_->view(domain_->rank(), range_->offset);
    } else {
      heap_.resize(bytes + 8, std::byte{0xcc});
      data_ = heap_.data() + 4;  // misaligned
    }
  }
  ~Place() {
    if (range_) domain_->free(*range_);
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  std::byte* data() const { return data_; }

 private:
  HostDomain* domain_;
  std::optional<HostRange> range_;
  Bytes heap_;
  std::byte* data_ = nullptr;
};

// A rank of a group over hosts, for one operation after another.
class Rank {
 public:
  Rank(SimCluster& cluster, int number) : rank(cluster.rank(number)) {
    const ViewPtr& view = cluster.view();
    if (rank.domain() != nullptr) {
      std::vector<int> domain_ranks;
      for (int i = 0; i < rank.domain()->size(); ++i) domain_ranks.push_back(i);
      host.emplace(*rank.domain(), view, number, domain_ranks);
    }
    team.emplace(Team{view, number, rank.loop(), rank.compute(), host ? &*host : nullptr, &rank.mailbox()});
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  SimRank& rank;
  std::optional<HostTeam> host;
  std::optional<Team> team;
  std::uint64_t sequence = 0;
};

Task<void> perform(Rank* self, Call call, Buffer send, Buffer recv) {
  Operation op{*self->team, call, ++self->sequence, self->rank.stop(), send, recv};
  co_await hosts::run(op);
}

Task<void> run_case(Rank* self, const Case* test, const Bytes* result) {
  const int number = self->rank.rank();
  const Call& call = test->call;
  const Shape shape = shape_of(call, number, self->team->size());
  const std::size_t element = call.element_bytes();
  const Bytes input = input_of(call.reduction.type, call.reduction.op, shape.send, number);
  const std::size_t larger = std::max(shape.send, shape.recv) * element;
  Place first(self->rank, test->memory, larger);
  Place second(self->rank, test->memory, larger);
  std::byte* send = first.data();
  std::byte* recv = second.data();
  if (test->in_place && shape.recv > 0 && shape.send > 0) {
    recv = send + (shape.send > shape.recv ? shape.own * element : 0);
    send += shape.recv > shape.send ? shape.own * element : 0;
  }
  if (!input.empty()) std::memcpy(send, input.data(), input.size());
  Buffer from{send, shape.send * element};
  Buffer to{recv, shape.recv * element};
  co_await perform(self, call, from, to);
  if (shape.recv > 0) {
    const std::size_t at = call.kind == Collective::kReduceScatter ? shape.own * element : 0;
    EXPECT_EQ(std::memcmp(recv, result->data() + at, to.bytes), 0)
        << call.describe() << " on rank " << number << (test->in_place ? ", in place" : "") << ", memory "
        << static_cast<int>(test->memory);
  }
  if (!test->in_place && !input.empty()) {
    EXPECT_EQ(std::memcmp(send, input.data(), input.size()), 0) << call.describe() << ": the input changed";
  }
}

Task<void> run_all(Rank* self, const std::vector<Case>* cases, const std::vector<Bytes>* results) {
  if (self->host) co_await self->host->open(self->rank.stop());
  for (std::size_t i = 0; i < cases->size(); ++i) {
    co_await run_case(self, &(*cases)[i], &(*results)[i]);
    if (::testing::Test::HasFailure()) co_return;
  }
}

std::string text(const Placement& placement) {
  std::string text;
  for (const std::uint32_t host : placement) text += static_cast<char>('a' + host);
  return text;
}

void run_cases(const Placement& placement, const std::vector<Case>& cases, std::uint64_t seed = 1) {
  SCOPED_TRACE(text(placement));
  std::vector<Bytes> results;
  for (const Case& test : cases) results.push_back(result_of(test.call, static_cast<int>(placement.size())));
  SimCluster cluster(seed, placement);
  std::deque<Rank> ranks;
  for (int rank = 0; rank < cluster.size(); ++rank) ranks.emplace_back(cluster, rank);
  for (Rank& rank : ranks) rank.rank.start(run_all(&rank, &cases, &results));
  ASSERT_TRUE(cluster.run() || ::testing::Test::HasFailure()) << cluster.world().recent();
  for (Rank& rank : ranks) {
    ASSERT_FALSE(rank.rank.error()) << rank.rank.error()->message();
  }
}

constexpr Collective kCollectives[] = {Collective::kAllreduce, Collective::kReduce,  Collective::kBroadcast,
                                       Collective::kAllgather, Collective::kBarrier, Collective::kReduceScatter};

const Placement kPlacements[] = {
    {0, 1},                    // one rank a host
    {0, 0, 1, 1},              // even
    {0, 1, 0, 1, 0, 1},        // in turn
    {0, 0, 0, 0, 1, 2, 2},     // uneven, with one rank alone
    {0, 0, 0, 0, 1, 1, 1},     // uneven, all with company
    {2, 0, 1, 0, 0, 2, 1, 2},  // anyhow
    {0, 0, 1, 1, 2, 2, 3, 3},  // as many hosts as halve what they sum
};

class HostsCollectives : public ::testing::TestWithParam<Placement> {};
INSTANTIATE_TEST_SUITE_P(Placements, HostsCollectives, ::testing::ValuesIn(kPlacements),
                         [](const auto& param) { return text(param.param); });

TEST_P(HostsCollectives, EveryCollectiveCountMemoryAndRoot) {
  const int size = static_cast<int>(GetParam().size());
  std::vector<Case> cases;
  for (const Collective kind : kCollectives) {
    for (const std::size_t count : {0, 1, 3, 100, 4'096, 4'097, 33'001}) {
      for (const Memory memory : {Memory::kPrivate, Memory::kShared, Memory::kMixed}) {
        for (const bool in_place : {false, true}) {
          const int root =
              static_cast<int>((count + static_cast<std::size_t>(memory)) % static_cast<std::size_t>(size));
          cases.push_back({call_of(kind, count, DType::kFloat32, ReduceOp::kSum, root), memory, in_place});
        }
      }
    }
  }
  for (int root = 0; root < size; ++root) {
    cases.push_back({call_of(Collective::kBroadcast, 10'000, DType::kInt32, ReduceOp::kSum, root)});
    cases.push_back({call_of(Collective::kReduce, 10'000, DType::kInt32, ReduceOp::kSum, root)});
  }
  run_cases(GetParam(), cases);
}

TEST_P(HostsCollectives, EveryTypeAndOperator) {
  std::vector<Case> cases;
  for (int type = 0; type < kDTypes; ++type) {
    for (int op = 0; op < kReduceOps; ++op) {
      if (!supports(static_cast<ReduceOp>(op), static_cast<DType>(type))) continue;
      for (const std::size_t count : {7, 20'001}) {
        for (const Collective kind : {Collective::kAllreduce, Collective::kReduce, Collective::kReduceScatter}) {
          if (count > 1000 && op % 3 != static_cast<int>(kind) % 3) continue;
          cases.push_back({call_of(kind, count, static_cast<DType>(type), static_cast<ReduceOp>(op))});
        }
      }
    }
  }
  run_cases(GetParam(), cases);
}

TEST_P(HostsCollectives, InputsAreScaledOnceAndResultsOnce) {
  std::vector<Case> cases;
  for (const Collective kind : {Collective::kAllreduce, Collective::kReduce, Collective::kReduceScatter}) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
      for (const std::size_t count : {37, 9'001}) {
        for (const bool in_place : {false, true}) {
          Case test{call_of(kind, count, DType::kFloat32, op), Memory::kPrivate, in_place};
          test.call.reduction.prescale = 0.5;
          cases.push_back(test);
          test.call.reduction.postscale = 4.0;
          cases.push_back(test);
          test.call.reduction.prescale = 1.0;
          cases.push_back(test);
        }
      }
    }
  }
  run_cases(GetParam(), cases);
}

TEST(HostsCollectivesSlices, LongPayloadsGoInSlices) {
  std::vector<Case> cases;
  for (const std::size_t slice : {hosts::kSliceBytes / 4 * 2}) {
    for (const std::size_t count : {slice, slice + 1, 5 * slice + 3}) {
      for (const Memory memory : {Memory::kPrivate, Memory::kShared}) {
        cases.push_back({call_of(Collective::kAllreduce, count), memory, memory == Memory::kShared});
        const int root = static_cast<int>(count % 4);
        cases.push_back({call_of(Collective::kBroadcast, count, DType::kFloat32, ReduceOp::kSum, root), memory});
      }
    }
  }
  run_cases({0, 0, 1, 1}, cases);
  run_cases({0, 0, 0, 1, 1}, {cases.back(), cases[cases.size() - 2]});
  run_cases({0, 1, 0, 0, 2}, {cases.back()});
  run_cases({0, 0, 1, 1, 2, 2, 3, 3}, {cases[cases.size() - 2]});
}

Bytes noise(std::size_t count, int rank, DType type) {
  sim::Random random(static_cast<std::uint64_t>(rank) + 1);
  Bytes bytes(count * size_of(type));
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = static_cast<float>(static_cast<double>(random.next() % 2'000'001) / 1e5 - 10.0);
    const std::uint32_t word =
        type == DType::kFloat32 ? std::bit_cast<std::uint32_t>(value) : reference::float_to_half(value);
    std::memcpy(bytes.data() + i * size_of(type), &word, size_of(type));
  }
  return bytes;
}

Task<void> open_and_perform(Rank* self, Call call, Buffer send, Buffer recv) {
  if (self->host) co_await self->host->open(self->rank.stop());
  co_await perform(self, call, send, recv);
}

TEST_P(HostsCollectives, EveryRankHasTheSameBitsWhateverTheOrderOfArrival) {
  for (const DType type : {DType::kFloat32, DType::kFloat16}) {
    for (const std::size_t count : {11, 30'001}) {
      Bytes first;
      for (std::uint64_t seed = 1; seed <= 4; ++seed) {
        SimCluster cluster(seed, GetParam());
        std::deque<Rank> ranks;
        std::deque<Bytes> buffers;
        for (int rank = 0; rank < cluster.size(); ++rank) {
          ranks.emplace_back(cluster, rank);
          buffers.push_back(noise(count, rank, type));
        }
        for (Rank& rank : ranks) {
          const Buffer buffer = exact::buffer_of(buffers[static_cast<std::size_t>(rank.rank.rank())]);
          const Call call = call_of(Collective::kAllreduce, count, type);
          rank.rank.start(open_and_perform(&rank, call, buffer, buffer));
        }
        ASSERT_TRUE(cluster.run());
        if (seed == 1) first = buffers[0];
        for (const Bytes& bytes : buffers) ASSERT_TRUE(bytes == first) << "seed " << seed;
      }
    }
  }
}

// 16-bit floats whose sums lose digits at each rounding but the last: a one and small numbers of any sign.
Bytes lossy(DType type, std::size_t count, int rank) {
  sim::Random random(static_cast<std::uint64_t>(rank) + 7);
  Bytes bytes(count * 2);
  for (std::size_t i = 0; i < count; ++i) {
    const double part = static_cast<double>(random.next() % 2'001) / 1e3 - 0.7;
    const bool large = i % 4 == static_cast<std::size_t>(rank) % 4;
    const auto value = static_cast<float>(large ? 1.0 : part * (type == DType::kFloat16 ? 0x1p-10 : 0x1p-7));
    const std::uint16_t word =
        type == DType::kFloat16 ? reference::float_to_half(value) : reference::float_to_bfloat(value);
    std::memcpy(bytes.data() + i * 2, &word, 2);
  }
  return bytes;
}

double value_of(DType type, const std::byte* at) {
  std::uint16_t word;
  std::memcpy(&word, at, 2);
  return static_cast<double>(type == DType::kFloat16 ? reference::half_to_float(word)
                                                     : reference::bfloat_to_float(word));
}

// Half a unit of the last digit of `exact`, and what as many additions in fp32 may lose.
double one_rounding(DType type, double exact, std::size_t ranks) {
  const int digits = type == DType::kFloat16 ? 10 : 7;
  const double scale = std::max(std::fabs(exact), 0x1p-14);
  return std::ldexp(0.5, std::ilogb(scale) - digits) + static_cast<double>(ranks + 2) * 0x1p-23 * (scale + 8.0);
}

void expect_one_rounding(const Placement& placement, const Call& call) {
  SCOPED_TRACE(text(placement) + ": " + call.describe());
  const std::size_t ranks = placement.size();
  const DType type = call.reduction.type;
  SimCluster cluster(1, placement);
  std::deque<Rank> members;
  std::vector<Bytes> inputs(ranks), outputs(ranks);
  for (int rank = 0; rank < cluster.size(); ++rank) {
    const Shape shape = shape_of(call, rank, cluster.size());
    const auto at = static_cast<std::size_t>(rank);
    inputs[at] = lossy(type, shape.send, rank);
    outputs[at].resize(shape.recv * 2);
    members.emplace_back(cluster, rank);
    members.back().rank.start(
        open_and_perform(&members.back(), call, exact::buffer_of(inputs[at]), exact::buffer_of(outputs[at])));
  }
  ASSERT_TRUE(cluster.run());
  for (int rank = 0; rank < cluster.size(); ++rank) {
    ASSERT_FALSE(cluster.rank(rank).error()) << cluster.rank(rank).error()->message();
    const Bytes& output = outputs[static_cast<std::size_t>(rank)];
    const std::size_t first = call.kind == Collective::kReduceScatter ? shape_of(call, rank, cluster.size()).own : 0;
    for (std::size_t i = 0; i < output.size() / 2; ++i) {
      double sum = 0;
      for (const Bytes& input : inputs) {
        sum += call.reduction.prescale * value_of(type, input.data() + 2 * (first + i));
      }
      if (call.reduction.op == ReduceOp::kAvg) sum /= static_cast<double>(ranks);
      sum *= call.reduction.postscale;
      ASSERT_NEAR(value_of(type, output.data() + 2 * i), sum, one_rounding(type, sum, ranks)) << "element " << i;
    }
    if (call.kind != Collective::kAllreduce) continue;
    ASSERT_TRUE(output == outputs[0]) << "rank " << rank;
  }
}

TEST_P(HostsCollectives, SumsOfHalvesAreRoundedOnce) {
  const int last = static_cast<int>(GetParam().size()) - 1;
  for (const DType type : {DType::kFloat16, DType::kBFloat16}) {
    for (const Collective kind : {Collective::kAllreduce, Collective::kReduce, Collective::kReduceScatter}) {
      for (const std::size_t count : {5, 3'000, 20'001, 120'001}) {
        Call call = call_of(kind, count, type, ReduceOp::kSum, count % 2 == 0 ? 0 : last);
        expect_one_rounding(GetParam(), call);
        call.reduction.op = ReduceOp::kAvg;
        call.reduction.prescale = 0.3;
        call.reduction.postscale = 1.7;
        if (count == 5 || count == 20'001) expect_one_rounding(GetParam(), call);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(HostsCollectivesSlices, LongSumsOfHalvesAreRoundedOnce) {
  constexpr std::size_t kSlice = hosts::kSliceBytes / 2;
  for (const Placement& placement : {Placement{0, 0, 1, 1}, Placement{0, 0, 0, 1}}) {
    expect_one_rounding(placement, call_of(Collective::kAllreduce, 9 * kSlice + 3, DType::kBFloat16));
    expect_one_rounding(placement, call_of(Collective::kReduce, 5 * kSlice + 1, DType::kFloat16));
  }
}

// Partial sums of S bytes travel in 2S, results in S: 1.5 times what fp32 sums of as many bytes cost.
TEST(HostsCollectivesCost, HalvesTravelHalfAsFarAgain) {
  const auto bytes_of = [](DType type) {
    SimCluster cluster(1, Placement{0, 0, 1, 1});
    std::deque<Rank> ranks;
    std::deque<Bytes> buffers;
    for (int rank = 0; rank < cluster.size(); ++rank) {
      ranks.emplace_back(cluster, rank);
      buffers.emplace_back(1 << 20);
      const Buffer buffer = exact::buffer_of(buffers.back());
      const Call call = call_of(Collective::kAllreduce, buffer.bytes / size_of(type), type);
      cluster.rank(rank).start(open_and_perform(&ranks.back(), call, buffer, buffer));
    }
    EXPECT_TRUE(cluster.run());
    return static_cast<double>(cluster.fabric().bytes());
  };
  EXPECT_NEAR(bytes_of(DType::kBFloat16) / bytes_of(DType::kFloat32), 1.5, 0.05);
}

TEST(HostsCollectivesCost, TwoRanksOfTwoHostsSendOneMessageEach) {
  SimCluster cluster(1, Placement{0, 1});
  std::deque<Rank> ranks;
  std::deque<Bytes> buffers;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back(cluster, rank);
    buffers.push_back(input_of(DType::kFloat32, ReduceOp::kSum, 2, rank));
    const Buffer buffer = exact::buffer_of(buffers.back());
    cluster.rank(rank).start(open_and_perform(&ranks.back(), call_of(Collective::kAllreduce, 2), buffer, buffer));
  }
  ASSERT_TRUE(cluster.run());
  EXPECT_EQ(cluster.fabric().messages(), 2u);
  EXPECT_LT(cluster.world().now().time_since_epoch(), std::chrono::microseconds(8)) << "one latency of 5 µs, not two";
}

// Seconds that a call of so many fp32 in place takes, between hosts that send so many bytes a second.
double took(const Placement& placement, Collective kind, std::size_t count, std::uint64_t bytes_per_second) {
  sim::FabricModel model;
  model.between_hosts.bytes_per_second = bytes_per_second;
  SimCluster cluster(1, placement, model);
  std::deque<Rank> ranks;
  std::deque<Bytes> buffers;
  for (int rank = 0; rank < cluster.size(); ++rank) {
    ranks.emplace_back(cluster, rank);
    buffers.emplace_back(count * 4);
    const Buffer buffer = exact::buffer_of(buffers.back());
    cluster.rank(rank).start(open_and_perform(&ranks.back(), call_of(kind, count), buffer, buffer));
  }
  EXPECT_TRUE(cluster.run());
  return seconds(cluster.world().now().time_since_epoch());
}

// A network as fast as what copies on the hosts: one after the other takes twice as long as side by side.
TEST(HostsCollectivesCost, ABroadcastIsGivenOutWhileItsRestIsUnderWay) {
  const auto broadcast = [](const Placement& placement) {
    return took(placement, Collective::kBroadcast, 4 << 20, 4'000'000'000);
  };
  const double between = broadcast({0, 1});
  const double on_a_host = broadcast({0, 0});
  EXPECT_LT(broadcast({0, 0, 1, 1}), 0.75 * (between + on_a_host)) << between << " and " << on_a_host;
}

// Two hosts of four: 4 MiB are bound by 2(h − 1)/h·S of each host's four links, not of one.
TEST(HostsCollectivesCost, AllMembersOfAHostUseTheNetwork) {
  const auto allreduce = [](const Placement& placement) {
    return took(placement, Collective::kAllreduce, 1 << 20, 125'000'000);  // 1 Gb/s a rank
  };
  EXPECT_LT(allreduce({0, 0, 0, 0, 1, 1, 1, 1}), allreduce({0, 1}) / 2.5);
}

}  // namespace
}  // namespace aiacc
