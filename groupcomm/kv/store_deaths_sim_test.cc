// Stores with replicas whose servers die one by one: what replicas remember, what is copied anew, and what is said of it.
#include <algorithm>
#include <deque>
#include <set>

#include "groupcomm/kv/layout.h"
#include "groupcomm/kv/store_world_test.h"

namespace aiacc::sim {
namespace {

using std::chrono::microseconds;

struct Dying : StoreJob {
  // Ranks 0 to servers - 1 serve, and two others work.
  Dying(int servers, StoreOptions options)
      : StoreJob(Hosts(static_cast<std::size_t>(servers) + 2), with(servers, options)) {}
  static StoreOptions with(int servers, StoreOptions options) {
    options.replicas = 2;
    for (int rank = 0; rank < servers; ++rank) options.servers.push_back(rank);
    options.workers = {servers, servers + 1};
    return options;
  }
  void die(int rank) {
    job.world.kill(job[rank].loop.node());
    const Error why(Code::kPeerFailed, "it was killed", rank);
    for (int told = 0; told < job.size(); ++told) {
      if (!job[told].loop.dead()) job[told].context->on_rank_lost(rank, std::make_exception_ptr(why));
    }
  }
  // Of both workers.
  void start_both(const std::function<Order()>& order) {
    for (int rank = job.size() - 2; rank < job.size(); ++rank) start(rank, order());
  }
};

// Six rounds, the last three without server 0 if it dies, while a round is under way.
Values after_rounds(StoreOptions options, bool rows, bool dies) {
  options.split_elements = 100;
  Dying world(2, options);
  const Values zeros(300), gradient(300, 0.25f);
  Values out(300, -1.0f);
  world.start_both([&] { return StoreJob::init("skey", zeros); });
  EXPECT_TRUE(world.finish());
  for (int round = 0; round < 6; ++round) {
    const auto push = [&] {
      Order order = StoreJob::push("skey", gradient);
      order.some_in = rows;
      if (rows) order.in_rows = {1, 299, static_cast<std::uint64_t>(round)};
      return order;
    };
    world.start(2, push());
    if (round == 3 && dies) {
      world.run(microseconds(30), [] { return false; });
      world.die(0);
    }
    world.start(3, push());
    EXPECT_TRUE(world.finish());
  }
  world.start(3, StoreJob::pull("skey", out));
  EXPECT_TRUE(world.finish());
  for (const auto& one : world.operations) EXPECT_FALSE(one->error()) << as_error(one->error()).message();
  return out;
}

TEST(SimDeaths, AReplicaHasWhatUpdatersAndSendersRemember) {
  for (const auto kind : {kv::UpdaterOptions::Kind::kSgd, kv::UpdaterOptions::Kind::kAdam}) {
    for (const bool rows : {false, true}) {
      StoreOptions options;
      options.updater.kind = kind;
      options.updater.momentum = 0.5;
      EXPECT_EQ(after_rounds(options, rows, true), after_rounds(options, rows, false));
    }
  }
  StoreOptions options;
  options.updater.kind = kv::UpdaterOptions::Kind::kSum;
  options.encoding = kv::Encoding::kTwoBit;
  EXPECT_EQ(after_rounds(options, false, true), Values(300, 3.0f)) << "every second push of each worker is 0.5";
}

// An updater that gives other results at each call.
TEST(SimDeaths, AReplicaTakesTheResultOfACallback) {
  StoreOptions options;
  options.updater.kind = kv::UpdaterOptions::Kind::kCallback;
  int calls = 0;
  options.updater.arg = &calls;
  options.updater.function = [](void* arg, std::string_view, std::uint64_t, std::size_t count, DType, const void*,
                                void* value) {
    std::fill_n(static_cast<float*>(value), count, static_cast<float>(++*static_cast<int*>(arg)));
    return 0;
  };
  Dying world(2, options);
  const Values gradient(3, 1.0f);
  for (const std::string key : {"sone", "stwo", "sthree"}) {
    world.start_both([&] { return StoreJob::init(key, gradient); });
    ASSERT_TRUE(world.finish());
    world.start_both([&] { return StoreJob::push(key, gradient); });
    ASSERT_TRUE(world.finish());
  }
  world.die(0);
  std::set<float> read;
  for (const std::string key : {"sone", "stwo", "sthree"}) {
    Values out(3);
    world.start(2, StoreJob::pull(key, out));
    ASSERT_TRUE(world.finish());
    read.insert(out[0]);
  }
  EXPECT_EQ(read, (std::set<float>{1, 2, 3}));
  EXPECT_EQ(calls, 3);
}

struct Reported : Dying {
  explicit Reported(int servers) : Dying(servers, {}) {
    for (std::int64_t key = 0; key < 20; ++key) {
      start_both([&] { return StoreJob::init(kv::key_of(key), value); });
      if (kv::home_of(kv::key_of(key), servers) == 1) key_of_first = kv::key_of(key);
    }
    EXPECT_TRUE(finish());
    EXPECT_FALSE(key_of_first.empty());
  }
  // Of a worker, from server 1 or who goes on for it; null if it ends well.
  std::exception_ptr pull() {
    Values out(3);
    start(job.size() - 2, StoreJob::pull(key_of_first, out));
    EXPECT_TRUE(finish(seconds(10)));
    EXPECT_TRUE(operations.back()->error() || out == value);
    return operations.back()->error();
  }
  void die_and_copy(int rank) {
    die(rank);
    run(milliseconds(5), [] { return false; });
  }
  Values value = Values(3, 1.0f);
  std::string key_of_first;
};

TEST(SimDeaths, AfterEachDeathTheLivingCopyAnewUntilOneIsLeft) {
  Reported world(4);
  using Said = std::vector<std::string>;
  const std::string the = "the key-value store ";
  world.die_and_copy(1);
  EXPECT_EQ(world.reports[0],
            (Said{the + "goes on without rank 1: rank 2 serves its values, which have one replica now, as "
                        "have those of rank 0",
                  the + "has two replicas again of what rank 0 serves: the other one is on rank 2"}));
  EXPECT_EQ(world.reports[2], (Said{the + "has two replicas again of what rank 2 serves: the other one is on rank 3"}));
  EXPECT_FALSE(world.pull());
  world.die_and_copy(2);
  EXPECT_EQ(world.reports[3], (Said{the + "has two replicas again of what rank 3 serves: the other one is on rank 0"}));
  EXPECT_FALSE(world.pull());
  world.die_and_copy(3);
  EXPECT_EQ(world.reports[0].back(),
            the + "goes on without rank 3: rank 0 serves its values, which have one replica now");
  EXPECT_FALSE(world.pull());
}

TEST(SimDeaths, NeighboursThatDieAtOnceAreNamedWithWhatTheyHad) {
  Reported world(4);
  world.die(1);
  world.die(2);
  EXPECT_EQ(world.reports[3],
            (std::vector<std::string>{"the key-value store has lost values of rank 1: rank 3 goes on with "
                                      "what it had of them"}));
  const std::exception_ptr error = world.pull();
  ASSERT_TRUE(error);
  EXPECT_EQ(as_error(error).code(), Code::kPeerFailed);
  EXPECT_EQ(as_error(error).peer(), 2);
}

// Of a value of many parts the first that are copied come before the source dies, and the others are lost.
TEST(SimDeaths, ASourceThatDiesWhileItCopiesLosesTheRest) {
  StoreOptions options;
  options.split_elements = 1 << 30;
  std::size_t lost = 0, kept = 0;
  for (const int us : {0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 300, 1000, 5000}) {
    Dying world(3, options);
    const Values value(1 << 20, 1.0f);  // 8 parts, on one server
    Values out(value.size());
    world.start_both([&] { return StoreJob::init("skey", value); });
    ASSERT_TRUE(world.finish());
    const int home = kv::home_of("skey", 3);
    world.die((home + 1) % 3);
    world.run(microseconds(us), [] { return false; });
    world.die(home);
    world.start(3, StoreJob::pull("skey", out));
    ASSERT_TRUE(world.finish(seconds(10)));
    const bool failed = world.operations.back()->error() != nullptr;
    ++(failed ? lost : kept);
    EXPECT_TRUE(failed || out == value);
    const auto& said = world.reports[static_cast<std::size_t>((home + 2) % 3)];
    EXPECT_EQ(failed, std::any_of(said.begin(), said.end(), [](const std::string& sentence) {
                return sentence.find("has lost values") != std::string::npos;
              }));
  }
  EXPECT_GT(lost, 0u);
  EXPECT_GT(kept, 0u);
}

// The second copy is made anew while one worker has pushed, and its server dies before the other one does.
TEST(SimDeaths, APushThatWaitsForItsRoundIsInNoCopy) {
  StoreOptions options;
  options.updater.kind = kv::UpdaterOptions::Kind::kSum;
  Dying world(3, options);
  const Values zeros(3), ones(3, 1.0f);
  Values out(3);
  world.start_both([&] { return StoreJob::init("skey", zeros); });
  ASSERT_TRUE(world.finish());
  const int home = kv::home_of("skey", 3);
  for (const int worker : {3, 4}) {
    world.start(worker, StoreJob::push("skey", ones));
    if (worker == 4) break;
    world.run(milliseconds(5), [] { return false; });
    world.die((home + 1) % 3);
    world.run(milliseconds(5), [] { return false; });
    world.die(home);
    world.run(milliseconds(5), [] { return false; });
  }
  ASSERT_TRUE(world.finish());
  world.start(3, StoreJob::pull("skey", out));
  ASSERT_TRUE(world.finish());
  for (const auto& one : world.operations) EXPECT_FALSE(one->error()) << as_error(one->error()).message();
  EXPECT_EQ(out, Values(3, 2.0f));
}

// The updater has refused the push when the copy is made anew, and who asks again after the next death hears so, too.
TEST(SimDeaths, ACopyThatIsMadeAnewKnowsWhichPushesHaveFailed) {
  StoreOptions options;
  options.mode = kv::Mode::kAsync;
  options.updater.kind = kv::UpdaterOptions::Kind::kCallback;
  options.updater.function = [](void*, std::string_view, std::uint64_t, std::size_t, DType, const void*, void*) {
    return 1;
  };
  Dying world(3, options);
  const Values ones(3, 1.0f);
  world.start_both([&] { return StoreJob::init("skey", ones); });
  ASSERT_TRUE(world.finish());
  const int home = kv::home_of("skey", 3);
  world.start(3, StoreJob::push("skey", ones));
  ASSERT_TRUE(world.finish());
  EXPECT_TRUE(world.operations.back()->error());
  world.die((home + 1) % 3);
  world.run(milliseconds(5), [] { return false; });
  // What the heir would answer to the same push.
  kv::Server& heir = world.stores[static_cast<std::size_t>((home + 2) % 3)]->server();
  ASSERT_EQ(heir.parts().size(), 1u);
  EXPECT_TRUE(heir.parts().front().state->failed(0));
  EXPECT_FALSE(heir.parts().front().state->failed(1));
}

// A rank serves until all others need it no more, or are lost.
TEST(SimDeaths, LeavingWaitsForTheLiving) {
  Dying world(2, {});
  const Values value(3, 1.0f);
  world.start_both([&] { return StoreJob::init("skey", value); });
  ASSERT_TRUE(world.finish());
  std::deque<Stop> stops(4);
  std::vector<Task<void>> leaving;
  for (int rank = 1; rank < 3; ++rank)
    leaving.push_back(world.stores[static_cast<std::size_t>(rank)]->leave(stops[static_cast<std::size_t>(rank)]));
  for (Task<void>& task : leaving) task.start();
  const auto all = [&] { return std::all_of(leaving.begin(), leaving.end(), [](auto& task) { return task.done(); }); };
  world.run(milliseconds(5), [] { return false; });
  world.die(0);
  world.run(milliseconds(5), [] { return false; });
  EXPECT_FALSE(leaving[0].done() || leaving[1].done());
  leaving.push_back(world.stores[3]->leave(stops[3]));
  leaving.back().start();
  EXPECT_TRUE(world.run(seconds(1), all));
}

}  // namespace
}  // namespace aiacc::sim
