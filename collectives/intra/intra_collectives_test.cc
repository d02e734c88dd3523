// Compares every collective on one host with a slow reference: types, operators, counts around the boundaries of lines,
// slots and chunks, private and shared buffers and mixtures of them, in place and not, any number of ranks.
#include <gtest/gtest.h>

#include <cstring>
#include <optional>

#include "base/data/reference_reduce.h"
#include "base/error.h"
#include "base/hash.h"
#include "collectives/intra/select.h"
#include "collectives/intra/small.h"
#include "tests/host_world.h"

namespace aiacc::intra {
namespace {

using namespace std::chrono_literals;
using Bytes = std::vector<std::byte>;

enum class Memory { kPrivate, kShared, kMixed, kDevice };

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

// A buffer of the kind that the case requires for this rank.
class Place {
 public:
  Place(Rank& rank, Memory memory, std::size_t bytes) : domain_(rank.domain) {
    shared_ = memory == Memory::kShared || (memory == Memory::kMixed && rank.rank() % 2 == 1);
    if (memory == Memory::kDevice) {
      device_ = rank.thread->allocate_device(bytes + 8).slice(4, bytes);
      data_ = sim::ThreadedCompute::behind(device_->data);
    } else if (shared_) {
      range_ = domain_.allocate(bytes + 1);
      data_ = domain_.view(rank.rank(), range_);
    } else {
      heap_.resize(bytes + 8);
      data_ = heap_.data() + 4;  // misaligned
    }
  }
  ~Place() {
    if (shared_) domain_.free(range_);
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  std::byte* data() const { return data_; }
  // A part of it as an argument of a call.
  Buffer part(std::size_t offset, std::size_t bytes) const {
    return device_ ? device_->slice(offset, bytes) : Buffer{data_ + offset, bytes};
  }

 private:
  HostDomain& domain_;
  std::optional<Buffer> device_;
  bool shared_;
  HostRange range_;
  Bytes heap_;
  std::byte* data_ = nullptr;
};

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

Call call_of(Collective kind, std::size_t count, DType type = DType::kFloat32, ReduceOp op = ReduceOp::kSum,
             int root = 0) {
  Call call;
  call.kind = kind;
  call.count = kind == Collective::kBarrier ? 0 : count;
  call.reduction = {.type = type, .op = op};
  call.root = root;
  return call;
}

constexpr Collective kCollectives[] = {Collective::kAllreduce, Collective::kReduce,        Collective::kBroadcast,
                                       Collective::kAllgather, Collective::kReduceScatter, Collective::kBarrier,
                                       Collective::kAlltoall,  Collective::kGather,        Collective::kScatter};

class IntraCollectives : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, IntraCollectives, ::testing::Values(1, 2, 3, 5, 8));

TEST_P(IntraCollectives, EveryCountAndMemory) {
  std::vector<Case> cases;
  for (Collective kind : kCollectives) {
    for (Memory memory : {Memory::kPrivate, Memory::kShared, Memory::kMixed}) {
      for (std::size_t count : {0, 1, 15, 16, 17, 1'000, 4'099, 33'000, 150'001}) {
        for (bool in_place : {false, true}) {
          if (GetParam() > 3 && in_place == (count % 2 == 0)) continue;
          // With a block for each rank there are enough chunks.
          if (kind >= Collective::kAlltoall && count > 33'000) continue;
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
  for (Collective kind : {Collective::kAllreduce, Collective::kReduce, Collective::kReduceScatter,
                          Collective::kAlltoall, Collective::kGather, Collective::kScatter}) {
    for (Memory memory : {Memory::kPrivate, Memory::kMixed}) {
      for (std::size_t count : {4'099, 33'000, 150'001}) {
        if (kind >= Collective::kAlltoall && count > 33'000) continue;
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
    for (std::size_t count : {0, 1, 5, 16, 17}) {
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
        rank.host.set_spins(number % 3 == 0 ? 0 : 100);
        run_case(rank, test, number);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
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
      rank.host.set_spins(number % 5 == 0 ? 0 : 50);
      run_case(rank, test, number);
      if (::testing::Test::HasFatalFailure()) return;
    }
  });
}

TEST_P(IntraCollectives, OfAllKindsAndWaysFollowEachOther) { run_mixed(GetParam(), 500); }

// With this many members, each polls member 0 only.
TEST(IntraCollectivesMixed, OfManyMembers) { run_mixed(18, 150); }

// --- errors ----------------------------------------------------------------------------------------------------------

struct Failure {
  Code code = Code::kOk;
  std::string sentence;
};

Failure fail(Rank& rank, const Call& call, Buffer send, Buffer recv, Duration limit) {
  Stop stop;
  Deadline deadline(rank.loop, after(rank.loop.now(), limit), stop, "too late");
  Operation op{rank.team, call, ++rank.sequence, stop, send, recv};
  try {
    rank.loop.run(run(op));
  } catch (const Error& error) {
    return {error.code(), error.message()};
  }
  return {};
}

TEST(IntraCollectivesErrors, DifferentCallsAreNamedOnEveryRank) {
  for (const std::size_t count : {4, 40'000}) {
    std::vector<Failure> failures(3);
    run_ranks(3, [&failures, count](Rank& rank) {
      std::vector<float> data(count, 1.0f);
      const Buffer buffer{reinterpret_cast<std::byte*>(data.data()), count * 4};
      const Call call =
          rank.rank() == 1 ? call_of(Collective::kBroadcast, count) : call_of(Collective::kAllreduce, count);
      failures[static_cast<std::size_t>(rank.rank())] = fail(rank, call, buffer, buffer, 60s);
      EXPECT_EQ(data[0], 1.0f) << "nothing was changed";
    });
    for (const Failure& failure : failures) {
      EXPECT_EQ(failure.code, Code::kMismatch);
      EXPECT_EQ(failure.sentence, failures[0].sentence);
      EXPECT_NE(failure.sentence.find("rank 0: allreduce of " + std::to_string(count) + " fp32, sum"),
                std::string::npos)
          << failure.sentence;
      EXPECT_NE(failure.sentence.find("rank 1: broadcast of " + std::to_string(count)), std::string::npos);
    }
  }
}

TEST(IntraCollectivesErrors, DifferentCallsAreNamedOnTheFastPathToo) {
  run_ranks(2, [](Rank& rank) {
    float value = 1.0f;
    const Buffer buffer{reinterpret_cast<std::byte*>(&value), 4};
    const Call call = call_of(Collective::kAllreduce, 1, rank.rank() == 0 ? DType::kFloat32 : DType::kInt32);
    EXPECT_EQ(try_small(rank.host, call, buffer.data, buffer.data), Small::kBegun);
    const Failure failure = fail(rank, call, buffer, buffer, 60s);
    EXPECT_EQ(failure.code, Code::kMismatch);
    EXPECT_NE(failure.sentence.find("int32"), std::string::npos) << failure.sentence;
    EXPECT_EQ(value, 1.0f);
  });
}

TEST(IntraCollectivesErrors, AMissingRankIsATimeoutAndTheTeamIsOver) {
  run_ranks(2, [](Rank& rank) {
    if (rank.rank() == 1) return rank.host.fail();
    for (const std::size_t count : {1, 100'000}) {
      std::vector<float> data(count);
      const Buffer buffer{reinterpret_cast<std::byte*>(data.data()), count * 4};
      const Failure failure = fail(rank, call_of(Collective::kAllreduce, count), buffer, buffer, 30ms);
      EXPECT_EQ(failure.code, count == 1 ? Code::kTimeout : Code::kAborted) << failure.sentence;
    }
  });
}

// Failed work ends the call with its own message after the memory was released. The other members learn of it in
// another way, here by their deadline.
TEST(IntraCollectivesErrors, AComputeThatFailsEndsTheCall) {
  const auto lost = std::make_exception_ptr(Error(Code::kSystem, "device 3 has fallen off the bus"));
  for (const Memory memory : {Memory::kPrivate, Memory::kShared, Memory::kDevice}) {
    run_ranks(
        2,
        [&lost, memory](Rank& rank) {
          constexpr std::size_t kCount = 200'000;
          Place place(rank, memory, kCount * 4);
          const Buffer buffer = place.part(0, kCount * 4);
          const bool fails = rank.rank() == 1;
          if (fails) rank.thread->fail_after(0, lost);
          const Failure failure =
              fail(rank, call_of(Collective::kAllreduce, kCount), buffer, buffer, fails ? 60s : 100ms);
          EXPECT_NE(failure.code, Code::kOk);
          if (fails) {
            EXPECT_EQ(failure.sentence, "device 3 has fallen off the bus");
          }
          EXPECT_TRUE(rank.host.failed());
        },
        true);
  }
}

// A buffer must not be freed or reused while the thread still reads or writes it.
TEST(IntraCollectivesErrors, ADeadlineWaitsForTheComputesMemory) {
  run_ranks(
      2,
      [](Rank& rank) {
        constexpr std::size_t kCount = 10'000;
        std::vector<float> data(kCount, 1.0f);
        const Buffer buffer{reinterpret_cast<std::byte*>(data.data()), kCount * 4};
        rank.thread->hold();
        Stop stop;
        Operation op{rank.team, call_of(Collective::kAllreduce, kCount), ++rank.sequence, stop, buffer, buffer};
        Task<void> task = run(op);
        task.start();
        while (rank.thread->begun() == 0) rank.loop.look();  // polls without waking the thread
        stop.request(std::make_exception_ptr(Error(Code::kTimeout, "too late")));
        for (int i = 0; i < 1000; ++i) rank.loop.look();
        EXPECT_FALSE(task.done());
        rank.thread->proceed();
        rank.loop.run_until([&task] { return task.done(); });
        EXPECT_THROW(task.take(), Error);
      },
      true);
}

// Operations of two groups run concurrently: while one waits in the middle of its stores the other must not begin its
// own.
TEST(IntraCollectivesGroups, StoresOfTwoGroupsTakeTurns) {
  run_ranks(
      2,
      [](Rank& rank) {
        const auto other_view = std::make_shared<View>(
            2, 0, 0, 0, std::vector<Member>(rank.team.view->members().begin(), rank.team.view->members().end()));
        IntraTeam other_host(rank.domain, other_view, rank.rank(), Rank::every_rank(2));
        Team other{other_view, rank.rank(), rank.loop, rank.team.compute, &other_host, nullptr};
        Stop stop;
        Deadline deadline(rank.loop, after(rank.loop.now(), 60s), stop, "the collectives do not end");
        rank.loop.run(other_host.open(stop));
        constexpr std::size_t kBytes = 8 << 20;
        Place one(rank, Memory::kShared, kBytes), two(rank, Memory::kShared, kBytes);
        for (int round = 0; round < 3; ++round) {
          for (const Place* place : {&one, &two}) {
            for (std::size_t i = 0; i < kBytes / 4; ++i) reinterpret_cast<float*>(place->data())[i] = 1.0f;
          }
          const Call call = call_of(Collective::kAllreduce, kBytes / 4);
          Operation first{rank.team, call, ++rank.sequence, stop, one.part(0, kBytes), one.part(0, kBytes)};
          Operation second{other, call, rank.sequence, stop, two.part(0, kBytes), two.part(0, kBytes)};
          Task<void> tasks[] = {run(first), run(second)};
          for (Task<void>& task : tasks) task.start();
          for (Task<void>& task : tasks) rank.loop.run_until([&task] { return task.done(); });
          for (Task<void>& task : tasks) task.take();
          for (const Place* place : {&one, &two}) {
            for (const std::size_t i : {std::size_t{0}, kBytes / 8, kBytes / 4 - 1}) {
              EXPECT_EQ(reinterpret_cast<float*>(place->data())[i], 2.0f);
            }
          }
        }
        rank.loop.run(other_host.close(stop));
      },
      true);
}

// Operations of one team that are started together run in order.
class HostTurns : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Computes, HostTurns, ::testing::Bool());

TEST_P(HostTurns, OperationsTakeTurns) {
  const auto body = [](Rank& rank) {
    Stop stop;
    Deadline deadline(rank.loop, after(rank.loop.now(), 60s), stop, "the collectives do not end");
    constexpr std::size_t kOperations = 20;
    std::vector<std::vector<float>> data;
    std::vector<std::unique_ptr<Operation>> operations;
    std::vector<Task<void>> tasks;
    for (std::size_t i = 0; i < kOperations; ++i) data.emplace_back(i * 3'000 + 1, static_cast<float>(i));
    for (std::size_t i = 0; i < kOperations; ++i) {
      const Buffer buffer{reinterpret_cast<std::byte*>(data[i].data()), data[i].size() * 4};
      operations.push_back(std::make_unique<Operation>(
          Operation{rank.team, call_of(Collective::kAllreduce, data[i].size()), i, stop, buffer, buffer}));
      tasks.push_back(run(*operations.back()));
    }
    for (Task<void>& task : tasks) task.start();
    for (Task<void>& task : tasks) rank.loop.run_until([&task] { return task.done(); });
    for (Task<void>& task : tasks) task.take();
    for (std::size_t i = 0; i < kOperations; ++i) EXPECT_EQ(data[i].back(), static_cast<float>(3 * i));
  };
  run_ranks(3, body, GetParam());
}

}  // namespace
}  // namespace aiacc::intra
