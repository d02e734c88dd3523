// What ends a collective on one host with an error, and operations of several groups that take turns.
#include <gtest/gtest.h>

#include <sched.h>

#include <atomic>
#include <cstring>
#include <optional>
#include <string>

#include "base/error.h"
#include "collectives/intra/intra_call_test.h"
#include "collectives/intra/select.h"
#include "collectives/intra/small.h"
#include "tests/host_world.h"

namespace aiacc::intra {
namespace {

using namespace std::chrono_literals;

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

// The root arrives, gives up, and its caller uses the memory again. Who comes later finds the root's arrival and must not take
// what is there for the result.
TEST(IntraCollectivesErrors, WhatAMemberThatGaveUpHadSentIsNoResult) {
  for (const std::size_t count :
       {std::size_t{300}, std::size_t{100'000}}) {  // of floats: by one copy, and through slots
    std::atomic<bool> gave_up{false};
    run_ranks(2, [&](Rank& rank) {
      std::vector<float> data(count, 1.0F);
      const Buffer buffer{reinterpret_cast<std::byte*>(data.data()), 4 * count};
      const Call call = call_of(Collective::kBroadcast, count);
      if (rank.rank() == 0) {
        EXPECT_EQ(fail(rank, call, buffer, {}, 20ms).code, Code::kTimeout);
        gave_up = true;
        return;
      }
      while (!gave_up) sched_yield();
      EXPECT_NE(fail(rank, call, {}, buffer, 2s).code, Code::kOk) << count;
    });
  }
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

// What the rank whose work fails says when the other one gives up after `patience`.
std::string sentence_of_failed_work(Memory memory, Duration patience) {
  const auto lost = std::make_exception_ptr(Error(Code::kSystem, "device 3 has fallen off the bus"));
  std::string sentence;
  run_ranks(
      2,
      [&](Rank& rank) {
        constexpr std::size_t kCount = 200'000;
        Place place(rank, memory, kCount * 4);
        const Buffer buffer = place.part(0, kCount * 4);
        const bool fails = rank.rank() == 1;
        if (fails) rank.thread->fail_after(0, lost);
        const Failure failure =
            fail(rank, call_of(Collective::kAllreduce, kCount), buffer, buffer, fails ? Duration(60s) : patience);
        EXPECT_NE(failure.code, Code::kOk);
        if (fails) sentence = failure.sentence;
        EXPECT_TRUE(rank.host.failed());
      },
      true);
  return sentence;
}

// Failed work ends the call with its own message after the memory was released. The other members learn of it in
// another way, here by their deadline, which must not come first on a slow machine.
TEST(IntraCollectivesErrors, AComputeThatFailsEndsTheCall) {
  const std::string own = "device 3 has fallen off the bus";
  for (const Memory memory : {Memory::kPrivate, Memory::kShared, Memory::kDevice}) {
    std::string sentence;
    for (const Duration patience : {Duration(100ms), Duration(2s), Duration(20s)}) {
      sentence = sentence_of_failed_work(memory, patience);
      if (sentence == own) break;
    }
    EXPECT_EQ(sentence, own);
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
