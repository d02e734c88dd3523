// In virtual time: thousands of collectives between hosts that wait as records, of which few go on at a time.
#include "runtime/group/short_queue.h"

#include <array>
#include <random>
#include <string>

#include "runtime/group/waiting_calls_test.h"
#include "transports/exchange.h"
#include "transports/mailbox.h"

namespace aiacc::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

class QueuedBetweenHosts : public WaitingCallsTest {
 protected:
  QueuedBetweenHosts() : WaitingCallsTest({0, 1, 2}) {}

  MatchGroup& match(int rank) {
    Context& context = *job_[rank].context;
    return context.messenger()->mailbox().group(context.world().view().id());
  }
  std::size_t under_way(int rank) {
    std::size_t count = 0;
    match(rank).calls.for_each([&](Exchange&) { ++count; });
    return count;
  }
};

TEST_F(QueuedBetweenHosts, FewGoOnAtATimeAndTheOthersTakeNoMemoryElsewhere) {
  for (int i = 0; i < 1000; ++i) {
    EXPECT_TRUE(sum(0));
    EXPECT_TRUE(sum(1));
  }
  job_.world.run_until(after(job_.began, milliseconds(100)));
  for (const int rank : {0, 1}) EXPECT_EQ(under_way(rank), ShortQueue::kPlaces);
  EXPECT_LE(match(2).unexpected.size(), 2 * ShortQueue::kPlaces);
  EXPECT_EQ(job_[0].context->operation_pool().slabs(), 0u);
  EXPECT_EQ(match(0).queued.first, ShortQueue::kPlaces + 1);
  EXPECT_EQ(match(0).queued.last, 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(sum(2));
  finish();
  expect_sums();
  expect_idle();
  EXPECT_FALSE(match(0).is_queued(WireId(1000)));
}

bool has_root(Collective kind) {
  return kind == Collective::kReduce || kind == Collective::kBroadcast || kind == Collective::kGather ||
         kind == Collective::kScatter;
}

// Calls of all lengths and kinds, with operations among them, by ranks that are late and early in turn.
TEST_F(QueuedBetweenHosts, MixWithOperationsOfTheGroup) {
  constexpr std::size_t kCounts[] = {1, 3, 300, 5000, 100'000};  // the last is an operation
  constexpr int kCalls = 400;
  std::size_t waited = 0;
  std::vector<std::pair<Collective, std::size_t>> calls;
  std::mt19937 random(5);
  for (int i = 0; i < kCalls; ++i) {
    const auto kind = std::array{Collective::kAllreduce,     Collective::kReduce,   Collective::kAllgather,
                                 Collective::kBarrier,       Collective::kGather,   Collective::kScatter,
                                 Collective::kReduceScatter, Collective::kBroadcast}[random() % 8];
    calls.emplace_back(kind, kind == Collective::kBarrier ? 0 : kCounts[random() % 5]);
  }
  std::array<int, 3> next{};
  for (int left = 3 * kCalls; left > 0;) {
    const int rank = static_cast<int>(random() % 3);
    for (unsigned several = random() % 100; several > 0 && next[rank] < kCalls; --several, --left) {
      const auto [kind, count] = calls[static_cast<std::size_t>(next[rank]++)];
      const bool is_root = rank == 1;
      const auto has = [&](bool one, bool all) { return all ? 3 * count : one ? count : 0; };
      const bool many_in = kind == Collective::kReduceScatter || (kind == Collective::kScatter && is_root);
      const bool many_out = kind == Collective::kAllgather || (kind == Collective::kGather && is_root);
      const std::vector<float> mine(has(kind != Collective::kScatter, many_in), static_cast<float>(rank + 1));
      const bool receives = is_root || (kind != Collective::kReduce && kind != Collective::kGather);
      waited += start(rank, call_of(kind, count, has_root(kind) ? 1 : 0), mine, has(receives, many_out)) ? 1u : 0u;
    }
    job_.world.run_until(after(job_.world.now(), microseconds(random() % 300)));
  }
  finish();
  EXPECT_GT(waited, 700u);
  EXPECT_LT(waited, 1200u);
  for (int rank = 0; rank < 3; ++rank) {
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const auto [kind, count] = calls[i];
      ASSERT_EQ(error_of(rank, i).message(), "") << i;
      const std::vector<float>& got = *started_[rank][i].result;
      std::vector<float> expected(got.size(), kind == Collective::kBroadcast || kind == Collective::kScatter ? 2 : 6);
      if (kind == Collective::kAllgather || kind == Collective::kGather) {
        for (std::size_t at = 0; at < got.size(); ++at) {
          const std::size_t from = at / count;
          expected[at] = static_cast<float>(from + 1);
        }
      }
      ASSERT_EQ(got, expected) << "rank " << rank << ", call " << i;
    }
  }
  expect_idle();
}

// Rank 1 has made the call that rank 0 asks about and waits for rank 2 in older ones.
TEST_F(QueuedBetweenHosts, AMemberThatHasNotBegunWhatItHasCalledIsNotTheStraggler) {
  for (std::size_t i = 0; i < ShortQueue::kPlaces + 10; ++i) {
    EXPECT_TRUE(start(0, call_of(Collective::kReduce, 1, 1), {1}, 0));
    EXPECT_TRUE(start(1, call_of(Collective::kReduce, 1, 1), {1}, 1));
  }
  EXPECT_TRUE(sum(0));
  EXPECT_TRUE(sum(1));
  job_.world.run_until(after(job_.began, seconds(100)));
  EXPECT_FALSE(started_[0].back().work->done());
  EXPECT_TRUE(started_[0].front().work->done()) << "its part";
  ASSERT_EQ(job_[0].reports.size(), 1u);
  const std::string& sentence = job_[0].reports[0].sentence;
  EXPECT_NE(sentence.find("(operation 75 of"), std::string::npos) << sentence;
  EXPECT_NE(sentence.find("rank 2 has not made this call"), std::string::npos) << sentence;
  for (std::size_t i = 0; i < ShortQueue::kPlaces + 10; ++i) start(2, call_of(Collective::kReduce, 1, 1), {1}, 0);
  sum(2);
  finish();
  EXPECT_EQ(started_[1].front().result->at(0), 3);
  expect_idle();
}

TEST_F(QueuedBetweenHosts, AnotherCallFarBehindIsAMismatchAfterAllBeforeItHaveEndedWell) {
  constexpr std::size_t kCalls = 1000, kOther = 300;
  for (std::size_t i = 0; i < kCalls; ++i) {
    for (int rank = 0; rank < 3; ++rank) sum(rank, rank == 1 && i == kOther ? 2 : 1);
  }
  finish();
  // Others were under way beside it when the group ended, and some had taken the places of those that ended until it did: that takes
  // a question, its answer and the notice to the third.
  constexpr std::size_t kBeside = 4 * ShortQueue::kPlaces;
  for (int rank = 0; rank < 3; ++rank) {
    for (std::size_t i = 0; i < kOther - ShortQueue::kPlaces; ++i) ASSERT_EQ(error_of(rank, i).message(), "") << i;
    EXPECT_EQ(error_of(rank, kOther).code(), Code::kMismatch);
    for (std::size_t i = kOther + kBeside; i < kCalls; ++i) ASSERT_EQ(error_of(rank, i).code(), Code::kMismatch) << i;
    EXPECT_NE(error_of(rank, kOther).message().find("operation 301 of"), std::string::npos);
    EXPECT_NE(error_of(rank, kOther).message().find("rank 1 called allreduce of 2 fp32"), std::string::npos);
  }
  expect_idle();
}

// All end with the same sentence: those under way, those that wait, and operations behind them.
TEST_F(QueuedBetweenHosts, EndWithTheDead) {
  for (const int rank : {0, 1}) {
    for (int i = 0; i < 1000; ++i) EXPECT_TRUE(sum(rank));
    EXPECT_FALSE(sum(rank, 100'000));
  }
  job_.world.run_until(after(job_.began, seconds(1)));
  job_.world.kill(job_[2].loop.node());
  EXPECT_TRUE(job_.world.run_while_not([this] {
    return std::all_of(started_.begin(), started_.end(), [](const auto& its) {
      return std::all_of(its.second.begin(), its.second.end(), [](const auto& one) { return one.work->done(); });
    });
  }));
  for (const int rank : {0, 1}) {
    for (std::size_t i = 0; i < started_[rank].size(); ++i) {
      ASSERT_EQ(error_of(rank, i).code(), Code::kPeerFailed) << error_of(rank, i).message();
      ASSERT_EQ(error_of(rank, i).peer(), 2);
    }
    EXPECT_EQ(job_[rank].context->world().outstanding(), 0);
  }
  EXPECT_LE(job_.elapsed(), seconds(8));
}

TEST_F(QueuedBetweenHosts, LeaveOutWhatIsLongerThanAnEagerMessage) {
  constexpr std::size_t kMost = Mailbox::kEagerBytes / sizeof(float);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(sum(rank, kMost));
    EXPECT_FALSE(sum(rank, kMost + 1));
    EXPECT_FALSE(start(rank, call_of(Collective::kAllgather, kMost), std::vector<float>(kMost), 3 * kMost));
  }
  finish();
  EXPECT_EQ(started_[0][0].result->back(), 3);
  EXPECT_EQ(started_[0][1].result->back(), 6);
}

}  // namespace
}  // namespace aiacc::sim
