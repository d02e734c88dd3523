// Stores in virtual time that a rank leaves without waiting for the others, as after a loss: what it owes them it still says.
#include <algorithm>
#include <deque>
#include <iterator>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "groupcomm/kv/store_world_test.h"

namespace aiacc::sim {
namespace {

class SimLeavingEarly : public ::testing::TestWithParam<std::tuple<Hosts, bool>> {};
INSTANTIATE_TEST_SUITE_P(Placements, SimLeavingEarly,
                         ::testing::Combine(::testing::Values(Hosts{0, 0, 0}, Hosts{0, 1, 2}, Hosts{0, 1, 0, 1}),
                                            ::testing::Bool()));

// Rank 0 has all its results, and leaves at once. The others have pushed as much, and get theirs.
TEST_P(SimLeavingEarly, WhoHasItsResultsTakesNoneOfTheOthersWithIt) {
  const auto& [hosts, workers_sum] = GetParam();
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    StoreOptions options;
    options.updater.kind = kv::UpdaterOptions::Kind::kSum;
    options.split_elements = 1000;
    options.allreduce_bytes = workers_sum ? 1 : std::numeric_limits<std::size_t>::max();
    StoreJob world(hosts, options, seed);
    const int ranks = world.job.size();
    constexpr std::size_t kSizes[] = {300'000, 7, 70'000};
    const Values ones(kSizes[0], 1.0f);
    std::deque<Values> results;
    std::vector<Operation*> of_rank_0;
    for (const std::size_t size : kSizes) world.init_all(std::to_string(size), Values(size));
    for (int round = 0; round < 3; ++round) {
      for (int rank = 0; rank < ranks; ++rank) {
        for (const std::size_t size : kSizes) {
          Order order = StoreJob::pushpull(std::to_string(size), ones, results.emplace_back(size));
          order.in_count = size;
          Operation& started = world.start(rank, std::move(order));
          if (rank == 0) of_rank_0.push_back(&started);
        }
      }
    }
    ASSERT_TRUE(world.run(seconds(100), [&] {
      return std::all_of(of_rank_0.begin(), of_rank_0.end(), [](const Operation* one) { return one->done(); });
    }));
    Task<void> leaving = world.stores[0]->say_leaving(world.job[0].stop);
    leaving.start();
    ASSERT_TRUE(world.run(seconds(2), [&] { return leaving.done(); }));
    leaving.take();
    Task<void> closing = world.stores[0]->close();
    closing.start();
    ASSERT_TRUE(world.finish(seconds(10))) << "seed " << seed;
    for (const auto& operation : world.operations)
      ASSERT_FALSE(operation->error()) << "seed " << seed << ": " << as_error(operation->error()).message();
    ASSERT_TRUE(world.run(seconds(10), [&] { return closing.done(); }));
    for (std::size_t i = 0; i < results.size(); ++i) {
      const std::size_t round = i / (static_cast<std::size_t>(ranks) * std::size(kSizes));
      ASSERT_EQ(results[i],
                Values(results[i].size(), static_cast<float>((round + 1) * static_cast<std::size_t>(ranks))));
    }
  }
}

// The only server has been asked for many long values, of which the network has taken a few when it leaves.
TEST(SimLeaving, AServerAnswersWhatItHasBeenAskedBefore) {
  for (const Hosts& hosts : {Hosts{0, 0}, Hosts{0, 1}}) {
    StoreOptions options;
    options.mode = kv::Mode::kAsync;
    options.servers = {0};
    StoreJob world(hosts, options);
    const Values value(300'000, 1.0f);
    world.init_all("w", value);
    std::deque<Values> results;
    for (int pull = 0; pull < 20; ++pull) world.start(1, StoreJob::pull("w", results.emplace_back(value.size())));
    const auto ended = [&] {
      return std::count_if(world.operations.begin(), world.operations.end(),
                           [](const auto& one) { return one->done(); });
    };
    const auto before = ended();
    ASSERT_TRUE(world.run(seconds(1), [&] { return ended() > before; }));
    ASSERT_LT(ended(), before + 10);
    Task<void> leaving = world.stores[0]->say_leaving(world.job[0].stop);
    leaving.start();
    ASSERT_TRUE(world.run(seconds(2), [&] { return leaving.done(); }));
    leaving.take();
    ASSERT_TRUE(world.finish(seconds(10)));
    for (const auto& operation : world.operations)
      ASSERT_FALSE(operation->error()) << as_error(operation->error()).message();
    for (const Values& result : results) ASSERT_EQ(result, value);
  }
}

// Starts a pull on rank 1, which needs rank 0.
Error error_of_pull(StoreJob& world) {
  Values later(10);
  const Operation& pull = world.start(1, StoreJob::pull("w", later));
  EXPECT_TRUE(world.run(seconds(1), [&] { return pull.done(); }) && pull.error());
  return pull.error() ? as_error(pull.error()) : Error(Code::kInternal, "it ended well");
}

// Rank 0 has heard of the group that it is lost itself, or that rank 1 is, which gets this message all the same.
TEST(SimLeaving, WhoTakesTheLeaverOrAnotherLivingRankForLostIsNotBelieved) {
  for (const int lost : {0, 1}) {
    StoreOptions options;
    options.mode = kv::Mode::kAsync;
    options.servers = {0};
    StoreJob world({0, 1, 2}, options);
    Values value(10, 1.0f);
    world.init_all("w", value);
    Task<void> leaving = world.stores[0]->say_leaving(world.job[0].stop, lost);
    leaving.start();
    ASSERT_TRUE(world.run(seconds(2), [&] { return leaving.done(); }));
    world.run(milliseconds(10), [] { return false; });
    const Error error = error_of_pull(world);
    EXPECT_EQ(error.code(), Code::kAborted) << error.message();
    EXPECT_EQ(error.peer(), 0) << error.message();
  }
}

// Rank 0's refusal overtakes its message, and rank 1 knows of the loss of rank 2.
TEST(SimLeaving, WhatIsRefusedAfterALossNamesTheLostRank) {
  for (const bool lost : {true, false}) {
    StoreOptions options;
    options.mode = kv::Mode::kAsync;
    options.servers = {0};
    StoreJob world({0, 1, 2}, options);
    Values value(10, 1.0f);
    world.init_all("w", value);
    Task<void> closing = world.stores[0]->close();
    closing.start();
    ASSERT_TRUE(world.run(seconds(2), [&] { return closing.done(); }));
    if (lost) {
      world.job.world.kill(world.job[2].loop.node());
      world.job[1].context->on_rank_lost(2, std::make_exception_ptr(Error(Code::kPeerFailed, "it was killed", 2)));
      ASSERT_TRUE(world.run(seconds(1), [&] { return world.stores[1]->lost_ranks() == 1; }));
    }
    const Error error = error_of_pull(world);
    EXPECT_EQ(error.code(), lost ? Code::kPeerFailed : Code::kAborted) << error.message();
    EXPECT_EQ(error.peer(), lost ? 2 : 0) << error.message();
  }
}

// Rank 1 has not heard yet that rank 2 is lost. Rank 0 has heard it in its store, or knows it of the group's last barrier.
TEST(SimLeaving, WhoLeavesAfterALossSaysWhomItHasLost) {
  for (const Hosts& hosts : {Hosts{0, 0, 0}, Hosts{0, 1, 2}}) {
    for (const bool store_knows : {true, false}) {
      StoreOptions options;
      options.mode = kv::Mode::kAsync;
      options.servers = {0};
      StoreJob world(hosts, options);
      Values value(10, 1.0f);
      world.init_all("w", value);
      world.job.world.kill(world.job[2].loop.node());
      const Error killed(Code::kPeerFailed, "it was killed", 2);
      if (store_knows) {
        world.job[0].context->on_rank_lost(2, std::make_exception_ptr(killed));
        ASSERT_TRUE(world.run(seconds(1), [&] { return world.stores[0]->lost_ranks() == 1; }));
      }
      Task<void> leaving = world.stores[0]->say_leaving(world.job[0].stop, store_knows ? kNoPeer : 2);
      leaving.start();
      ASSERT_TRUE(world.run(seconds(2), [&] { return leaving.done(); }));
      world.run(milliseconds(10), [] { return false; });
      const Error error = error_of_pull(world);
      EXPECT_EQ(error.code(), Code::kPeerFailed) << error.message();
      EXPECT_EQ(error.peer(), 2) << error.message();
      EXPECT_EQ(error.message(), "rank 2 is lost: rank 0 has freed the key-value store for that reason");
    }
  }
}

// Of workers that free the store in order, which still serve then.
class SimDone : public ::testing::TestWithParam<std::tuple<Hosts, bool>> {
 protected:
  static StoreOptions options(bool workers_sum) {
    StoreOptions options;
    options.updater.kind = kv::UpdaterOptions::Kind::kSum;
    options.split_elements = 1000;
    options.allreduce_bytes = workers_sum ? 1 : std::numeric_limits<std::size_t>::max();
    return options;
  }
  static void expect_done(const Operation& operation, int rank) {
    ASSERT_TRUE(operation.done() && operation.error());
    const Error error = as_error(operation.error());
    EXPECT_EQ(error.code(), Code::kAborted) << error.message();
    EXPECT_EQ(error.peer(), rank) << error.message();
    EXPECT_EQ(error.message(), "rank " + std::to_string(rank) +
                                   " frees the key-value store and makes no more calls: in a sync store each worker "
                                   "pushes a key equally often");
  }
};
INSTANTIATE_TEST_SUITE_P(Placements, SimDone,
                         ::testing::Combine(::testing::Values(Hosts{0, 0, 0}, Hosts{0, 1, 2}, Hosts{0, 1, 0, 1}),
                                            ::testing::Bool()));

// Some of the others have begun their push before they can know of it, and some begin it later. None has a time-out.
TEST_P(SimDone, AWorkerThatHasPushedLessOftenIsNamed) {
  const auto& [hosts, workers_sum] = GetParam();
  for (const std::size_t size : {std::size_t{7}, std::size_t{70'000}}) {
    for (const int done : {0, 1}) {
      StoreJob world(hosts, options(workers_sum));
      const int ranks = world.job.size(), last = ranks - 1;
      const Values ones(size, 1.0f);
      std::deque<Values> results;
      world.init_all("w", Values(size));
      for (int rank = 0; rank < ranks; ++rank)
        world.start(rank, StoreJob::pushpull("w", ones, results.emplace_back(size)));
      ASSERT_TRUE(world.finish());
      std::vector<const Operation*> refused;
      for (int rank = 0; rank < last; ++rank) {
        if (rank != done)
          refused.push_back(&world.start(rank, StoreJob::pushpull("w", ones, results.emplace_back(size))));
      }
      world.run(milliseconds(10), [] { return false; });
      world.stores[static_cast<std::size_t>(done)]->say_done();
      world.run(milliseconds(10), [] { return false; });
      refused.push_back(&world.start(last, StoreJob::push("w", ones)));
      ASSERT_TRUE(world.finish(seconds(1)));
      for (const Operation* const one : refused) expect_done(*one, done);
      Values& value = results.emplace_back(size);
      const Operation& pull = world.start(done, StoreJob::pull("w", value));
      ASSERT_TRUE(world.finish(seconds(1)));
      EXPECT_FALSE(pull.error());
      EXPECT_EQ(value, Values(size, static_cast<float>(ranks)));
    }
  }
}

// It says so while its last pushes are outstanding. What they are for ends well on all ranks, and so do pulls.
TEST_P(SimDone, WhatAWorkerHasPushedBeforeCounts) {
  const auto& [hosts, workers_sum] = GetParam();
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    StoreJob world(hosts, options(workers_sum), seed);
    const int ranks = world.job.size();
    constexpr int kRounds = 3;
    constexpr std::size_t kSizes[] = {300'000, 7, 70'000};
    const Values ones(kSizes[0], 1.0f);
    std::deque<Values> results;
    for (const std::size_t size : kSizes) world.init_all(std::to_string(size), Values(size));
    const auto begin = [&](int rank) {
      for (int round = 0; round < kRounds; ++round) {
        for (const std::size_t size : kSizes) {
          Order order = StoreJob::pushpull(std::to_string(size), ones, results.emplace_back(size));
          order.in_count = size;
          world.start(rank, std::move(order));
        }
      }
      world.run(std::chrono::microseconds(seed * 10), [] { return false; });
      world.stores[static_cast<std::size_t>(rank)]->say_done();
    };
    for (int rank = ranks - 1; rank >= 0; --rank) begin(rank);
    ASSERT_TRUE(world.finish(seconds(10))) << "seed " << seed;
    for (const auto& operation : world.operations)
      ASSERT_FALSE(operation->error()) << "seed " << seed << ": " << as_error(operation->error()).message();
    for (std::size_t i = 0; i < results.size(); ++i) {
      const std::size_t round = i / std::size(kSizes) % kRounds;
      ASSERT_EQ(results[i],
                Values(results[i].size(), static_cast<float>((round + 1) * static_cast<std::size_t>(ranks))));
    }
  }
}

TEST_P(SimDone, TheFirstWorkerThatBeginsNoKeyIsNamed) {
  const auto& [hosts, workers_sum] = GetParam();
  StoreJob world(hosts, options(workers_sum));
  const Values value(10);
  const Operation& early = world.start(1, StoreJob::init("w", value));
  world.run(milliseconds(10), [] { return false; });
  world.stores[0]->say_done();
  world.run(milliseconds(10), [] { return false; });
  const Operation& late = world.start(2, StoreJob::init("w", value));
  ASSERT_TRUE(world.finish(seconds(1)));
  expect_done(early, 0);
  expect_done(late, 0);
}

}  // namespace
}  // namespace aiacc::sim
