// Simulated ranks of a group over several hosts, with either LocalTeam, and the results that each must have. For tests
// only.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "collectives/hier/message_local_team_test.h"
#include "collectives/hier/select.h"
#include "collectives/hier/shm_local_team.h"
#include "tests/exact_inputs.h"
#include "transports/sim/sim_cluster.h"

namespace aiacc::hier_test {

using exact::Bytes;
using exact::input_of;
using sim::SimCluster;
using sim::SimRank;
using Placement = std::vector<std::uint32_t>;

enum class Memory { kPrivate, kShared, kMixed };
enum class Through { kSharedMemory, kMessages };  // the LocalTeam of the hosts

struct Case {
  Call call;
  Memory memory = Memory::kPrivate;
  bool in_place = false;
  OperationTraffic traffic = {};
  bool on_some = false;  // only ranks with even numbers are in place
};

inline Call call_of(Collective kind, std::size_t count, DType type = DType::kFloat32, ReduceOp op = ReduceOp::kSum,
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

inline Shape shape_of(const Call& call, int rank, int size) {
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
    case Collective::kAlltoall: return {count * n, count * n, 0};
    case Collective::kGather: return {count, root ? count * n : 0, own};
    case Collective::kScatter: return {root ? count * n : 0, count, own};
    default: return {0, 0, 0};
  }
}

// What the whole group has in the end, of which each rank gets its part.
inline Bytes result_of(const Call& call, int size) {
  std::vector<Bytes> inputs;
  for (int rank = 0; rank < size; ++rank) {
    inputs.push_back(input_of(call.reduction.type, call.reduction.op, shape_of(call, rank, size).send, rank));
  }
  const std::size_t block = call.bytes();
  Bytes all;
  switch (call.kind) {
    case Collective::kBarrier: return {};
    case Collective::kBroadcast:
    case Collective::kScatter: return inputs[static_cast<std::size_t>(call.root)];
    case Collective::kAllgather:
    case Collective::kGather:
      for (const Bytes& input : inputs) all.insert(all.end(), input.begin(), input.end());
      return all;
    case Collective::kAlltoall:
      for (std::size_t to = 0; to < inputs.size(); ++to) {
        for (const Bytes& input : inputs) {
          const auto from = input.begin() + static_cast<std::ptrdiff_t>(to * block);
          all.insert(all.end(), from, from + static_cast<std::ptrdiff_t>(block));
        }
      }
      return all;
    default: return exact::reduced(inputs, call, inputs[0].size() / call.element_bytes());
  }
}

// Where a rank's part of that begins, in elements.
inline std::size_t part_of(const Call& call, int rank, int size) {
  const std::size_t at = call.count * static_cast<std::size_t>(rank);
  if (call.kind == Collective::kAlltoall) return at * static_cast<std::size_t>(size);
  return call.kind == Collective::kReduceScatter || call.kind == Collective::kScatter ? at : 0;
}

// A buffer of the kind that the case wants for this rank.
class Place {
 public:
  Place(SimRank& rank, Memory memory, std::size_t bytes) : domain_(rank.domain()) {
    const bool shared = memory == Memory::kShared || (memory == Memory::kMixed && rank.rank() % 2 == 1);
    if (shared && domain_ != nullptr) {
      range_ = domain_->allocate(bytes + 1);
      data_ = domain_->view(domain_->rank(), *range_);
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
  Rank(SimCluster& cluster, int number, Through through = Through::kSharedMemory)
      : rank(cluster.rank(number)), team{cluster.view(), number,  rank.loop(),
                                         rank.compute(), nullptr, &rank.mailbox()} {
    const std::size_t here = cluster.view()->ranks_on_host_of(number).size();
    if (here == 1) return;
    if (through == Through::kMessages) {
      messages.emplace(team);
      team.local = &*messages;
      return;
    }
    std::vector<int> domain_ranks(here);
    std::iota(domain_ranks.begin(), domain_ranks.end(), 0);
    shared.emplace(*rank.domain(), team, domain_ranks);
    team.local = &*shared;
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  SimRank& rank;
  Team team;
  std::optional<hier::ShmLocalTeam> shared;
  std::optional<hier::MessageLocalTeam> messages;
  std::uint64_t sequence = 0;
};

inline Task<void> perform(Rank* self, Call call, Buffer send, Buffer recv, OperationTraffic traffic = {}) {
  Operation op{self->team, call, ++self->sequence, self->rank.stop(), send, recv};
  op.traffic = traffic;
  co_await hier::run(op);
}

inline Task<void> run_case(Rank* self, const Case* test, const Bytes* result) {
  const int number = self->rank.rank();
  const Call& call = test->call;
  const Shape shape = shape_of(call, number, self->team.size());
  const bool in_place = test->in_place && (!test->on_some || number % 2 == 0);
  const std::size_t element = call.element_bytes();
  const Bytes input = input_of(call.reduction.type, call.reduction.op, shape.send, number);
  const std::size_t larger = std::max(shape.send, shape.recv) * element;
  Place first(self->rank, test->memory, larger);
  Place second(self->rank, test->memory, larger);
  std::byte* send = first.data();
  std::byte* recv = second.data();
  if (in_place && shape.recv > 0 && shape.send > 0) {
    recv = send + (shape.send > shape.recv ? shape.own * element : 0);
    send += shape.recv > shape.send ? shape.own * element : 0;
  }
  if (!input.empty()) std::memcpy(send, input.data(), input.size());
  Buffer from{send, shape.send * element};
  Buffer to{recv, shape.recv * element};
  co_await perform(self, call, from, to, test->traffic);
  if (shape.recv > 0) {
    const std::size_t at = part_of(call, number, self->team.size()) * element;
    EXPECT_EQ(std::memcmp(recv, result->data() + at, to.bytes), 0)
        << call.describe() << " on rank " << number << (in_place ? ", in place" : "") << ", memory "
        << static_cast<int>(test->memory);
  }
  if (!in_place && !input.empty()) {
    EXPECT_EQ(std::memcmp(send, input.data(), input.size()), 0) << call.describe() << ": the input changed";
  }
}

inline Task<void> run_all(Rank* self, const std::vector<Case>* cases, const std::vector<Bytes>* results) {
  if (self->shared) co_await self->shared->open(self->rank.stop());
  for (std::size_t i = 0; i < cases->size(); ++i) {
    co_await run_case(self, &(*cases)[i], &(*results)[i]);
    if (::testing::Test::HasFailure()) co_return;
  }
}

inline std::string text(const Placement& placement) {
  std::string text;
  for (const std::uint32_t host : placement) text += static_cast<char>('a' + host);
  return text;
}

inline void run_cases(const Placement& placement, const std::vector<Case>& cases,
                      Through through = Through::kSharedMemory, std::uint64_t seed = 1,
                      const std::function<void(Team&)>& prepare = {}, const sim::FabricModel& model = {}) {
  SCOPED_TRACE(text(placement));
  std::vector<Bytes> results;
  for (const Case& test : cases) results.push_back(result_of(test.call, static_cast<int>(placement.size())));
  SimCluster cluster(seed, placement, model);
  std::deque<Rank> ranks;
  for (int rank = 0; rank < cluster.size(); ++rank) ranks.emplace_back(cluster, rank, through);
  for (Rank& rank : ranks) {
    if (prepare) prepare(rank.team);
  }
  for (Rank& rank : ranks) rank.rank.start(run_all(&rank, &cases, &results));
  ASSERT_TRUE(cluster.run() || ::testing::Test::HasFailure()) << cluster.world().recent();
  for (Rank& rank : ranks) {
    ASSERT_FALSE(rank.rank.error()) << rank.rank.error()->message();
  }
}

inline const Placement kPlacements[] = {
    {0, 1},                    // one rank a host
    {0, 0, 1, 1},              // even
    {0, 1, 0, 1, 0, 1},        // in turn
    {0, 0, 0, 0, 1, 2, 2},     // uneven, with one rank alone
    {0, 0, 0, 0, 1, 1, 1},     // uneven, all with company
    {2, 0, 1, 0, 0, 2, 1, 2},  // anyhow
    {0, 0, 1, 1, 2, 2, 3, 3},  // as many hosts as halve what they sum
};

inline Task<void> open_and_perform(Rank* self, Call call, Buffer send, Buffer recv) {
  if (self->shared) co_await self->shared->open(self->rank.stop());
  co_await perform(self, call, send, recv);
}

}  // namespace aiacc::hier_test
