// Rounds that workers sum themselves, among others that servers sum: values, deaths and deadlines in virtual time.
#include <deque>
#include <numeric>
#include <random>

#include "groupcomm/kv/store_world_test.h"

namespace aiacc::sim {
namespace {

class SimTogether : public ::testing::TestWithParam<Hosts> {};
INSTANTIATE_TEST_SUITE_P(Placements, SimTogether,
                         ::testing::Values(Hosts{0, 0}, Hosts{0, 1}, Hosts{0, 0, 0}, Hosts{0, 1, 2, 0}));

StoreOptions all_long() {
  StoreOptions options;
  options.allreduce_bytes = 1;
  options.split_elements = 1000;
  return options;
}

struct Read {
  Values value;
  float want;
};

// Each worker gives its steps at once, of the keys in an order of its own, each as a pushpull or as a push and a pull.
void run_steps(StoreJob& world, std::span<const int> workers, std::uint32_t seed) {
  std::mt19937 random(seed);
  const std::uint32_t splits = seed % 3;  // of three steps, how many are a push and a pull
  const std::vector<std::size_t> sizes{1, 70, 5000, 300'000};
  for (const int rank : workers) {
    for (const std::size_t size : sizes) {
      static const Values kZeros(300'000);
      Order init = StoreJob::init(kv::key_of(static_cast<std::int64_t>(size)), kZeros);
      init.shape.rows = size;
      world.start(rank, std::move(init));
    }
  }
  ASSERT_TRUE(world.finish());
  std::deque<Values> gradients;
  std::deque<Read> reads;
  for (int step = 0; step < 4; ++step) {
    float want = 0;
    for (const int rank : workers) want += static_cast<float>(rank + 1 + step);
    for (const int rank : workers) {
      std::vector<std::size_t> shuffled = sizes;
      std::shuffle(shuffled.begin(), shuffled.end(), random);
      for (const std::size_t size : shuffled) {
        const std::string key = kv::key_of(static_cast<std::int64_t>(size));
        gradients.emplace_back(size, static_cast<float>(rank + 1 + step));
        reads.push_back({Values(size, -1.0f), want});
        const int priority = static_cast<int>(random() % 5);
        const auto start = [&](Order order) {
          order.priority = priority;
          world.start(rank, std::move(order));
        };
        if (random() % 3 >= splits) {
          start(StoreJob::pushpull(key, gradients.back(), reads.back().value));
          reads.push_back({Values(size, -1.0f), want});
          start(StoreJob::pull(key, reads.back().value));
        } else {
          start(StoreJob::push(key, gradients.back()));
          start(StoreJob::pull(key, reads.back().value));
        }
      }
    }
  }
  ASSERT_TRUE(world.finish());
  for (const auto& operation : world.operations)
    ASSERT_FALSE(operation->error()) << as_error(operation->error()).message();
  for (const Read& read : reads) ASSERT_EQ(read.value, Values(read.value.size(), read.want)) << "seed " << seed;
}

TEST_P(SimTogether, PullsSeeTheRoundsThatTheyFollowWhoeverSummedThem) {
  for (std::uint32_t seed = 1; seed <= 12; ++seed) {
    StoreJob world(GetParam(), all_long(), seed);
    std::vector<int> workers(GetParam().size());
    std::iota(workers.begin(), workers.end(), 0);
    const std::uint64_t before = world.job[0].context->world().collectives();
    run_steps(world, workers, seed);
    if (seed % 3 == 0) {
      EXPECT_EQ(world.job[0].context->world().collectives() - before, 16u) << "an allreduce for each key and step";
    }
  }
}

TEST_P(SimTogether, OneServerGetsTheSums) {
  for (std::uint32_t seed = 1; seed <= 6; ++seed) {
    StoreOptions options = all_long();
    options.servers = {static_cast<int>(GetParam().size()) - 1};
    StoreJob world(GetParam(), options, seed);
    std::vector<int> workers(GetParam().size());
    std::iota(workers.begin(), workers.end(), 0);
    run_steps(world, workers, seed);
  }
}

// The allreduces are those of a group that is not the world.
TEST_P(SimTogether, WorkersMayBeSomeRanks) {
  const int ranks = static_cast<int>(GetParam().size());
  if (ranks < 3) return;
  for (std::uint32_t seed = 1; seed <= 6; ++seed) {
    for (const int left_out : {0, ranks - 1}) {
      StoreOptions options = all_long();
      for (int rank = 0; rank < ranks; ++rank) {
        if (rank != left_out) options.workers.push_back(rank);
      }
      if (seed % 2 == 0) options.servers = {left_out};
      StoreJob world(GetParam(), options, seed);
      run_steps(world, options.workers, seed);
      if (seed % 3 == 0) {
        EXPECT_EQ(world.groups.at(options.workers[0])->collectives(), 16u) << "an allreduce for each key and step";
      }
    }
  }
}

TEST_P(SimTogether, ShortValuesAndOptimizersAreSummedByServers) {
  StoreOptions options = all_long();
  options.allreduce_bytes = 41;
  StoreJob world(GetParam(), options);
  Values gradient(10, 1.0f), out(10);
  world.init_all("skey", gradient);
  const std::uint64_t before = world.job[0].context->world().collectives();
  for (int rank = 0; rank < world.job.size(); ++rank)
    world.start(rank, StoreJob::pushpull("skey", gradient, world.job[rank].data.emplace_back(10)));
  ASSERT_TRUE(world.finish());
  options.updater.kind = kv::UpdaterOptions::Kind::kSum;
  options.allreduce_bytes = 1;
  EXPECT_EQ(world.job[0].context->world().collectives(), before);
  StoreJob sums(GetParam(), options);
  sums.init_all("skey", gradient);
  for (int rank = 0; rank < sums.job.size(); ++rank)
    sums.start(rank, StoreJob::pushpull("skey", gradient, sums.job[rank].data.emplace_back(10)));
  ASSERT_TRUE(sums.finish());
  EXPECT_EQ(sums.job[0].data.front(), Values(10, 1.0f + static_cast<float>(sums.job.size())));
  EXPECT_EQ(sums.job[0].context->world().collectives(), before);
}

TEST_P(SimTogether, SurvivorsNameTheDead) {
  const int ranks = static_cast<int>(GetParam().size()), dead = ranks - 1;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    StoreJob world(GetParam(), all_long(), seed);
    const Values gradient(100'000, 1.0f);
    world.init_all("skey", gradient);
    world.operations.clear();
    std::deque<Values> outs;
    std::vector<Operation*> of_living;
    for (int step = 0; step < 5; ++step) {
      for (int rank = 0; rank < ranks; ++rank) {
        Operation& one = world.start(rank, StoreJob::pushpull("skey", gradient, outs.emplace_back(100'000)));
        if (rank != dead) of_living.push_back(&one);
      }
    }
    const Instant when = world.job.world.now() + std::chrono::microseconds(20 * seed);
    world.job.world.at(when, [&] { world.job.world.kill(world.job[dead].loop.node()); });
    for (int rank = 0; rank < dead; ++rank) {
      world.job.world.at(when + milliseconds(1), [&world, rank, dead] {
        world.job[rank].context->on_rank_lost(dead,
                                              std::make_exception_ptr(Error(Code::kPeerFailed, "it was killed", dead)));
      });
    }
    const auto all_done = [&] {
      return std::all_of(of_living.begin(), of_living.end(), [](Operation* one) { return one->done(); });
    };
    ASSERT_TRUE(world.run(seconds(20), all_done)) << "seed " << seed;
    of_living = {&world.start(0, StoreJob::pushpull("skey", gradient, outs.emplace_back(100'000)))};
    ASSERT_TRUE(world.run(seconds(20), all_done)) << "seed " << seed;
    for (const auto& operation : world.operations) {
      if (!operation->done() || !operation->error()) continue;
      const Error error = as_error(operation->error());
      EXPECT_EQ(error.code(), Code::kPeerFailed) << error.message();
      EXPECT_EQ(error.peer(), dead) << error.message();
    }
    EXPECT_TRUE(of_living[0]->error());
    world.run(milliseconds(5), [] { return false; });
  }
}

// Whenever it ends in relation to the others' calls, nothing hangs, and who got a sum got the right one.
TEST_P(SimTogether, APushThatEndsByItsDeadlineHangsNobody) {
  const int ranks = static_cast<int>(GetParam().size());
  for (int late_us = 0; late_us < 300; late_us += 7) {
    StoreJob world(GetParam(), all_long());
    const Values gradient(5000, 1.0f);
    world.init_all("skey", gradient);
    world.operations.clear();
    std::deque<Values> outs;
    for (int rank = 0; rank < ranks; ++rank) {
      Order order = StoreJob::pushpull("skey", gradient, outs.emplace_back(5000));
      order.timeout = rank == 0 ? Duration(std::chrono::microseconds(200)) : milliseconds(50);
      if (rank == ranks - 1) world.run(std::chrono::microseconds(late_us), [] { return false; });
      world.start(rank, std::move(order));
    }
    ASSERT_TRUE(world.finish(seconds(10))) << late_us;
    for (int rank = 0; rank < ranks; ++rank) {
      const auto& operation = world.operations[static_cast<std::size_t>(rank)];
      if (!operation->error()) {
        EXPECT_EQ(outs[static_cast<std::size_t>(rank)], Values(5000, static_cast<float>(ranks)));
        continue;
      }
      const Code code = as_error(operation->error()).code();
      EXPECT_TRUE(code == Code::kTimeout || code == Code::kAborted) << as_error(operation->error()).message();
    }
    const bool failed = world.operations[0]->error() != nullptr;
    Operation& later = world.start(0, StoreJob::pull("skey", outs.front()));
    ASSERT_TRUE(world.finish(seconds(10)));
    if (failed) {
      EXPECT_EQ(as_error(later.error()).code(), Code::kAborted) << "nobody knows what the key has now";
    }
  }
}

}  // namespace
}  // namespace aiacc::sim
