// For tests: a random schedule of a store whose servers and workers die in virtual time, and what must hold of its calls: rounds against
// a sequential model, pushes that are applied at once as a linearizable history, and nothing lost that was acknowledged. Which calls
// may fail: those that need what is dead, and they name it.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/sim/random.h"
#include "groupcomm/kv/layout.h"
#include "groupcomm/kv/saved.h"
#include "groupcomm/kv/store_world_test.h"

namespace aiacc::sim {

using kv::Mode;
using std::chrono::microseconds;
using Counts = std::vector<std::int64_t>;

inline constexpr std::size_t kElements = 150;  // two or three parts
inline constexpr int kDigit = 10;              // bits of a worker's pushes in an element

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

struct StoreSchedule {
  StoreSchedule(std::uint64_t seed, int replicas, int fewest_servers) : random(seed) {
    const int servers = fewest_servers + pick(3), workers = 1 + pick(3);
    apart = pick(2) == 0;
    ranks = apart ? servers + workers : std::max(servers, workers);
    for (int i = 0; i < servers; ++i) options.servers.push_back(i);
    for (int i = 0; i < workers; ++i) options.workers.push_back(ranks - workers + i);
    for (int i = 0, made = 0; i < ranks; ++i)
      hosts.push_back(static_cast<std::uint32_t>(i == 0 ? 0 : pick(2) == 0 ? 0 : ++made));
    options.replicas = replicas;
    options.split_elements = 100;
    options.mode = static_cast<Mode>(pick(3));
    options.staleness = static_cast<std::uint64_t>(pick(4));
    options.updater.kind = kv::UpdaterOptions::Kind::kSum;
    if (replicas == 1 && options.mode == Mode::kSync &&
        pick(2) == 0) {  // workers sum the rounds of pushpulls themselves
      options.updater.kind = kv::UpdaterOptions::Kind::kAssign;
      options.allreduce_bytes = 1;
    }
  }
  bool assigns() const { return options.updater.kind == kv::UpdaterOptions::Kind::kAssign; }
  int pick(int n) { return static_cast<int>(random.below(static_cast<std::uint64_t>(n))); }

  Random random;
  bool apart;
  int ranks;
  Hosts hosts;
  StoreOptions options;
};

class StoreScheduleRun {
 public:
  StoreScheduleRun(std::uint64_t seed, int replicas, int fewest_servers)
      : plan_(seed, replicas, fewest_servers), job_(plan_.hosts, plan_.options, seed) {}

  // How many deaths the store went on after.
  std::size_t survived() const {
    std::size_t count = 0;
    for (const auto& its : job_.reports) count += its.size();
    return count;
  }
  // How many calls of the living a death has cost, and how many that began after all knew of the deaths ended well.
  std::size_t failed() const {
    return static_cast<std::size_t>(
        std::count_if(acts_.begin(), acts_.end(), [](const Act& act) { return act.done() && !act.well(); }));
  }
  std::size_t well_at_last() const {
    return static_cast<std::size_t>(std::count_if(acts_.begin() + static_cast<std::ptrdiff_t>(first_last_), acts_.end(),
                                                  [](const Act& act) { return act.well(); }));
  }

  void run() {
    const Counts zeros(kElements);
    for (std::size_t key = 0; key < kKeys; ++key) {
      for (const int rank : plan_.options.workers)
        owner_[&job_.start(rank, order(What::kInit, key, &zeros, nullptr))] = rank;
    }
    early_ = plan_.pick(4) == 0;  // the death may hit the beginning of keys
    if (early_) choose_deaths();
    begin_keys();
    if (!early_) choose_deaths();
    call();
    read_last();
    check();
  }
  // Two servers, or three, of which each may hold all that the one before it left: the next dies when copies are made anew.
  void run_deaths_in_sequence() {
    const Counts zeros(kElements);
    for (std::size_t key = 0; key < kKeys; ++key) {
      for (const int rank : plan_.options.workers)
        owner_[&job_.start(rank, order(What::kInit, key, &zeros, nullptr))] = rank;
    }
    begin_keys();
    const int servers = static_cast<int>(plan_.options.servers.size());
    const int deaths = std::min(2 + plan_.pick(2), servers - 1);
    for (int death = 0; death < deaths && !::testing::Test::HasFailure(); ++death) {
      int victim = plan_.pick(servers);
      while (dead(victim)) victim = (victim + 1) % servers;
      choose_death(victim);
      call();
      dying_.clear();
      if (!dead(victim)) kill(victim, 300);  // fewer calls have ended than it was to live through
      ASSERT_TRUE(job_.set_updater(updater(death % 2 == 0))) << "an updater is not set";
      const int left = servers - death - 1;
      ASSERT_TRUE(job_.run(seconds(50), [&] { return dead(victim) && copied_anew(left); }))
          << "copies are not made anew";
      save_and_load();
    }
    read_last();
    check();
  }

 private:
  // Two kinds that do the same.
  static kv::UpdaterOptions updater(bool callback) {
    kv::UpdaterOptions options;
    options.kind = callback ? kv::UpdaterOptions::Kind::kCallback : kv::UpdaterOptions::Kind::kSum;
    options.function = [](void*, std::string_view, std::uint64_t, std::size_t count, DType, const void* gradient,
                          void* value) {
      for (std::size_t i = 0; i < count; ++i)
        static_cast<std::int64_t*>(value)[i] += static_cast<const std::int64_t*>(gradient)[i];
      return 0;
    };
    return options;
  }
  void save_and_load() {
    const int servers = static_cast<int>(plan_.options.servers.size());
    ASSERT_TRUE(job_.together([&](int rank, Stop& stop) -> Task<void> {
      Store& store = *job_.stores[static_cast<std::size_t>(rank)];
      for (const int one : store.server().served())
        co_await store.load(stop, one, kv::saved_state(store.server(), one, servers));
    })) << "a state is not loaded";
  }
  static constexpr std::size_t kKeys = 3, kPushes = 4;

  void begin_keys() {
    ASSERT_TRUE(job_.run(seconds(50), [&] { return all_ended(); })) << "a key does not begin";
    if (early_ && (!replicated() || !dead_workers_.empty())) return;
    for (const auto& one : job_.operations)
      ASSERT_TRUE(!one->done() || !one->error()) << as_error(one->error()).message();
  }
  void call() {
    choose_calls();
    ASSERT_TRUE(job_.run(seconds(50), [&] {
      watch();
      return planned_ == 0 && all_ended();
    })) << "a call does not end";
  }
  // All servers that are left know which these are, and have no copy to make.
  bool copied_anew(int left) {
    std::vector<int> living;
    for (const int server : plan_.options.servers) {
      if (!dead(server)) living.push_back(server);
    }
    EXPECT_EQ(static_cast<int>(living.size()), left);
    for (std::size_t i = 0; i < living.size(); ++i) {
      const kv::Server& server = job_.stores[static_cast<std::size_t>(living[i])]->server();
      const int replica = living.size() > 1 ? living[(i + 1) % living.size()] : -1;
      const int before = living[(i + living.size() - 1) % living.size()],
                after_it = (before + 1) % static_cast<int>(plan_.options.servers.size());
      if (server.replica() != replica || !server.serves(after_it) || server.copies_anew()) return false;
    }
    return true;
  }

  int workers() const { return static_cast<int>(plan_.options.workers.size()); }
  int rank_of(int worker) const { return plan_.options.workers[static_cast<std::size_t>(worker)]; }
  bool dead(int rank) { return job_.job[rank].loop.dead(); }
  bool sync() const { return plan_.options.mode == Mode::kSync; }
  bool replicated() const { return plan_.options.replicas > 1; }

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

  // One rank, or two, which with replicas are no neighbours in the order of servers. Survivors hear of it one by one.
  void choose_deaths() {
    const int servers = static_cast<int>(plan_.options.servers.size());
    const int first = plan_.pick(plan_.ranks);
    std::vector<int> die{first};
    if (const int other = plan_.pick(plan_.ranks); other != first) {
      const bool neighbours = replicated() && first < servers && other < servers &&
                              ((first + 1) % servers == other || (other + 1) % servers == first);
      if (!neighbours) die.push_back(other);
    }
    for (const int rank : die) choose_death(rank);
  }
  void choose_death(int rank) {
    {
      die_.insert(rank);
      if (std::find(plan_.options.workers.begin(), plan_.options.workers.end(), rank) != plan_.options.workers.end())
        dead_workers_.insert(rank);
      if (!early_ && plan_.pick(2) == 0) {
        dying_[ended_ + plan_.pick(40)].push_back(rank);
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
      std::vector<std::uint64_t>& pushed = pushed_[worker];
      pushed.resize(kKeys);
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
    // In one round all give their pushes of one number, so its sum has the same digits as what was added up so far.
    const auto given = static_cast<std::int64_t>(plan_.assigns() ? number : 1);
    if (pushes) act.in.assign(kElements, given << (kDigit * worker));
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
    const auto pushed = [this](int worker) { return pushed_[worker].empty() ? 0 : pushed_[worker].front(); };
    job_.run(milliseconds(2), [] { return false; });  // all know of the deaths
    first_last_ = acts_.size();
    for (int worker = 0; worker < workers(); ++worker) {
      for (std::size_t key = 0; key < kKeys && !dead(rank_of(worker)); ++key)
        begin(worker, key, false, true, pushed(worker), 0);
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
      EXPECT_TRUE(error.code() == Code::kPeerFailed && needs(act, error.peer()))
          << "a call of rank " << rank_of(act.worker) << " fails: " << error.message();
    }
    for (std::size_t key = 0; key < kKeys; ++key) {
      for (const kv::PartPlace& part : parts_of(key)) {
        if (part.rows > 0) sync() ? check_rounds(key, part) : check_history(key, part);
      }
    }
  }
  std::vector<kv::PartPlace> parts_of(std::size_t key) const {
    const kv::LayoutRules rules{static_cast<int>(plan_.options.servers.size()), plan_.options.split_elements,
                                Store::kPartBytes};
    return kv::lay_out(kv::key_of(static_cast<std::int64_t>(key)), {DType::kInt64, kElements, 1}, rules);
  }
  // Whether a death of this rank may have cost the call: a round needs all workers, and so does the beginning of a key. Without
  // replicas a key needs each server of a part of it, the one that knows its shape, and the one that chooses who sums a round.
  bool needs(const Act& act, int rank) const {
    if (!die_.contains(rank)) return false;
    if ((sync() || early_) && dead_workers_.contains(rank)) return true;
    const int servers = static_cast<int>(plan_.options.servers.size());
    if (replicated() || rank >= servers) return false;  // servers are the first ranks
    if (plan_.assigns() && rank == 0) return true;
    const auto parts = parts_of(act.key);
    return kv::home_of(kv::key_of(static_cast<std::int64_t>(act.key)), servers) == rank ||
           std::any_of(parts.begin(), parts.end(), [&](const kv::PartPlace& part) { return part.server == rank; });
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

  StoreSchedule plan_;
  std::deque<Act> acts_;  // what ends with the job may still write to them
  StoreJob job_;
  std::map<const Operation*, int> owner_;
  std::set<int> die_, dead_workers_;                  // and those of them that are workers
  std::map<int, std::vector<std::uint64_t>> pushed_;  // by worker and key
  std::map<int, std::vector<int>> dying_;             // when so many calls have ended
  int ended_ = 0;
  bool early_ = false;
  int planned_ = 0;
  std::size_t first_last_ = 0;  // of the calls that see what the living have at last
};

// AIACC_TEST_SCHEDULES runs as many of each kind, and AIACC_TEST_FIRST_SCHEDULE begins with that one.
template <class Run>
std::uint64_t for_each_store_schedule(std::uint64_t usually, Run&& run) {
  const auto number = [](const char* name, std::uint64_t otherwise) {
    const char* text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
    return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
  };
  const std::uint64_t count = number("AIACC_TEST_SCHEDULES", usually), first = number("AIACC_TEST_FIRST_SCHEDULE", 1);
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE("schedule " + std::to_string(seed));
    run(seed);
    if (::testing::Test::HasFailure()) break;
  }
  return count;
}

}  // namespace aiacc::sim
