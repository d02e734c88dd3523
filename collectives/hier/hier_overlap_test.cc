// Operations of one group over hosts that are under way at once, on hosts with several members: in virtual time, that the
// phases on the hosts run while other operations are between hosts; and that results do not depend on who is when where.
#include "base/sim/random.h"
#include "collectives/hier/hier_world_test.h"

namespace aiacc {
namespace {

using namespace hier_test;
using std::chrono::milliseconds;

constexpr Duration kLatency = milliseconds(1);
constexpr Instant kBegin{milliseconds(10)};
// For messages that queue behind each other at a sender, 400 ns each.
constexpr Duration kQueueing = std::chrono::microseconds(1);

// --- time --------------------------------------------------------------------------------------------------------------

Task<void> run_in_turn(Rank* self, Call call, std::vector<Buffer> buffers) {
  for (const Buffer& buffer : buffers) co_await perform(self, call, buffer, buffer);
}

Task<void> run_at_once(Rank* self, Call call, std::vector<Buffer> buffers) {
  Scope scope(self->rank.loop(), self->rank.stop());
  for (const Buffer& buffer : buffers) scope.spawn(perform(self, call, buffer, buffer));
  co_await scope.join();
}

Task<void> begin_together(Rank* self, bool at_once, Call call, std::vector<Buffer> buffers) {
  if (self->shared) co_await self->shared->open(self->rank.stop());
  co_await sleep_for(self->rank.loop(), kBegin - self->rank.loop().now(), self->rank.stop());
  if (at_once) {
    co_await run_at_once(self, call, buffers);
  } else {
    co_await run_in_turn(self, call, buffers);
  }
}

// Until so many allreduces in place have ended on all ranks, on hosts with the same constant latency between them.
Duration took_at_once(const Placement& placement, Through through, std::size_t count, int operations, bool at_once) {
  sim::FabricModel model;
  model.between_hosts.latency = kLatency;
  model.between_hosts.jitter = {};
  model.within_host.jitter = {};
  SimCluster cluster(1, placement, model);
  std::deque<Rank> ranks;
  std::deque<Bytes> memory;
  for (int rank = 0; rank < cluster.size(); ++rank) {
    ranks.emplace_back(cluster, rank, through);
    std::vector<Buffer> buffers;
    for (int i = 0; i < operations; ++i) buffers.push_back(exact::buffer_of(memory.emplace_back(count * 4)));
    cluster.rank(rank).start(
        begin_together(&ranks.back(), at_once, call_of(Collective::kAllreduce, count), std::move(buffers)));
  }
  EXPECT_TRUE(cluster.run()) << cluster.world().recent();
  Instant last = kBegin;
  for (Rank& rank : ranks) {
    EXPECT_FALSE(rank.rank.error()) << rank.rank.error()->message();
    last = std::max(last, rank.rank.ended_at());
  }
  return last - kBegin;
}

class HierOverlap : public ::testing::TestWithParam<Through> {};
INSTANTIATE_TEST_SUITE_P(LocalTeams, HierOverlap, ::testing::Values(Through::kSharedMemory, Through::kMessages),
                         [](const auto& param) {
                           return std::string(param.param == Through::kMessages ? "Messages" : "SharedMemory");
                         });

// Through the leaders, and in shards. In turn, each waits a latency between the hosts; at once, they wait for it together.
TEST_P(HierOverlap, TwoAllreducesAtOnceTakeALatencyLessThanInTurn) {
  for (const std::size_t count : {2, 4'000, 16'000}) {
    for (const Placement& placement : {Placement{0, 0, 1, 1}, Placement{0, 1, 0, 1, 0}, Placement{0, 0, 1}}) {
      SCOPED_TRACE(text(placement) + ", " + std::to_string(count));
      const Duration one = took_at_once(placement, GetParam(), count, 1, false);
      const Duration in_turn = took_at_once(placement, GetParam(), count, 2, false);
      const Duration at_once = took_at_once(placement, GetParam(), count, 2, true);
      EXPECT_GE(one, kLatency);
      EXPECT_GE(in_turn, 2 * kLatency);
      EXPECT_LE(at_once, in_turn - kLatency + kQueueing);
      EXPECT_LE(at_once, 2 * one - kLatency + kQueueing);
    }
  }
}

TEST(HierOverlapMany, AsManyOverlapAsTheTeamHasPhasesFor) {
  const auto n = static_cast<int>(hier::ShmLocalTeam::kOverlapping);
  for (const std::size_t count : {2, 16'000}) {
    const auto at_once = [count](int operations) {
      return took_at_once({0, 0, 1, 1}, Through::kSharedMemory, count, operations, true);
    };
    const Duration one = at_once(1);
    EXPECT_LE(at_once(n), n * one - (n - 1) * kLatency);
    EXPECT_GT(at_once(n + 1), 2 * kLatency) << "the next waits for the first";
    EXPECT_LE(at_once(2 * n), 2 * n * one - (2 * n - 2) * kLatency);
  }
}

// --- results -----------------------------------------------------------------------------------------------------------

// The operations of one rank, which are begun in order and at times of its own, so many at most at once.
struct Stream {
  Rank* self;
  const std::vector<Case>* cases;
  const std::vector<Bytes>* results;
  std::size_t most;
  sim::Random random;
  std::deque<Event> ended = {};
};

Task<void> run_one(Stream* stream, std::size_t index) {
  co_await run_case(stream->self, &(*stream->cases)[index], &(*stream->results)[index]);
  stream->ended[index].set();
}

Task<void> run_stream(Stream* stream) {
  Rank& self = *stream->self;
  if (self.shared) co_await self.shared->open(self.rank.stop());
  Scope scope(self.rank.loop(), self.rank.stop());
  for (std::size_t i = 0; i < stream->cases->size(); ++i) stream->ended.emplace_back(self.rank.loop());
  for (std::size_t i = 0; i < stream->cases->size(); ++i) {
    if (i >= stream->most) co_await stream->ended[i - stream->most].wait(scope.stop());
    if (stream->random.below(2) == 0) {
      const auto pause = static_cast<std::int64_t>(stream->random.below(30'000));
      co_await sleep_for(self.rank.loop(), std::chrono::nanoseconds(pause), scope.stop());
    }
    scope.spawn(run_one(stream, i));
  }
  co_await scope.join();
}

Case random_case(sim::Random& random, int size) {
  constexpr Collective kKinds[] = {Collective::kAllreduce, Collective::kAllreduce,     Collective::kAllreduce,
                                   Collective::kReduce,    Collective::kBroadcast,     Collective::kAllgather,
                                   Collective::kBarrier,   Collective::kReduceScatter, Collective::kAlltoall,
                                   Collective::kGather,    Collective::kScatter};
  constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kInt64, DType::kUInt8};
  constexpr std::size_t kCounts[] = {0, 1, 15, 200, 3'000, 9'000, 40'000, 150'000};
  Case test;
  const Collective kind = kKinds[random.below(std::size(kKinds))];
  const bool long_too = kind == Collective::kAllreduce || kind == Collective::kBroadcast;
  test.call = call_of(kind, kCounts[random.below(std::size(kCounts) - (long_too ? 0 : 3))],
                      kTypes[random.below(std::size(kTypes))], ReduceOp::kSum,
                      static_cast<int>(random.below(static_cast<std::uint64_t>(size))));
  test.memory = static_cast<Memory>(random.below(3));
  test.in_place = random.below(2) == 0;
  if (random.below(2) == 0) test.traffic = OperationTraffic::all_in(static_cast<TrafficClass>(random.below(4)));
  return test;
}

TEST_P(HierOverlap, ResultsDoNotDependOnTheOrderOfEvents) {
  for (const Placement& placement : kPlacements) {
    const int size = static_cast<int>(placement.size());
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      SCOPED_TRACE(text(placement) + ", seed " + std::to_string(seed));
      sim::Random random(seed);
      std::vector<Case> cases;
      std::vector<Bytes> results;
      for (int i = 0; i < 30; ++i) {
        cases.push_back(random_case(random, size));
        results.push_back(result_of(cases.back().call, size));
      }
      SimCluster cluster(seed, placement);
      std::deque<Rank> ranks;
      std::deque<Stream> streams;
      for (int rank = 0; rank < size; ++rank) {
        ranks.emplace_back(cluster, rank, GetParam());
        streams.push_back(
            {&ranks.back(), &cases, &results, 2 * seed, sim::Random(100 * seed + static_cast<std::uint64_t>(rank))});
        cluster.rank(rank).start(run_stream(&streams.back()));
      }
      ASSERT_TRUE(cluster.run()) << cluster.world().recent();
      for (Rank& rank : ranks) ASSERT_FALSE(rank.rank.error()) << rank.rank.error()->message();
      ASSERT_FALSE(HasFailure());
    }
  }
}

}  // namespace
}  // namespace aiacc
