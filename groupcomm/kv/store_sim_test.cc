// Stores in virtual time, on ranks of one host and of several: values against a sequential model, deaths, and bad input.
#include <numeric>
#include <random>

#include "groupcomm/kv/store_world_test.h"

namespace aiacc::sim {
namespace {

class SimStores : public ::testing::TestWithParam<Hosts> {};
INSTANTIATE_TEST_SUITE_P(Placements, SimStores,
                         ::testing::Values(Hosts{0}, Hosts{0, 0}, Hosts{0, 1}, Hosts{0, 0, 0}, Hosts{0, 1, 2, 0}));

// Several steps are given at once, without waiting: what each pull sees is the value after as many rounds as were pushed before it.
TEST_P(SimStores, RoundsAreExactWithoutAnyWaiting) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    StoreOptions options;
    options.split_elements = 1000;
    options.updater.kind = kv::UpdaterOptions::Kind::kSum;
    StoreJob world(GetParam(), options, seed);
    std::mt19937 random(static_cast<std::uint32_t>(seed));
    const int ranks = world.job.size(), steps = 4;
    const std::vector<std::size_t> sizes{1, 70, 999, 5000, 0, 300'000};
    for (const std::size_t size : sizes)
      world.init_all(kv::key_of(static_cast<std::int64_t>(size)), Values(size, 1.0f));
    std::deque<Values> gradients;
    struct Read {
      Values value;
      float want;
    };
    std::deque<Read> reads;
    float want = 1;
    for (int step = 0; step < steps; ++step) {
      for (int rank = 0; rank < ranks; ++rank) want += static_cast<float>(rank + 1 + step);
      std::vector<int> order(static_cast<std::size_t>(ranks));
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), random);
      for (const int rank : order) {
        std::vector<std::size_t> shuffled = sizes;
        std::shuffle(shuffled.begin(), shuffled.end(), random);
        for (const std::size_t size : shuffled) {
          const std::string key = kv::key_of(static_cast<std::int64_t>(size));
          gradients.emplace_back(size, static_cast<float>(rank + 1 + step));
          reads.push_back({Values(size, -1.0f), want});
          Order push = StoreJob::push(key, gradients.back()), pull = StoreJob::pull(key, reads.back().value);
          push.priority = pull.priority = static_cast<int>(random() % 5);
          if (random() % 2 == 0) {
            push.what = What::kPushPull;
            push.out = pull.out;
            push.out_count = pull.out_count;
            world.start(rank, std::move(push));
          } else {
            world.start(rank, std::move(push));
            pull.priority += 3;  // it does not overtake its push
            world.start(rank, std::move(pull));
          }
        }
      }
    }
    ASSERT_TRUE(world.finish());
    for (const auto& operation : world.operations)
      ASSERT_FALSE(operation->error()) << as_error(operation->error()).message();
    for (const Read& read : reads) ASSERT_EQ(read.value, Values(read.value.size(), read.want)) << "seed " << seed;
  }
}

TEST_P(SimStores, AnotherShapeIsToldToWhoHasIt) {
  StoreJob world(GetParam());
  const int last = world.job.size() - 1;
  if (last == 0) return;
  const Values value(10, 1.0f), other(11, 1.0f);
  for (int rank = 0; rank < last; ++rank) world.start(rank, StoreJob::init("skey", value));
  Operation& its = world.start(last, StoreJob::init("skey", other));
  ASSERT_TRUE(world.finish());
  ASSERT_TRUE(its.error());
  const Error error = as_error(its.error());
  EXPECT_EQ(error.code(), Code::kMismatch);
  EXPECT_EQ(error.message(), "key 'key' is 10 fp32 on rank 0, and 11 fp32 on rank " + std::to_string(last));
  EXPECT_EQ(std::count_if(world.operations.begin(), world.operations.end(),
                          [](auto& one) { return one->error() != nullptr; }),
            1);
}

TEST_P(SimStores, ATypeThatTheOptimizerDoesNotServeIsToldToAllWorkers) {
  StoreOptions options;
  options.updater.kind = kv::UpdaterOptions::Kind::kSgd;
  StoreJob world(GetParam(), options);
  const Values value(10);
  for (int rank = 0; rank < world.job.size(); ++rank) {
    Order order = StoreJob::init("skey", value);
    order.shape.type = DType::kInt32;
    world.start(rank, std::move(order));
  }
  ASSERT_TRUE(world.finish());
  for (const auto& one : world.operations) {
    EXPECT_EQ(as_error(one->error()).code(), Code::kUnsupported);
    EXPECT_EQ(as_error(one->error()).message(), "key 'key' is int32: the store's optimizer is for fp32 and fp64");
  }
}

TEST_P(SimStores, AKeyThatNobodyInitialisedAndAWrongCountAreRefused) {
  StoreJob world(GetParam());
  Values value(10, 1.0f), longer(11, 1.0f);
  Operation& unknown = world.start(0, StoreJob::push("sother", value));
  ASSERT_TRUE(world.finish());
  EXPECT_NE(as_error(unknown.error()).message().find("key 'other' was not initialised on rank 0"), std::string::npos);
  world.operations.clear();
  world.init_all("skey", value);
  Operation& wrong = world.start(0, StoreJob::pull("skey", longer));
  Operation& again = world.start(0, StoreJob::init("skey", value));
  ASSERT_TRUE(world.finish());
  EXPECT_EQ(as_error(wrong.error()).code(), Code::kInvalidArgument);
  EXPECT_EQ(as_error(again.error()).code(), Code::kInvalidState);
}

TEST_P(SimStores, APushThatOthersDoNotMakeEndsByItsDeadline) {
  StoreJob world(GetParam());
  if (world.job.size() == 1) return;
  Values value(10, 1.0f);
  world.init_all("skey", value);
  Order order = StoreJob::push("skey", value);
  order.timeout = milliseconds(50);
  Operation& alone = world.start(0, std::move(order));
  ASSERT_TRUE(world.finish());
  EXPECT_EQ(as_error(alone.error()).code(), Code::kTimeout);
  Operation& later = world.start(0, StoreJob::pull("skey", value));
  ASSERT_TRUE(world.finish());
  EXPECT_EQ(as_error(later.error()).code(), Code::kAborted) << "nobody knows what the key has now";
}

// At any moment: survivors' operations end, well or with the name of the dead, and all that needs the dead fails afterwards.
TEST_P(SimStores, SurvivorsNameTheDead) {
  const int ranks = static_cast<int>(GetParam().size());
  if (ranks == 1) return;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    for (const kv::Mode mode : {kv::Mode::kSync, kv::Mode::kAsync}) {
      StoreOptions options;
      options.mode = mode;
      options.split_elements = 1000;
      StoreJob world(GetParam(), options, seed);
      Values value(100'000, 1.0f), read(100'000);
      world.init_all("skey", value);
      world.operations.clear();
      const int dead = ranks - 1;
      std::vector<Operation*> of_living;
      for (int step = 0; step < 5; ++step) {
        for (int rank = 0; rank < ranks; ++rank) {
          Operation& push = world.start(rank, StoreJob::push("skey", value));
          if (rank != dead) of_living.push_back(&push);
        }
      }
      const Instant when = world.job.world.now() + std::chrono::microseconds(20 * seed);
      world.job.world.at(when, [&] { world.job.world.kill(world.job[dead].loop.node()); });
      for (int rank = 0; rank < dead; ++rank) {
        world.job.world.at(when + milliseconds(1), [&world, rank, dead] {
          world.job[rank].context->on_rank_lost(
              dead, std::make_exception_ptr(Error(Code::kPeerFailed, "it was killed", dead)));
        });
      }
      const auto all_done = [&] {
        return std::all_of(of_living.begin(), of_living.end(), [](Operation* one) { return one->done(); });
      };
      ASSERT_TRUE(world.run(seconds(10), all_done)) << "seed " << seed;
      world.run(milliseconds(5), [] { return false; });
      of_living = {&world.start(0, StoreJob::push("skey", value))};
      ASSERT_TRUE(world.run(seconds(10), all_done));
      for (const auto& operation : world.operations) {
        if (!operation->done() || !operation->error()) continue;
        const Error error = as_error(operation->error());
        EXPECT_EQ(error.code(), Code::kPeerFailed) << error.message();
        EXPECT_EQ(error.peer(), dead) << error.message();
      }
      EXPECT_TRUE(of_living[0]->error()) << "a part of the key was with the dead";
      world.run(milliseconds(5), [] { return false; });
    }
  }
}

// Keys of the living stay usable: of an async store for pushes too, of a sync one for what was summed before.
TEST_P(SimStores, WhatDoesNotNeedTheDeadGoesOn) {
  const int ranks = static_cast<int>(GetParam().size()), dead = ranks - 1;
  if (ranks == 1) return;
  for (const kv::Mode mode : {kv::Mode::kSync, kv::Mode::kAsync, kv::Mode::kBounded}) {
    StoreOptions options;
    options.mode = mode;
    options.staleness = 100;
    options.updater.kind = kv::UpdaterOptions::Kind::kSum;
    StoreJob world(GetParam(), options);
    const Values one(3, 1.0f);
    for (std::int64_t key = 0; key < 10; ++key) world.init_all(kv::key_of(key), one);
    world.operations.clear();
    world.job.world.kill(world.job[dead].loop.node());
    const Error why(Code::kPeerFailed, "it was killed", dead);
    for (int rank = 0; rank < dead; ++rank) world.job[rank].context->on_rank_lost(dead, std::make_exception_ptr(why));
    std::deque<Values> read;
    for (std::int64_t key = 0; key < 10; ++key) {
      const bool lost = kv::home_of(kv::key_of(key), ranks) == dead;
      Operation& before = world.start(0, StoreJob::pull(kv::key_of(key), read.emplace_back(3)));
      Operation& push = world.start(0, StoreJob::push(kv::key_of(key), one));
      ASSERT_TRUE(world.finish(seconds(10)));
      EXPECT_EQ(before.error() != nullptr, lost) << key;
      EXPECT_EQ(push.error() != nullptr, lost || mode == kv::Mode::kSync) << key;
      for (Operation* each : {&before, &push}) EXPECT_EQ(each->error() ? as_error(each->error()).peer() : dead, dead);
      if (lost) continue;
      EXPECT_EQ(read.back(), one);
      Operation& after = world.start(0, StoreJob::pull(kv::key_of(key), read.emplace_back(3)));
      ASSERT_TRUE(world.finish(seconds(10)));
      ASSERT_FALSE(after.error());
      EXPECT_EQ(read.back(), Values(3, mode == kv::Mode::kSync ? 1.0f : 2.0f));
    }
  }
}

// A store in async mode without replicas whose servers do not work; one of them is lost, or a worker.
struct AsyncStore : StoreJob {
  AsyncStore() : StoreJob({0, 0, 1, 0}, given()) {}
  static StoreOptions given() {
    StoreOptions options;
    options.mode = kv::Mode::kAsync;
    options.split_elements = 100;
    options.updater.kind = kv::UpdaterOptions::Kind::kSum;
    options.servers = {0, 1};
    options.workers = {2, 3};
    return options;
  }
  // The rank that its error names; -1: it has ended well.
  int outcome(Operation& operation) {
    EXPECT_TRUE(run(seconds(10), [&] { return operation.done(); }));
    if (!operation.error()) return -1;
    const Error error = as_error(operation.error());
    EXPECT_EQ(error.code(), Code::kPeerFailed) << error.message();
    return error.peer();
  }
};

TEST(SimAsyncStores, RowsOfOtherServersThanTheDeadOneArePushedAndPulled) {
  for (const int dead : {0, 1}) {
    AsyncStore world;
    const Values ones(300, 1.0f), gradient(1, 2.0f);
    for (const int worker : {2, 3}) world.start(worker, StoreJob::init("skey", ones));
    ASSERT_TRUE(world.finish());
    world.die(dead);
    const int home = kv::home_of("skey", 2);
    for (const std::uint64_t row : {0, 299}) {
      const int needs = row == 0 ? home : 1 - home;
      Values out(1, -1.0f);
      Order push = StoreJob::push("skey", gradient), pull = StoreJob::pull("skey", out);
      push.some_in = pull.some_out = true;
      push.in_rows = pull.out_rows = {row};
      EXPECT_EQ(world.outcome(world.start(2, std::move(push))), needs == dead ? dead : -1);
      EXPECT_EQ(world.outcome(world.start(3, std::move(pull))), needs == dead ? dead : -1);
      EXPECT_EQ(out[0], needs == dead ? -1.0f : 3.0f);
    }
  }
}

TEST(SimAsyncStores, AKeyBeginsAfterALossUnlessItNeedsTheDead) {
  const Values shorter(3, 1.0f), longer(300, 1.0f);
  for (const int dead : {0, 1, 2, 3}) {
    AsyncStore world;
    world.die(dead);
    for (std::int64_t number = 0; number < 6; ++number) {
      const std::string key = kv::key_of(number);
      const bool split = number % 2 == 1;
      const bool needs = dead == 2 || (dead < 2 && (split || kv::home_of(key, 2) == dead));
      std::vector<Operation*> inits;
      for (const int worker : {3, 2}) {
        if (worker != dead) inits.push_back(&world.start(worker, StoreJob::init(key, split ? longer : shorter)));
      }
      for (Operation* const one : inits)
        EXPECT_EQ(world.outcome(*one), needs ? dead : -1) << key << " after the loss of " << dead;
    }
  }
}

// Of what waits to be sent the higher priority goes first; what is on its way already does not come back.
TEST(SimStorePriorities, UrgentPushesOvertakeLongOnesAndPatientOnesDoNot) {
  for (const int priority : {5, -5}) {
    StoreOptions options;
    options.servers = {0};
    options.workers = {1};
    StoreJob world({0, 1}, options);
    const Values longer(1 << 20, 1.0f), shorter(10, 1.0f);
    std::vector<Operation*> pushes;
    for (const std::string key : {"sone", "stwo", "sthree", "sother"}) {
      world.start(1, StoreJob::init(key, key == "sother" ? shorter : longer));
      ASSERT_TRUE(world.finish());
    }
    for (const std::string key : {"sone", "stwo", "sthree", "sother"}) {
      Order push = StoreJob::push(key, key == "sother" ? shorter : longer);
      if (key == "sother") push.priority = priority;
      pushes.push_back(&world.start(1, std::move(push)));
    }
    ASSERT_TRUE(world.run(seconds(10), [&] { return pushes.back()->done(); }));
    for (const int at : {1, 2}) EXPECT_EQ(pushes[static_cast<std::size_t>(at)]->done(), priority < 0);
    ASSERT_TRUE(world.finish());
    for (const Operation* push : pushes) EXPECT_FALSE(push->error());
  }
}

}  // namespace
}  // namespace aiacc::sim
