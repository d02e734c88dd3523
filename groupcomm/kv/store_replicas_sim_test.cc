// Stores with replicas whose servers and workers die, in virtual time and in random schedules: rounds against a sequential model,
// pushes that are applied at once as a linearizable history, and nothing lost that was acknowledged.
#include <cstdlib>
#include <deque>
#include <set>

#include "groupcomm/kv/layout.h"
#include "groupcomm/kv/store_world_test.h"

namespace aiacc::sim {
namespace {

using kv::Mode;
using std::chrono::microseconds;
using Counts = std::vector<std::int64_t>;

constexpr std::size_t kElements = 150;  // two or three parts
constexpr int kDigit = 10;              // bits of a worker's pushes in an element

// One call, and what is known of it.
struct Act {
  int worker;
  std::size_t key;
  bool pushes, pulls;
  std::uint64_t number;  // pushes of the worker to the key, this one included
  Counts in, out;
  Operation* operation = nullptr;
  Instant began{}, ended{};
  bool done() const { return ended != Instant{}; }
  bool well() const { return done() && !operation->error(); }
};

struct Schedule {
  explicit Schedule(std::uint64_t seed) : random(seed) {
    const int servers = 2 + pick(3), workers = 1 + pick(3);
    apart = pick(2) == 0;
    ranks = apart ? servers + workers : std::max(servers, workers);
    for (int i = 0; i < servers; ++i) options.servers.push_back(i);
    for (int i = 0; i < workers; ++i) options.workers.push_back(ranks - workers + i);
    for (int i = 0, made = 0; i < ranks; ++i)
      hosts.push_back(static_cast<std::uint32_t>(i == 0 ? 0 : pick(2) == 0 ? 0 : ++made));
    options.replicas = 2;
    options.split_elements = 100;
    options.mode = static_cast<Mode>(pick(3));
    options.staleness = static_cast<std::uint64_t>(pick(4));
    options.updater.kind = kv::UpdaterOptions::Kind::kSum;
  }
  int pick(int n) { return static_cast<int>(random.below(static_cast<std::uint64_t>(n))); }

  Random random;
  bool apart;
  int ranks;
  Hosts hosts;
  StoreOptions options;
};

class ReplicaRun {
 public:
  explicit ReplicaRun(std::uint64_t seed) : plan_(seed), job_(plan_.hosts, plan_.options, seed) {}

  // How many deaths the store went on after.
  std::size_t survived() const {
    std::size_t count = 0;
    for (const auto& its : job_.reports) count += its.size();
    return count;
  }

  void run() {
    const Counts zeros(kElements);
    for (std::size_t key = 0; key < kKeys; ++key) {
      for (const int rank : plan_.options.workers)
        owner_[&job_.start(rank, order(What::kInit, key, &zeros, nullptr))] = rank;
    }
    early_ = plan_.pick(4) == 0;  // the death may hit the beginning of keys
    if (early_) choose_deaths();
    ASSERT_TRUE(job_.run(seconds(50), [&] { return all_ended(); })) << "a key does not begin";
    if (dead_workers_.empty()) {
      for (const auto& one : job_.operations)
        ASSERT_TRUE(!one->done() || !one->error()) << as_error(one->error()).message();
    }
    if (!early_) choose_deaths();
    choose_calls();
    ASSERT_TRUE(job_.run(seconds(50), [&] {
      watch();
      return planned_ == 0 && all_ended();
    })) << "a call does not end";
    read_last();
    check();
  }

 private:
  static constexpr std::size_t kKeys = 3, kPushes = 4;

  int workers() const { return static_cast<int>(plan_.options.workers.size()); }
  int rank_of(int worker) const { return plan_.options.workers[static_cast<std::size_t>(worker)]; }
  bool dead(int rank) { return job_.job[rank].loop.dead(); }
  bool sync() const { return plan_.options.mode == Mode::kSync; }

  static Order order(What what, std::size_t key, const Counts* in, Counts* out) {
    Order order;
    order.what = what;
    order.key = kv::key_of(static_cast<std::int64_t>(key));
    order.shape = {DType::kInt64, kElements, 1};
    if (in != nullptr) order.in = in->data();
    if (out != nullptr) order.out = out->data();
    order.in_count = in != nullptr ? kElements : 0;
    order.out_count = out != nullptr ? kElements : 0;
    return order;
  }
  // Of calls of the living.
  bool all_ended() {
    return std::all_of(job_.operations.begin(), job_.operations.end(),
                       [this](const auto& one) { return one->done() || dead(owner_.at(one.get())); });
  }

  // One rank, or two that are no neighbours in the order of servers. Survivors hear of it one by one.
  void choose_deaths() {
    const int servers = static_cast<int>(plan_.options.servers.size());
    const int first = plan_.pick(plan_.ranks);
    std::vector<int> die{first};
    if (const int other = plan_.pick(plan_.ranks); other != first) {
      const bool neighbours =
          first < servers && other < servers && ((first + 1) % servers == other || (other + 1) % servers == first);
      if (!neighbours) die.push_back(other);
    }
    for (const int rank : die) {
      if (std::find(plan_.options.workers.begin(), plan_.options.workers.end(), rank) != plan_.options.workers.end())
        dead_workers_.insert(rank);
      if (!early_ && plan_.pick(2) == 0) {
        dying_[plan_.pick(40)].push_back(rank);
      } else {
        job_.job.world.at(after(job_.job.world.now(), microseconds(plan_.pick(600))),
                          [this, rank] { kill(rank, 300); });
      }
    }
  }
  void kill(int rank, int known_after_us) {
    job_.job.world.kill(job_.job[rank].loop.node());
    for (int told = 0; told < plan_.ranks; ++told) {
      if (told == rank) continue;
      const Instant when = after(job_.job.world.now(), microseconds(plan_.pick(known_after_us + 1)));
      job_.job.world.at(when, [this, rank, told] {
        const Error why(Code::kPeerFailed, "it was killed", rank);
        if (!dead(told)) job_.job[told].context->on_rank_lost(rank, std::make_exception_ptr(why));
      });
    }
  }

  void choose_calls() {
    for (int worker = 0; worker < workers(); ++worker) {
      if (dead(rank_of(worker))) continue;
      std::vector<std::uint64_t> pushed(kKeys);
      Instant when = job_.job.world.now();
      for (std::size_t call = 0; call < kKeys * kPushes; ++call) {
        const std::size_t key = call % kKeys;
        plan_call(when, worker, key, ++pushed[key]);
        when = after(when, microseconds(plan_.pick(80)));
      }
    }
  }
  // A push, a push and a pull that does not wait for it, or both as one.
  void plan_call(Instant when, int worker, std::size_t key, std::uint64_t number) {
    ++planned_;
    const int what = plan_.pick(3), priority = plan_.pick(3);
    job_.job.world.at(when, [=, this] {
      --planned_;
      if (dead(rank_of(worker))) return;
      begin(worker, key, true, what == 0, number, priority);
      if (what == 1) begin(worker, key, false, true, number, 2 - priority);
    });
  }
  void begin(int worker, std::size_t key, bool pushes, bool pulls, std::uint64_t number, int priority) {
    Act& act = acts_.emplace_back(Act{worker, key, pushes, pulls, number, {}, {}});
    if (pushes) act.in.assign(kElements, std::int64_t{1} << (kDigit * worker));
    if (pulls) act.out.assign(kElements, -1);
    const What what = pushes ? (pulls ? What::kPushPull : What::kPush) : What::kPull;
    Order wanted = order(what, key, pushes ? &act.in : nullptr, pulls ? &act.out : nullptr);
    wanted.priority = priority;
    act.began = job_.job.world.now();
    act.operation = &job_.start(rank_of(worker), std::move(wanted));
    owner_[act.operation] = rank_of(worker);
  }
  void watch() {
    for (Act& act : acts_) {
      if (act.done() || !act.operation->done()) continue;
      act.ended = job_.job.world.now();
      // At the instant of an acknowledgement, when copies may be on their way that nobody waits for.
      for (const int rank : std::exchange(dying_[ended_++], {})) kill(rank, 0);
    }
  }
  // What the living see at last.
  void read_last() {
    dying_.clear();
    job_.run(milliseconds(2), [] { return false; });  // all know of the deaths
    for (int worker = 0; worker < workers(); ++worker) {
      for (std::size_t key = 0; key < kKeys && !dead(rank_of(worker)); ++key)
        begin(worker, key, false, true, kPushes, 0);
    }
    ASSERT_TRUE(job_.run(seconds(50), [&] {
      watch();
      return all_ended();
    })) << "the last pulls do not end";
  }

  static std::int64_t digit(std::int64_t value, int worker) {
    return value >> (kDigit * worker) & ((std::int64_t{1} << kDigit) - 1);
  }

  void check() {
    for (const Act& act : acts_) {
      if (!act.done() || !act.operation->error()) continue;
      const Error error = as_error(act.operation->error());
      EXPECT_TRUE((sync() || early_) && dead_workers_.contains(error.peer()) && error.code() == Code::kPeerFailed)
          << "a call of rank " << rank_of(act.worker) << " fails: " << error.message();
    }
    const kv::LayoutRules rules{static_cast<int>(plan_.options.servers.size()), plan_.options.split_elements,
                                Store::kPartBytes};
    for (std::size_t key = 0; key < kKeys; ++key) {
      const auto parts = kv::lay_out(kv::key_of(static_cast<std::int64_t>(key)), {DType::kInt64, kElements, 1}, rules);
      for (const kv::PartPlace& part : parts) {
        if (part.rows > 0) sync() ? check_rounds(key, part) : check_history(key, part);
      }
    }
  }

  // The element that all of the part have.
  static std::int64_t read_of(const Act& act, const kv::PartPlace& part) {
    for (std::uint64_t row = 0; row < part.rows; ++row)
      EXPECT_EQ(act.out[part.first_row + row], act.out[part.first_row]) << "a part is torn";
    return act.out[part.first_row];
  }

  // A pull sees the rounds that its worker has pushed to, and no other. If rounds have ended with a worker, it sees those that ended.
  void check_rounds(std::size_t key, const kv::PartPlace& part) {
    for (const Act& act : acts_) {
      if (act.key != key || !act.pulls || !act.well()) continue;
      const std::int64_t value = read_of(act, part);
      for (int worker = 0; worker < workers(); ++worker) {
        if (dead_workers_.empty()) {
          EXPECT_EQ(digit(value, worker), static_cast<std::int64_t>(act.number));
        } else {
          EXPECT_EQ(digit(value, worker), digit(value, 0)) << "a part of a round";
        }
      }
      for (const Act& push : acts_) {
        if (push.key == key && push.pushes && push.well() && push.ended < act.began) {
          EXPECT_GE(digit(value, 0), static_cast<std::int64_t>(push.number)) << "an acknowledged round is lost";
        }
      }
    }
  }

  // Of pushes that each add one to their worker's digit, and pulls that see all digits: a linearizable history has pulls in one order,
  // which real time agrees with, and nothing is seen before what had ended earlier.
  void check_history(std::size_t key, const kv::PartPlace& part) {
    std::vector<const Act*> pushes, pulls;
    for (const Act& act : acts_) {
      if (act.key != key) continue;
      if (act.pushes) pushes.push_back(&act);
      if (act.pulls && act.well()) pulls.push_back(&act);
    }
    const auto sees = [&](const Act& pull, const Act& push) {
      return digit(pull.out[part.first_row], push.worker) >= static_cast<std::int64_t>(push.number);
    };
    for (const Act* pull : pulls) {
      const std::int64_t value = read_of(*pull, part);
      std::vector<std::int64_t> begun(static_cast<std::size_t>(workers()));
      for (const Act* push : pushes) {
        if (push->began <= pull->ended) ++begun[static_cast<std::size_t>(push->worker)];
        EXPECT_TRUE(!push->well() || push->ended >= pull->began || sees(*pull, *push))
            << "an acknowledged push is lost";
        for (const Act* later : pushes) {
          const bool before = push->well() && push->ended < later->began;
          EXPECT_TRUE(!before || !sees(*pull, *later) || sees(*pull, *push)) << "a pull sees a push and none before it";
        }
      }
      for (int worker = 0; worker < workers(); ++worker)
        EXPECT_LE(digit(value, worker), begun[static_cast<std::size_t>(worker)]) << "a push is applied twice";
      for (const Act* other : pulls) {
        bool less = false, more = false;
        for (int worker = 0; worker < workers(); ++worker) {
          less = less || digit(other->out[part.first_row], worker) < digit(value, worker);
          more = more || digit(other->out[part.first_row], worker) > digit(value, worker);
        }
        EXPECT_FALSE(less && more) << "two pulls agree with no order of pushes";
        EXPECT_FALSE(less && pull->ended < other->began) << "a later pull sees less";
      }
    }
  }

  Schedule plan_;
  std::deque<Act> acts_;  // what ends with the job may still write to them
  StoreJob job_;
  std::map<const Operation*, int> owner_;
  std::set<int> dead_workers_;
  std::map<int, std::vector<int>> dying_;  // when so many calls have ended
  int ended_ = 0;
  bool early_ = false;
  int planned_ = 0;
};

// AIACC_TEST_SCHEDULES runs as many.
TEST(SimReplicas, NothingAcknowledgedIsLostNorAppliedTwiceInRandomSchedules) {
  const char* text = std::getenv("AIACC_TEST_SCHEDULES");  // NOLINT(concurrency-mt-unsafe)
  const std::uint64_t schedules = text != nullptr ? std::strtoull(text, nullptr, 10) : 300;
  std::size_t survived = 0;
  for (std::uint64_t seed = 1; seed <= schedules; ++seed) {
    SCOPED_TRACE("schedule " + std::to_string(seed));
    ReplicaRun run(seed);
    run.run();
    if (::testing::Test::HasFailure()) return;
    survived += run.survived();
  }
  EXPECT_GT(survived, schedules / 3);
}

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

TEST(SimReplicas, AReplicaHasWhatUpdatersAndSendersRemember) {
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
TEST(SimReplicas, AReplicaTakesTheResultOfACallback) {
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

TEST(SimReplicas, DeathsAreReportedAndThoseOfNeighboursNamed) {
  Dying world(4, {});
  Values value(3, 1.0f);
  std::vector<std::string> of_first;  // keys of server 1
  for (std::int64_t key = 0; key < 20; ++key) {
    world.start_both([&] { return StoreJob::init(kv::key_of(key), value); });
    if (kv::home_of(kv::key_of(key), 4) == 1) of_first.push_back(kv::key_of(key));
  }
  ASSERT_TRUE(world.finish());
  world.die(1);
  world.die(3);
  EXPECT_EQ(
      world.reports[0],
      (std::vector<std::string>{"the key-value store goes on without rank 1: rank 2 serves its values, which have one "
                                "replica now, as have those of rank 0",
                                "the key-value store goes on without rank 3: rank 0 serves its values, which have one "
                                "replica now, as have those of rank 2"}));
  EXPECT_TRUE(world.reports[2].empty());
  ASSERT_FALSE(of_first.empty());
  world.start(4, StoreJob::pull(of_first.front(), value));
  ASSERT_TRUE(world.finish());
  EXPECT_FALSE(world.operations.back()->error());
  world.die(2);
  EXPECT_EQ(world.reports[0].back(),
            "the key-value store has lost values: both replicas of them were with ranks 1 and 2");
  world.start(4, StoreJob::pull(of_first.front(), value));
  ASSERT_TRUE(world.finish(seconds(10)));
  ASSERT_TRUE(world.operations.back()->error());
  EXPECT_EQ(as_error(world.operations.back()->error()).code(), Code::kPeerFailed);
  EXPECT_EQ(as_error(world.operations.back()->error()).peer(), 2);
}

// A rank serves until all others need it no more, or are lost.
TEST(SimReplicas, LeavingWaitsForTheLiving) {
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
