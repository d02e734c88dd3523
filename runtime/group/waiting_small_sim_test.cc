// In virtual time: small collectives that wait without an operation keep every promise of one.
#include "runtime/group/waiting_small.h"

#include <array>
#include <cstring>
#include <span>

#include "collectives/intra/small_call.h"
#include "runtime/group/waiting_calls_test.h"

namespace aiacc::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

using Hosts = std::vector<std::uint32_t>;  // of each rank
const Hosts kOneHost{0, 0, 0}, kThreeHosts{0, 1, 2};

class WaitingSmallCalls : public WaitingCallsTest, public ::testing::WithParamInterface<Hosts> {
 protected:
  WaitingSmallCalls() : WaitingCallsTest(GetParam()) {}
  bool on_one_host() const { return GetParam() == kOneHost; }
  // How a sentence names a rank that has not come.
  const char* rank_2_is_missing() const {
    return on_one_host() ? "rank 2 has not arrived" : "rank 2 has not made this call";
  }
};
INSTANTIATE_TEST_SUITE_P(OnOneHost, WaitingSmallCalls, ::testing::Values(kOneHost));
INSTANTIATE_TEST_SUITE_P(OnThree, WaitingSmallCalls, ::testing::Values(kThreeHosts));

class WaitingOnOneHost : public WaitingCallsTest {
 protected:
  WaitingOnOneHost() : WaitingCallsTest(kOneHost) {}
};

TEST_P(WaitingSmallCalls, EndInTheirOrderAfterTheLateRankHasCome) {
  for (int i = 0; i < 2000; ++i) {
    EXPECT_TRUE(sum(0));
    EXPECT_TRUE(sum(1));
  }
  job_.world.run_until(after(job_.began, milliseconds(100)));
  EXPECT_FALSE(started_[0][0].work->done());
  for (int i = 0; i < 2000; ++i) EXPECT_TRUE(sum(2));
  finish();
  expect_sums();
  expect_idle();
}

// Whatever is called behind what waits comes behind it, and is waited for in turn.
TEST_F(WaitingOnOneHost, StayInOrderWithOperations) {
  const auto count_of = [](int i) { return i % 5 == 0 ? std::size_t{100'000} : std::size_t{2}; };
  std::size_t waited = 0;
  for (int i = 1; i < 60; ++i) waited += sum(0, count_of(i)) ? 1u : 0u;
  EXPECT_EQ(waited, 4u) << "up to the first long one";
  job_.world.run_until(after(job_.began, milliseconds(600)));  // the first is an operation now
  EXPECT_FALSE(sum(0)) << "behind an operation";
  for (int rank = 1; rank < 3; ++rank) {
    for (int i = 1; i < 60; ++i) {
      sum(rank, count_of(i));
      job_.world.run_until(after(job_.world.now(), milliseconds(i % 7 == 0 ? 1 : 0)));
    }
    sum(rank);
  }
  finish();
  expect_sums();
  EXPECT_TRUE(sum(0)) << "nothing is before it any more";
  for (int rank = 1; rank < 3; ++rank) sum(rank);
  finish();
  expect_sums();
  expect_idle();
}

// Each rank's next call ends what can end, so one that was ahead once does not have all its calls wait.
class CallsOnOneHost : public WaitingOnOneHost {
 protected:
  // As the C ABI makes it: at once if it can end so.
  void call(int rank) {
    std::vector<float> sent{static_cast<float>(rank)}, got{-1};
    const Call sums = call_of(Collective::kAllreduce, 1);
    if (job_[rank].context->world().finish_at_once(sums, buffer_of(sent), buffer_of(got)) == 0) {
      start(rank, sums, sent, 1);
    } else {
      EXPECT_EQ(got[0], 3);
    }
  }
  int waiting(int rank) { return job_[rank].context->world().outstanding(); }
  void expect_threes() {
    for (auto& [rank, its] : started_) {
      for (std::size_t i = 0; i < its.size(); ++i) {
        ASSERT_EQ(error_of(rank, i).message(), "");
        ASSERT_EQ(its[i].result->back(), 3) << "rank " << rank << ", " << i;
      }
    }
  }
};

class Giving final : public intra::InPlace {
 public:
  void write(std::byte* contribution) noexcept override {
    ++writes;
    std::memcpy(contribution, &gives, sizeof gives);
  }
  void read(std::span<const std::byte* const> /*contributions*/) noexcept override { ++reads; }
  float gives = 0;
  int writes = 0, reads = 0;
};

TEST_F(CallsOnOneHost, OfACacheLineInPlaceAreWrittenOnceAndHaveTheirResultInTheBuffer) {
  for (const float gives : {0.0f, 5.0f}) {
    Giving caller;
    caller.gives = gives;
    for (const int rank : {1, 2}) call(rank);
    std::vector<float> data{-1};
    EXPECT_FALSE(job_[0].context->world().run_in_place(call_of(Collective::kAllreduce, 1), buffer_of(data), caller));
    EXPECT_EQ(data[0], gives + 3);
    EXPECT_EQ(caller.writes, 1);
    EXPECT_EQ(caller.reads, 0);
    finish();
  }
}

TEST_F(CallsOnOneHost, EndWhatWaitsAlthoughNobodyRunsTheLoop) {
  for (int rank = 0; rank < 3; ++rank) call(rank);
  finish();
  for (int i = 0; i < 100; ++i) call(0);
  for (int i = 0; i < 500; ++i) {
    for (int rank = 0; rank < 3; ++rank) call(rank);
  }
  EXPECT_LE(waiting(0), 102);
  for (const int rank : {1, 2}) EXPECT_LE(waiting(rank), 2) << rank;
  for (int i = 0; i < 100; ++i) {
    for (const int rank : {1, 2}) call(rank);
  }
  finish();
  expect_threes();
  expect_idle();
}

TEST_F(CallsOnOneHost, EndWhatWaitsBetweenAnyTwoStepsOfTheLoop) {
  for (int rank = 0; rank < 3; ++rank) call(rank);
  finish();
  std::array<int, 3> calls{};
  for (int step = 0; step < 2000; ++step) {
    const int rank = (step * 7 + step / 11) % 3;
    for (int i = 0; i < 1 + step % 3 && calls[rank] < 1000; ++i, ++calls[rank]) call(rank);
    int events = 0;
    job_.world.run_while_not([&] { return events++ == step % 4; });
  }
  for (int rank = 0; rank < 3; ++rank) {
    for (; calls[rank] < 1000; ++calls[rank]) call(rank);
  }
  finish();
  expect_threes();
  expect_idle();
}

TEST_P(WaitingSmallCalls, ServeEveryKind) {
  for (int rank = 0; rank < 3; ++rank) {
    const auto mine = static_cast<float>(rank + 1);
    EXPECT_TRUE(start(rank, call_of(Collective::kBarrier, 0), {}, 0));
    EXPECT_TRUE(start(rank, call_of(Collective::kReduce, 2, 1), {mine, mine}, rank == 1 ? 2 : 0));
    EXPECT_TRUE(start(rank, call_of(Collective::kBroadcast, 1, 2), {rank == 2 ? 7.0f : 0.0f}, 1));
    EXPECT_TRUE(start(rank, call_of(Collective::kAllgather, 1), {mine}, 3));
    EXPECT_TRUE(start(rank, call_of(Collective::kReduceScatter, 1), {mine, 2 * mine, 3 * mine}, 1));
    EXPECT_TRUE(start(rank, call_of(Collective::kAlltoall, 1), {mine, mine + 10, mine + 20}, 3));
    Call average = call_of(Collective::kAllreduce, 1);
    average.reduction.op = ReduceOp::kAvg;
    EXPECT_TRUE(start(rank, average, {mine}, 1));
  }
  finish();
  using Values = std::vector<float>;
  EXPECT_EQ(*started_[1][1].result, (Values{6, 6}));
  for (int rank = 0; rank < 3; ++rank) {
    const auto of_this = static_cast<float>(rank);
    if (rank != 2) {
      EXPECT_EQ(*started_[rank][2].result, (Values{7}));
    }
    EXPECT_EQ(*started_[rank][3].result, (Values{1, 2, 3}));
    EXPECT_EQ(*started_[rank][4].result, (Values{6 * (of_this + 1)}));
    EXPECT_EQ(*started_[rank][5].result, (Values{1 + 10 * of_this, 2 + 10 * of_this, 3 + 10 * of_this}));
    EXPECT_EQ(*started_[rank][6].result, (Values{2}));
  }
}

TEST_P(WaitingSmallCalls, AreRecordedWhileTheyWaitAndWhenTheyHaveEnded) {
  sum(0);
  std::vector<Record> records = job_[0].context->recorder().last(1);
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].outcome.state, Record::State::kRunning);
  EXPECT_EQ(records[0].call.describe(), call_of(Collective::kAllreduce, 1).describe());
  EXPECT_EQ(records[0].sequence, started_[0][0].work->sequence());
  EXPECT_EQ(records[0].sequence, job_[0].context->world().collectives());
  sum(1);
  sum(2);
  finish();
  records = job_[0].context->recorder().last(1);
  EXPECT_EQ(records[0].outcome.state, Record::State::kEnded);
  EXPECT_EQ(records[0].outcome.code, Code::kOk);
}

TEST_P(WaitingSmallCalls, OfAnotherLengthAreAMismatchThatEndsTheOthersToo) {
  for (int i = 0; i < 100; ++i) sum(0);
  job_.world.run_until(after(job_.began, milliseconds(300)));  // the first is an operation now
  for (int rank = 1; rank < 3; ++rank) {
    sum(rank, 2);
    for (int i = 1; i < 100; ++i) sum(rank);
  }
  finish();
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(error_of(rank, 0).code(), Code::kMismatch);
    EXPECT_NE(error_of(rank, 0).message().find(on_one_host() ? "rank 0: allreduce of 1 fp32"
                                                             : "rank 0 called allreduce of 1 fp32"),
              std::string::npos)
        << error_of(rank, 0).message();
    EXPECT_NE(error_of(rank, 0).message().find(on_one_host() ? "rank 1: allreduce of 2 fp32"
                                                             : "rank 1 called allreduce of 2 fp32"),
              std::string::npos);
    // Between hosts those behind it may be under way beside it and end before the group does.
    for (std::size_t i = 1; i < 100 && on_one_host(); ++i) ASSERT_NE(error_of(rank, i).code(), Code::kOk);
    EXPECT_TRUE(job_[rank].context->world().aborted());
    const std::vector<Record> records = job_[rank].context->recorder().last(1);
    EXPECT_EQ(records[0].outcome.state, Record::State::kEnded);
  }
  expect_idle();
}

TEST_P(WaitingSmallCalls, EndWhenTheGroupEndsAndWhenARankIsLost) {
  for (int i = 0; i < 1000; ++i) {
    sum(0);
    sum(2);
  }
  sum(0, 100'000);
  job_.world.run_until(after(job_.began, milliseconds(300)));  // the first ones are operations now
  for (const int rank : {0, 2}) {
    job_[rank].context->on_rank_lost(1, std::make_exception_ptr(Error(Code::kPeerFailed, "rank 1 has died", 1)));
  }
  finish();
  for (const int rank : {0, 2}) {
    for (std::size_t i = 0; i < started_[rank].size(); ++i) {
      ASSERT_EQ(error_of(rank, i).code(), Code::kPeerFailed) << i;
      ASSERT_EQ(error_of(rank, i).peer(), 1);
    }
  }
  expect_idle();
  EXPECT_FALSE(sum(0)) << "it is to say why";
}

TEST_P(WaitingSmallCalls, MeetTheirDeadlineWithASentenceOfTheOldest) {
  for (int i = 0; i < 100; ++i) {
    sum(0);
    sum(1);
  }
  const Duration limit = job_[0].context->world().default_timeout();
  finish();
  EXPECT_EQ(error_of(0, 0).code(), Code::kTimeout);
  for (const char* part : {"allreduce of 1 fp32, sum (operation 1 of", rank_2_is_missing()}) {
    EXPECT_NE(error_of(0, 0).message().find(part), std::string::npos) << error_of(0, 0).message();
  }
  EXPECT_EQ(error_of(0, 0).peer(), 2);
  EXPECT_GE(job_.elapsed(), limit);
  EXPECT_LE(job_.elapsed(), limit + milliseconds(10));
  for (std::size_t i = 1; i < 100; ++i) ASSERT_EQ(error_of(0, i).code(), Code::kTimeout);
}

// The oldest is reported, and the next one when that has ended.
TEST_P(WaitingSmallCalls, AreReportedByTheirOldest) {
  for (int i = 0; i < 100; ++i) {
    sum(0);
    sum(1);
  }
  job_.world.run_until(after(job_.began, seconds(100)));
  ASSERT_EQ(job_[0].reports.size(), 1u);
  EXPECT_NE(job_[0].reports[0].sentence.find("(operation 1 of"), std::string::npos) << job_[0].reports[0].sentence;
  EXPECT_NE(job_[0].reports[0].sentence.find(rank_2_is_missing()), std::string::npos);
  for (int i = 0; i < 50; ++i) sum(2);
  job_.world.run_until(after(job_.began, seconds(200)));
  ASSERT_EQ(job_[0].reports.size(), 2u);
  EXPECT_NE(job_[0].reports[1].sentence.find("(operation 51 of"), std::string::npos) << job_[0].reports[1].sentence;
  for (int i = 50; i < 100; ++i) sum(2);
  finish();
  expect_sums();
  expect_idle();
}

// A broadcast of one float from rank 0, which gives the number of the call.
class BroadcastsOnOneHost : public WaitingOnOneHost {
 protected:
  static constexpr std::size_t kAhead = IntraTeam::kAhead;
  void broadcast_from(int root, int rank) {
    start(rank, call_of(Collective::kBroadcast, 1, root), {static_cast<float>(started_[rank].size())}, 1);
  }
  void broadcast(int rank, std::size_t times = 1) {
    for (std::size_t i = 0; i < times; ++i) broadcast_from(0, rank);
  }
  void lose(int lost, std::initializer_list<int> others) {
    for (const int rank : others) {
      job_[rank].context->on_rank_lost(lost,
                                       std::make_exception_ptr(Error(Code::kPeerFailed, "a rank has died", lost)));
    }
  }
  void expect_values(int rank, std::size_t times) {
    for (std::size_t i = 0; i < times; ++i) {
      ASSERT_EQ(error_of(rank, i).message(), "") << i;
      ASSERT_EQ(started_[rank][i].result->back(), static_cast<float>(i));
    }
  }
  std::size_t done(int rank) {
    return static_cast<std::size_t>(std::count_if(started_[rank].begin(), started_[rank].end(),
                                                  [](const Started& one) { return one.work->done(); }));
  }
};

TEST_F(BroadcastsOnOneHost, EndOnTheRootBeforeOthersCall) {
  broadcast(0, 3 * kAhead);
  job_.world.run_until(after(job_.began, milliseconds(600)));  // one that waits is an operation now
  EXPECT_EQ(done(0), kAhead);
  broadcast(1, 3 * kAhead);
  job_.world.run_until(after(job_.began, milliseconds(1200)));
  EXPECT_EQ(done(0), kAhead) << "rank 2 has not come";
  EXPECT_EQ(done(1), kAhead);
  broadcast(2, 3 * kAhead);
  finish();
  for (const int rank : {1, 2}) expect_values(rank, 3 * kAhead);
  expect_idle();
}

TEST_F(BroadcastsOnOneHost, GiveWhatADeadRootHadSent) {
  broadcast(0, 5);
  broadcast(1, 6);
  broadcast(2, 2);
  job_.world.run_until(after(job_.began, milliseconds(100)));
  EXPECT_EQ(done(1), 5u);
  lose(0, {1, 2});
  finish();
  expect_values(1, 5);
  expect_values(2, 2);
  EXPECT_EQ(error_of(1, 5).code(), Code::kPeerFailed);
  EXPECT_EQ(error_of(1, 5).peer(), 0);
  broadcast(2);
  finish();
  EXPECT_EQ(error_of(2, 2).code(), Code::kPeerFailed) << "the group has ended";
}

TEST_F(BroadcastsOnOneHost, EndOnTheRootWithTheNameOfADeadReceiver) {
  broadcast(0, kAhead + 2);
  broadcast(1, kAhead + 2);
  job_.world.run_until(after(job_.began, milliseconds(100)));
  lose(2, {0, 1});
  finish();
  for (const int rank : {0, 1}) {
    for (std::size_t i = 0; i < kAhead; ++i) ASSERT_EQ(error_of(rank, i).message(), "") << i;
    EXPECT_EQ(error_of(rank, kAhead).code(), Code::kPeerFailed);
    EXPECT_EQ(error_of(rank, kAhead).peer(), 2);
  }
}

TEST_F(BroadcastsOnOneHost, NameWhoIsMissingWhenTheRootMayNotRunAheadAnyMore) {
  broadcast(0, kAhead + 1);
  broadcast(1, kAhead + 1);
  finish();
  EXPECT_EQ(error_of(0, kAhead).code(), Code::kTimeout);
  EXPECT_NE(error_of(0, kAhead).message().find("rank 2 has not arrived"), std::string::npos)
      << error_of(0, kAhead).message();
  EXPECT_EQ(error_of(0, kAhead).peer(), 2);
}

// The receiver finds it in that very call, the root in its next one.
TEST_F(BroadcastsOnOneHost, OfAnotherLengthAreAMismatchOfWhichTheRootHearsLater) {
  broadcast(0);
  start(1, call_of(Collective::kBroadcast, 2), {0, 0}, 2);
  broadcast(2);
  finish();
  EXPECT_EQ(error_of(0, 0).message(), "");
  EXPECT_EQ(error_of(1, 0).code(), Code::kMismatch);
  sum(0);
  sum(2);
  finish();
  for (const int rank : {0, 2}) {
    EXPECT_EQ(error_of(rank, 1).code(), Code::kMismatch);
    EXPECT_NE(error_of(rank, 1).message().find("rank 0: broadcast of 1 fp32, from root 0; rank 1: broadcast of 2 fp32"),
              std::string::npos)
        << error_of(rank, 1).message();
  }
}

TEST_F(BroadcastsOnOneHost, OfTwoRootsAreAMismatchOfTheNextCall) {
  broadcast(0);
  broadcast_from(1, 1);
  broadcast(2);
  for (int rank = 0; rank < 3; ++rank) sum(rank);
  finish();
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(error_of(rank, 1).code(), Code::kMismatch);
    EXPECT_NE(error_of(rank, 1).message().find("broadcast of 1 fp32, from root 1"), std::string::npos)
        << error_of(rank, 1).message();
  }
}

TEST_P(WaitingSmallCalls, AreNotForWhatNeedsAnOperation) {
  Group& world = job_[0].context->world();
  std::vector<float> data(100'000);
  Buffer memory = buffer_of(data);
  const auto waits = [&](const Call& call) {
    const Buffer its{memory.data, call.bytes(), memory.kind};
    return world.prepare_waiting(PlainCall::of(call), its, its) != nullptr;
  };
  EXPECT_TRUE(waits(call_of(Collective::kAllreduce, 16)));
  EXPECT_FALSE(waits(call_of(Collective::kAllreduce, 100'000)));
  EXPECT_FALSE(waits(call_of(Collective::kGroupedAllreduce, 1)));
  memory.kind = MemoryKind::kCuda;
  EXPECT_FALSE(waits(call_of(Collective::kAllreduce, 1)));
  memory.kind = MemoryKind::kHost;
  world.abort_by_user("enough");
  EXPECT_FALSE(waits(call_of(Collective::kAllreduce, 1))) << "it is to say why";
}

}  // namespace
}  // namespace aiacc::sim
