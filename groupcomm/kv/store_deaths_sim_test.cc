// Stores with replicas whose servers die one by one: what replicas remember, what is copied anew, and what is said of it.
#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <string>

#include "groupcomm/kv/layout.h"
#include "groupcomm/kv/saved.h"
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
  // Of both workers.
  void start_both(const std::function<Order()>& order) {
    for (int rank = job.size() - 2; rank < job.size(); ++rank) start(rank, order());
  }
};

// Six rounds, the last three without server 0 if it dies, while a round is under way. Before the fifth the updater may change.
Values after_rounds(StoreOptions options, bool rows, bool dies, const kv::UpdaterOptions* later = nullptr) {
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
    EXPECT_TRUE(round != 4 || later == nullptr || world.set_updater(*later));
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

TEST(SimDeaths, AnUpdaterThatIsSetAfterADeathGoesOnWithWhatTheReplicaHas) {
  for (const bool rows : {false, true}) {
    StoreOptions options;
    options.updater.kind = kv::UpdaterOptions::Kind::kSgd;
    options.updater.momentum = 0.5;
    kv::UpdaterOptions later = options.updater;
    later.rate = 0.125;
    const Values slower = after_rounds(options, rows, false, &later);
    EXPECT_NE(slower, after_rounds(options, rows, false));
    EXPECT_EQ(slower, after_rounds(options, rows, true, &later));
    later.kind = kv::UpdaterOptions::Kind::kAdam;
    EXPECT_EQ(after_rounds(options, rows, true, &later), after_rounds(options, rows, false, &later));
  }
}

// The heir has forgotten the momentum when a server that has not yet copies its own anew.
TEST(SimDeaths, AnotherKindOfUpdaterFindsNoStateOfTheOneBefore) {
  StoreOptions options;
  options.updater.kind = kv::UpdaterOptions::Kind::kSgd;
  options.updater.momentum = 0.5;
  kv::UpdaterOptions adam;
  adam.kind = kv::UpdaterOptions::Kind::kAdam;
  Dying world(3, options);
  const Values ones(300, 1.0f);
  world.start_both([&] { return StoreJob::init("skey", ones); });
  ASSERT_TRUE(world.finish());
  world.start_both([&] { return StoreJob::push("skey", ones); });
  ASSERT_TRUE(world.finish());
  const int home = kv::home_of("skey", 3), heir = (home + 2) % 3;
  const auto heirs = [&] { return world.stores[static_cast<std::size_t>(heir)]->server().parts(home); };
  world.stores[static_cast<std::size_t>(heir)]->set_updater(adam);
  world.die((home + 1) % 3);
  world.run(milliseconds(5), [] { return false; });
  ASSERT_EQ(heirs().size(), 1u);
  EXPECT_FALSE(heirs().front().state->state().first.empty()) << "the copy came before its source has forgotten it";
  world.stores[static_cast<std::size_t>(home)]->set_updater(adam);
  world.run(milliseconds(5), [] { return false; });
  EXPECT_TRUE(heirs().front().state->state().first.empty());
  EXPECT_EQ(heirs().front().state->state().steps, 0u);
}

// What each server has saved, by its index: of its own parts, or of those of lost servers that it serves.
std::map<int, std::string> save_all(Dying& world) {
  std::map<int, std::string> saved;
  const int servers = world.job.size() - 2;
  EXPECT_TRUE(world.together([&](int rank, Stop&) -> Task<void> {
    kv::Server& server = world.stores[static_cast<std::size_t>(rank)]->server();
    for (const int one : server.served()) {
      EXPECT_TRUE(!saved.contains(one) && server.serves(one));
      saved[one] = kv::saved_state(server, one, servers);
    }
    co_return;
  }));
  return saved;
}

bool load_all(Dying& world, const std::map<int, std::string>& saved) {
  return world.together([&](int rank, Stop& stop) -> Task<void> {
    Store& store = *world.stores[static_cast<std::size_t>(rank)];
    for (const int one : store.server().served()) co_await store.load(stop, one, saved.at(one));
  });
}

struct Trained : Dying {
  explicit Trained(kv::UpdaterOptions::Kind kind) : Dying(3, with_updater(kind)) {
    start_both([&] { return StoreJob::init("skey", zeros); });
    start_both([&] { return StoreJob::init("sother", zeros); });
    EXPECT_TRUE(finish());
  }
  static StoreOptions with_updater(kv::UpdaterOptions::Kind kind) {
    StoreOptions options;
    options.split_elements = 100;
    options.updater.kind = kind;
    options.updater.momentum = 0.5;
    return options;
  }
  void train() {
    start_both([&] { return StoreJob::push("skey", gradient); });
    EXPECT_TRUE(finish());
  }
  Values value() {
    Values out(zeros.size());
    start(3, StoreJob::pull("skey", out));
    EXPECT_TRUE(finish());
    EXPECT_FALSE(operations.back()->error()) << as_error(operations.back()->error()).message();
    return out;
  }
  void settle() {
    run(milliseconds(5), [] { return false; });
  }
  const Values zeros = Values(300), gradient = Values(300, 0.25f);
};

TEST(SimDeaths, WhoServesForALostServerSavesAndLoadsItsState) {
  for (const auto kind : {kv::UpdaterOptions::Kind::kSgd, kv::UpdaterOptions::Kind::kAdam}) {
    Trained world(kind);
    world.train();
    const std::map<int, std::string> whole = save_all(world);
    EXPECT_EQ(whole.size(), 3u);
    world.die(1);
    EXPECT_EQ(save_all(world), whole);  // also while copies are made anew
    world.settle();
    EXPECT_EQ(save_all(world), whole);
    world.train();
    const Values later = world.value();
    EXPECT_NE(save_all(world), whole);
    const std::vector<std::string> said = world.reports[0];
    EXPECT_TRUE(load_all(world, whole));
    EXPECT_EQ(save_all(world), whole);
    EXPECT_EQ(world.reports[0], said) << "a replica that is loaded is no news";
    world.train();
    EXPECT_EQ(world.value(), later);
    // The replica has what was loaded, and another job all of it.
    EXPECT_TRUE(load_all(world, whole));
    world.die(2);
    EXPECT_EQ(save_all(world), whole);
    world.train();
    EXPECT_EQ(world.value(), later);
    Trained other(kind);
    EXPECT_TRUE(load_all(other, whole));
    other.train();
    EXPECT_EQ(other.value(), later);
  }
}

TEST(SimDeaths, AReplicaHasNothingOfAnotherKindOfUpdaterThanItLoads) {
  Trained adam(kv::UpdaterOptions::Kind::kAdam);
  adam.train();
  const std::map<int, std::string> whole = save_all(adam);
  Trained world(kv::UpdaterOptions::Kind::kSgd);
  world.train();
  EXPECT_TRUE(load_all(world, whole));
  EXPECT_EQ(world.value(), adam.value());
  for (int rank = 0; rank < 3; ++rank) {
    for (const kv::Server::Saved& part : world.stores[static_cast<std::size_t>(rank)]->server().parts())
      EXPECT_TRUE(part.state->state().first.empty() && part.state->state().second.empty());
  }
}

TEST(SimDeaths, NobodySavesWhatIsLost) {
  Trained world(kv::UpdaterOptions::Kind::kSgd);
  world.die(0);
  world.die(1);
  kv::Server& left = world.stores[2]->server();
  EXPECT_EQ(left.served(), (std::vector<int>{2, 1, 0}));
  EXPECT_NO_THROW(static_cast<void>(kv::saved_state(left, 1, 3)));
  try {
    static_cast<void>(kv::saved_state(left, 0, 3));
    ADD_FAILURE() << "nothing was lost";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kPeerFailed);
    EXPECT_EQ(error.peer(), 0);
  }
}

TEST(SimDeaths, ABarrierIsOfThoseThatAreLeft) {
  Dying world(2, {});
  std::deque<StoreJob::Barrier>& barriers = world.barriers;
  std::deque<bool> wrong(4);
  const auto barrier = [&](int rank, bool says) {
    StoreJob::Barrier& one = barriers.emplace_back();
    one.rank = rank;
    one.task.emplace([](Store& store, Stop& stop, bool says_so, bool& heard) -> Task<void> {
      heard = co_await store.barrier(stop, "a call", says_so);
    }(*world.stores[static_cast<std::size_t>(rank)], one.stop, says, wrong[static_cast<std::size_t>(rank)]));
    one.task->start();
  };
  const auto all = [&] { return std::all_of(barriers.begin(), barriers.end(), [](auto& one) { return one.done(); }); };
  barrier(1, false);
  barrier(2, true);
  barrier(3, false);
  EXPECT_FALSE(world.run(milliseconds(5), all));
  world.die(0);
  EXPECT_TRUE(world.run(milliseconds(5), all));
  EXPECT_EQ(wrong, (std::deque<bool>{false, true, true, true}));
  for (int rank = 1; rank < 4; ++rank) barrier(rank, false);
  EXPECT_TRUE(world.run(milliseconds(5), all));
  EXPECT_EQ(wrong, std::deque<bool>(4)) << "it was said of the barrier before";
  barrier(2, false);
  Deadline deadline(world.job[2].loop, after(world.job.world.now(), milliseconds(5)), barriers.back().stop, "");
  EXPECT_TRUE(world.run(milliseconds(6), all));
  try {
    barriers.back().task->take();
    ADD_FAILURE() << "two ranks have not come";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kTimeout);
    EXPECT_EQ(error.message(),
              "a call of the key-value store waits for ranks that have not called it by the deadline: 1, 3");
  }
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
