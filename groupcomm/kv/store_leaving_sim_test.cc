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

}  // namespace
}  // namespace aiacc::sim
