// Compares every collective on one host with a slow reference: types, operators, counts around the boundaries of lines,
// slots and chunks, private and shared buffers and mixtures of them, in place and not, any number of ranks.
#include <gtest/gtest.h>

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>

#include "base/data/reference_reduce.h"
#include "base/hash.h"
#include "collectives/intra/intra_call_test.h"
#include "collectives/intra/select.h"
#include "collectives/intra/small.h"
#include "tests/host_world.h"

namespace aiacc::intra {
namespace {

using namespace std::chrono_literals;

struct Case {
  Call call;
  Memory memory = Memory::kPrivate;
  bool in_place = false;
  bool fast = false;  // try try_small() first
};

std::string text(const Case& test) {
  static constexpr const char* kMemories[] = {"private", "shared", "mixed", "device"};
  return test.call.describe() + ", " + kMemories[static_cast<int>(test.memory)] + (test.in_place ? ", in place" : "") +
         (test.fast ? ", fast" : "");
}

// The input of rank `rank` in operation `number`; every rank can compute it. Small integers, so that no type overflows
// and sums depend only on the order, which is the same in the reference and the library.
Bytes input_of(const Case& test, int rank, std::uint64_t number, std::size_t count) {
  std::uint64_t state = number * 1000 + static_cast<std::uint64_t>(rank);
  Bytes bytes(count * test.call.element_bytes());
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t value = Hash64::mix(++state) % 5;
    std::uint64_t word = value;
    if (test.call.reduction.type == DType::kFloat32)
      word = std::bit_cast<std::uint32_t>(0.1f + static_cast<float>(value));
    if (test.call.reduction.type == DType::kFloat64)
      word = std::bit_cast<std::uint64_t>(0.1 + static_cast<double>(value));
    if (test.call.reduction.type == DType::kFloat16) word = reference::float_to_half(0.1f + static_cast<float>(value));
    if (test.call.reduction.type == DType::kBFloat16)
      word = reference::float_to_bfloat(0.1f + static_cast<float>(value));
    if (test.call.reduction.type == DType::kBool) word &= 1;
    std::memcpy(bytes.data() + i * test.call.element_bytes(), &word, test.call.element_bytes());
  }
  return bytes;
}

struct Shape {
  std::size_t send;  // elements
  std::size_t recv;
  std::size_t own;  // in place: the offset of the smaller buffer in the larger one
};

Shape shape_of(const Case& test, int rank, int size) {
  const std::size_t count = test.call.count;
  const auto n = static_cast<std::size_t>(size);
  const bool root = rank == test.call.root;
  switch (test.call.kind) {
    case Collective::kAllreduce: return {count, count, 0};
    case Collective::kReduce: return {count, root ? count : 0, 0};
    case Collective::kBroadcast: return {root ? count : 0, root ? 0 : count, 0};
    case Collective::kAllgather: return {count, count * n, count * static_cast<std::size_t>(rank)};
    case Collective::kReduceScatter: return {count * n, count, count * static_cast<std::size_t>(rank)};
    case Collective::kAlltoall: return {count * n, count * n, 0};
    case Collective::kGather: return {count, root ? count * n : 0, count * static_cast<std::size_t>(rank)};
    case Collective::kScatter: return {root ? count * n : 0, count, count * static_cast<std::size_t>(rank)};
    default: return {0, 0, 0};
  }
}

Bytes expected_of(const Case& test, int rank, int size, std::uint64_t number) {
  const Shape shape = shape_of(test, rank, size);
  const std::size_t element = test.call.element_bytes();
  if (test.call.kind == Collective::kBroadcast) {
    return rank == test.call.root ? Bytes() : input_of(test, test.call.root, number, test.call.count);
  }
  std::vector<Bytes> inputs;
  std::vector<Buffer> operands;
  for (int other = 0; other < size; ++other) {
    inputs.push_back(input_of(test, other, number, shape_of(test, other, size).send));
    operands.push_back({inputs.back().data(), inputs.back().size()});
  }
  if (test.call.kind == Collective::kAllgather) {
    Bytes all;
    for (const Bytes& input : inputs) all.insert(all.end(), input.begin(), input.end());
    return all;
  }
  Bytes result(shape.recv * element);
  const std::size_t block = test.call.count * element;
  const std::size_t mine = block * static_cast<std::size_t>(rank);
  const auto at = [](const Bytes& bytes, std::size_t offset) { return bytes.begin() + static_cast<long>(offset); };
  switch (test.call.kind) {
    case Collective::kGather:
      for (std::size_t other = 0; rank == test.call.root && other < inputs.size(); ++other)
        std::copy(inputs[other].begin(), inputs[other].end(), result.begin() + static_cast<long>(other * block));
      return result;
    case Collective::kScatter: {
      const Bytes& from = inputs[static_cast<std::size_t>(test.call.root)];
      return Bytes(at(from, mine), at(from, mine + block));
    }
    case Collective::kAlltoall:
      for (std::size_t other = 0; other < inputs.size(); ++other)
        std::copy(at(inputs[other], mine), at(inputs[other], mine + block),
                  result.begin() + static_cast<long>(other * block));
      return result;
    default: break;
  }
  if (test.call.kind == Collective::kReduceScatter) {
    for (Buffer& operand : operands) operand = operand.slice(shape.own * element, shape.recv * element);
  }
  if (!result.empty()) {
    reference::reduce(result.data(), operands, shape.recv, test.call.reduction, {.ranks = size});
  }
  return result;
}

void run_case(Rank& rank, const Case& test, std::uint64_t number) {
  const Shape shape = shape_of(test, rank.rank(), rank.size());
  const std::size_t element = test.call.element_bytes();
  const Bytes input = input_of(test, rank.rank(), number, shape.send);
  const std::size_t larger = std::max(shape.send, shape.recv) * element;
  Place first(rank, test.memory, larger);
  Place second(rank, test.memory, larger);
  const bool in_place = test.in_place && shape.recv > 0;
  const std::size_t send_at = in_place && shape.recv > shape.send ? shape.own * element : 0;
  const std::size_t recv_at = in_place && shape.send > shape.recv ? shape.own * element : 0;
  std::byte* send = first.data() + send_at;
  std::byte* recv = (in_place ? first.data() : second.data()) + recv_at;
  const Buffer from = first.part(send_at, shape.send * element);
  const Buffer to = (in_place ? first : second).part(recv_at, shape.recv * element);
  if (!input.empty()) std::memcpy(send, input.data(), input.size());

  Stop stop;
  Deadline deadline(rank.loop, after(rank.loop.now(), 60s), stop, "the collective does not end");
  Small small = Small::kNotServed;
  if (test.fast) small = try_small(rank.host, test.call, send, recv);
  if (small != Small::kDone) {
    Operation op{rank.team, test.call, ++rank.sequence, stop, from, to};
    rank.loop.run(run(op));
  }
  const Bytes expected = expected_of(test, rank.rank(), rank.size(), number);
  ASSERT_EQ(Bytes(recv, recv + shape.recv * element), expected)
      << text(test) << ", rank " << rank.rank() << " of " << rank.size();
  // No member may still read the buffers when they are overwritten or freed.
  if (shape.send > 0 && !test.in_place) {
    ASSERT_EQ(Bytes(send, send + input.size()), input);
    std::memset(send, 0xff, input.size());
  }
}

void run_cases(int ranks, const std::vector<Case>& cases, bool threaded = false) {
  run_ranks(
      ranks,
      [&cases](Rank& rank) {
        std::uint64_t number = 0;
        for (const Case& test : cases) {
          run_case(rank, test, ++number);
          if (::testing::Test::HasFatalFailure()) return;
        }
      },
      threaded);
}

constexpr Collective kCollectives[] = {Collective::kAllreduce, Collective::kReduce,        Collective::kBroadcast,
                                       Collective::kAllgather, Collective::kReduceScatter, Collective::kBarrier,
                                       Collective::kAlltoall,  Collective::kGather,        Collective::kScatter};

class IntraCollectives : public ::testing::TestWithParam<int> {
 protected:
  // With 33,000 elements already: it has a block for each rank. A gather's block may fill a whole slot.
  static bool has_chunks_enough(Collective kind) {
    return (kind >= Collective::kAlltoall && kind != Collective::kGather) ||
           (GetParam() > 3 && (kind == Collective::kAllgather || kind == Collective::kReduceScatter));
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, IntraCollectives, ::testing::Values(1, 2, 3, 5, 8));

TEST_P(IntraCollectives, EveryCountAndMemory) {
  std::vector<Case> cases;
  for (Collective kind : kCollectives) {
    for (Memory memory : {Memory::kPrivate, Memory::kShared, Memory::kMixed}) {
      for (std::size_t count : {0, 1, 15, 16, 17, 1'000, 4'099, 33'000, 150'001}) {
        for (bool in_place : {false, true}) {
          if (GetParam() > 3 && in_place == (count % 2 == 0)) continue;
          if (count > 33'000 && has_chunks_enough(kind)) continue;
          cases.push_back({call_of(kind, count, DType::kFloat32, ReduceOp::kSum, GetParam() - 1), memory, in_place});
        }
      }
    }
  }
  run_cases(GetParam(), cases);
}

// A Compute that finishes its work later on a thread of its own, as a device's stream does, with memory that only it
// can access: code that touches the bytes directly crashes.
TEST_P(IntraCollectives, EveryCountAndMemoryByAComputeThatEndsLater) {
  std::vector<Case> cases;
  for (Collective kind : kCollectives) {
    for (Memory memory : {Memory::kPrivate, Memory::kShared, Memory::kMixed, Memory::kDevice}) {
      for (std::size_t count : {0, 1, 17, 1'000, 33'000, 150'001}) {
        if (kind >= Collective::kAlltoall && count > 33'000) continue;
        if (GetParam() > 2 && count > 100'000) continue;
        const bool in_place = (count + static_cast<std::size_t>(memory)) % 2 == 0;
        const int root = static_cast<int>(count) % GetParam();
        cases.push_back({call_of(kind, count, DType::kFloat32, ReduceOp::kSum, root), memory, in_place});
        const DType type = count % 2 == 0 ? DType::kFloat16 : DType::kInt64;
        if (GetParam() > 3) continue;  // each rank has two threads
        cases.push_back({call_of(kind, count, type, ReduceOp::kAvg, root), memory, !in_place});
      }
    }
  }
  run_cases(GetParam(), cases, true);
}

// Members that may not read each other's memory stage their blocks; one such member is enough.
TEST_P(IntraCollectives, PrivateMemoryThatNobodyElseCanRead) {
  std::vector<Case> cases;
  for (Collective kind : {Collective::kAlltoall, Collective::kScatter}) {
    for (Memory memory : {Memory::kPrivate, Memory::kMixed}) {
      for (std::size_t count : {4'099, 33'000}) {
        for (bool in_place : {false, true}) {
          cases.push_back({call_of(kind, count, DType::kFloat32, ReduceOp::kSum, GetParam() - 1), memory, in_place});
        }
      }
    }
  }
  run_ranks(GetParam(), [&cases](Rank& rank) {
    std::uint64_t number = 0;
    for (const Case& test : cases) {
      // The members that cannot read vary, so that both variants follow each other.
      rank.host.set_can_pull(number % 3 == 0 || rank.rank() != static_cast<int>(number % 2));
      run_case(rank, test, ++number);
      if (::testing::Test::HasFatalFailure()) return;
    }
  });
}

TEST(IntraCollectivesTypes, EveryTypeAndOperator) {
  std::vector<Case> cases;
  for (int type = 0; type < kDTypes; ++type) {
    for (int op = 0; op < kReduceOps; ++op) {
      if (!supports(static_cast<ReduceOp>(op), static_cast<DType>(type))) continue;
      for (std::size_t count : {7, 20'001}) {
        for (Memory memory : {Memory::kPrivate, Memory::kShared}) {
          const auto kind = op % 2 == 0 ? Collective::kAllreduce : Collective::kReduceScatter;
          cases.push_back({call_of(kind, count, static_cast<DType>(type), static_cast<ReduceOp>(op)), memory});
        }
      }
    }
  }
  run_cases(2, cases);
  run_cases(3, cases);
}

// The fast path gives the results of the coroutines, and members of one call may take different paths.
TEST_P(IntraCollectives, TheFastPathIsTheSameProtocol) {
  std::vector<Case> cases;
  for (Collective kind : kCollectives) {
    for (std::size_t count : {0, 1, 5, 16, 17, 200, 1'000, 4'096}) {
      for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMin}) {
        const int root = static_cast<int>(count) % GetParam();
        cases.push_back({call_of(kind, count, DType::kFloat32, op, root), Memory::kPrivate, count % 2 == 0, true});
      }
    }
  }
  run_cases(GetParam(), cases);
  run_ranks(GetParam(), [&cases](Rank& rank) {
    std::uint64_t number = 0;
    for (int round = 0; round < 5; ++round) {
      for (Case test : cases) {
        ++number;
        test.fast = (number + static_cast<std::uint64_t>(rank.rank())) % 2 == 0;
        rank.host.set_patience({.spins = number % 3 == 0 ? 0 : 100});
        run_case(rank, test, number);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  });
}

TEST(IntraCollectivesSmall, AFewKiBAreServedOnceStagingMemoryIsMapped) {
  run_ranks(2, [](Rank& rank) {
    rank.host.set_patience({.spins = 1 << 30});
    constexpr std::size_t kMost = IntraTeam::kEagerBytes / sizeof(float);
    std::vector<float> values(kMost + 1, static_cast<float>(rank.rank() + 1));
    const auto allreduce = [&rank, &values](std::size_t count) {
      auto* bytes = reinterpret_cast<std::byte*>(values.data());
      return try_small(rank.host, call_of(Collective::kAllreduce, count, DType::kFloat32, ReduceOp::kSum, 0), bytes,
                       bytes);
    };
    EXPECT_EQ(allreduce(kMost), Small::kNotServed);
    run_case(rank, {call_of(Collective::kAllreduce, 1'000, DType::kFloat32, ReduceOp::kSum, 0)}, 1);
    EXPECT_EQ(allreduce(kMost), Small::kDone);
    std::vector<float> sums(kMost, 3.0f);
    sums.push_back(static_cast<float>(rank.rank() + 1));
    EXPECT_EQ(values, sums);
    EXPECT_EQ(allreduce(kMost + 1), Small::kNotServed);
  });
}

// A late member is waited for without an operation only by who blocks anyway.
TEST(IntraCollectivesSmall, OnlyABlockingCallerGivesUpItsCore) {
  std::atomic<int> steps{0};
  // Not for ever: a caller that waits although it does not block shall have its result, and the test fails.
  const auto await_step = [&steps](int step) {
    const auto give_up = std::chrono::steady_clock::now() + 20s;
    while (steps.load() < step && std::chrono::steady_clock::now() < give_up) sched_yield();
  };
  run_ranks(2, [&](Rank& rank) {
    const Call call = call_of(Collective::kAllreduce, 1);
    rank.host.set_patience({.spins = 10, .yields = 1 << 30});
    float value = rank.rank() == 0 ? 1.0f : 2.0f;
    auto* bytes = reinterpret_cast<std::byte*>(&value);
    if (rank.rank() == 0) {
      EXPECT_EQ(try_small(rank.host, call, bytes, bytes, SmallWait::kPolls), Small::kBegun);
      steps = 1;
    }
    await_step(1);
    Stop stop;
    Operation op{rank.team, call, ++rank.sequence, stop, {bytes, 4}, {bytes, 4}};
    rank.loop.run(run(op));
    EXPECT_EQ(value, 3.0f);
    if (rank.rank() == 0) steps = 2;
    await_step(2);
    if (rank.rank() == 1) std::this_thread::sleep_for(1ms);  // the other one waits by then, as a rule
    EXPECT_EQ(try_small(rank.host, call, bytes, bytes, SmallWait::kYieldsToo), Small::kDone);
    EXPECT_EQ(value, 6.0f);
  });
}

// Long sequences of calls, each with its own root, size and path.
std::vector<Case> mixed_cases(int ranks, std::size_t n) {
  std::vector<Case> cases;
  std::uint64_t state = static_cast<std::uint64_t>(ranks);
  const auto draw = [&state](std::size_t below) { return Hash64::mix(++state) % below; };
  for (std::size_t i = 0; i < n; ++i) {
    const bool anything = draw(12) == 0;
    constexpr Collective kRooted[] = {Collective::kBroadcast, Collective::kReduce, Collective::kGather,
                                      Collective::kScatter};
    const Collective kind = anything ? kCollectives[draw(std::size(kCollectives))] : kRooted[draw(std::size(kRooted))];
    const std::size_t count = draw(anything ? 3'000 : draw(3) == 0 ? 100 : 8);
    const int root = i / 40 % 2 == 0 ? static_cast<int>(draw(static_cast<std::size_t>(ranks))) : 0;
    cases.push_back({call_of(kind, count, DType::kFloat32, ReduceOp::kSum, root),
                     draw(2) == 0 ? Memory::kPrivate : Memory::kShared, draw(2) == 0, true});
  }
  return cases;
}

void run_mixed(int ranks, std::size_t calls) {
  const std::vector<Case> cases = mixed_cases(ranks, calls);
  run_ranks(ranks, [&cases](Rank& rank) {
    std::uint64_t number = 0;
    for (Case test : cases) {
      ++number;
      test.fast = (number / 7 + static_cast<std::uint64_t>(rank.rank())) % 3 != 0;
      rank.host.set_patience({.spins = number % 5 == 0 ? 0 : 50});
      run_case(rank, test, number);
      if (::testing::Test::HasFatalFailure()) return;
    }
  });
}

TEST_P(IntraCollectives, OfAllKindsAndWaysFollowEachOther) { run_mixed(GetParam(), 500); }

// With this many members, each polls member 0 only.
TEST(IntraCollectivesMixed, OfManyMembers) { run_mixed(18, 150); }

}  // namespace
}  // namespace aiacc::intra
