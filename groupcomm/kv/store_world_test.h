// For tests: a job of simulated ranks, each with a store.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "groupcomm/kv/store.h"
#include "tests/sim_job.h"

namespace aiacc::sim {

using kv::Operation;
using kv::Order;
using kv::Store;
using kv::StoreOptions;
using What = kv::Order::What;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Hosts = std::vector<std::uint32_t>;
using Values = std::vector<float>;

struct StoreJob {
  explicit StoreJob(const Hosts& hosts, StoreOptions options = {}, std::uint64_t seed = 1,
                    const SimContext::WrapPort& wrap = {})
      : job(hosts, seed, {}, wrap) {
    for (auto* ranks : {&options.workers, &options.servers}) {
      if (!ranks->empty()) continue;
      for (int rank = 0; rank < job.size(); ++rank) ranks->push_back(rank);
    }
    for (int rank = 0; rank < job.size(); ++rank) {
      stores.push_back(std::make_shared<Store>(job[rank].lane, job[rank].context->services(), job.view, rank, options));
      reports.emplace_back();
      stores.back()->report_to(
          [this, rank](const std::string& sentence) { reports[static_cast<std::size_t>(rank)].push_back(sentence); });
    }
    for (const int worker : options.workers) {
      groups[worker] = &workers_group(worker, options.workers);
      stores[static_cast<std::size_t>(worker)]->reduce_in(*groups[worker]);
    }
    run(milliseconds(1), [] { return false; });  // as a barrier
  }
  ~StoreJob() {
    std::vector<Task<void>> closing;
    for (int rank = 0; rank < job.size(); ++rank) {
      if (!job[rank].loop.dead()) {
        closing.push_back(stores[static_cast<std::size_t>(rank)]->close());
        continue;
      }
      const auto dead = std::make_exception_ptr(Error(Code::kAborted, "the rank is dead"));
      for (Barrier& barrier : barriers) {
        if (barrier.rank == rank) barrier.stop.request(dead);
      }
      job[rank].context->world().abort(dead);
      if (groups.contains(rank)) groups.at(rank)->abort(dead);
      job[rank].loop.bury();  // what its store has under way ends before the store does
    }
    for (Task<void>& task : closing) task.start();
    EXPECT_TRUE(run(seconds(10), [&] {
      return std::all_of(closing.begin(), closing.end(), [](const Task<void>& task) { return task.done(); });
    }));
  }

  // The world if all ranks are workers, as a group of its own otherwise.
  Group& workers_group(int rank, const std::vector<int>& workers) {
    Context& context = *job[rank].context;
    if (workers.size() == job.ranks.size()) return context.world();
    GroupOrder order;
    order.sort = GroupOrder::Sort::kEngine;
    order.ranks = workers;
    Group* made = nullptr;
    Task<void> making = context.groups().make(*job.view, order, &made, job[rank].stop);
    making.start();
    EXPECT_TRUE(job.world.run_while_not([&] { return making.done(); }));
    making.take();
    return *made;
  }
  bool run(Duration limit, const std::function<bool()>& done) {
    const Instant end = job.world.now() + limit;
    job.world.run_while_not([&] { return done() || job.world.now() > end; });
    return done();
  }
  // All others hear of it at once.
  void die(int rank) {
    job.world.kill(job[rank].loop.node());
    const Error why(Code::kPeerFailed, "it was killed", rank);
    for (int told = 0; told < job.size(); ++told) {
      if (!job[told].loop.dead()) job[told].context->on_rank_lost(rank, std::make_exception_ptr(why));
    }
  }
  Operation& start(int rank, Order order) {
    operations.push_back(std::make_unique<Operation>(stores[static_cast<std::size_t>(rank)], std::move(order)));
    job[rank].lane.start(*operations.back());
    return *operations.back();
  }
  // What all living ranks do together: each comes to a barrier, runs `body`, and comes to another one. Whether all that live to its end
  // have left it.
  bool together(const std::function<Task<void>(int rank, Stop& stop)>& body, Duration limit = seconds(10)) {
    const std::size_t before = barriers.size();
    for (int rank = 0; rank < job.size(); ++rank) {
      if (job[rank].loop.dead()) continue;
      Barrier& barrier = barriers.emplace_back();
      barrier.rank = rank;
      barrier.task.emplace(between_barriers(*stores[static_cast<std::size_t>(rank)], rank, barrier.stop, body));
    }
    for (std::size_t i = before; i < barriers.size(); ++i) barriers[i].task->start();
    return run(limit, [&] {
      return std::all_of(barriers.begin() + static_cast<std::ptrdiff_t>(before), barriers.end(),
                         [this](const Barrier& one) { return one.done() || job[one.rank].loop.dead(); });
    });
  }
  bool set_updater(const kv::UpdaterOptions& updater) {
    return together([&](int rank, Stop&) -> Task<void> {
      stores[static_cast<std::size_t>(rank)]->set_updater(updater);
      co_return;
    });
  }
  bool finish(Duration limit = seconds(100)) {
    return run(limit, [this] {
      return std::all_of(operations.begin(), operations.end(), [](const auto& one) { return one->done(); });
    });
  }
  void init_all(const std::string& key, const Values& value) {
    for (int rank = 0; rank < job.size(); ++rank) start(rank, init(key, value));
    ASSERT_TRUE(finish());
    for (const auto& operation : operations) ASSERT_FALSE(operation->error()) << as_error(operation->error()).message();
  }
  static Order init(const std::string& key, const Values& value) {
    Order order;
    order.what = What::kInit;
    order.key = key;
    order.shape = {DType::kFloat32, value.size(), 1};
    order.in = value.data();
    return order;
  }
  static Order push(const std::string& key, const Values& value) {
    Order order;
    order.what = What::kPush;
    order.key = key;
    order.in = value.data();
    order.in_count = value.size();
    return order;
  }
  static Order pushpull(const std::string& key, const Values& gradient, Values& value) {
    Order order = push(key, gradient);
    order.what = What::kPushPull;
    order.out = value.data();
    order.out_count = value.size();
    return order;
  }
  static Order pull(const std::string& key, Values& value) {
    Order order;
    order.what = What::kPull;
    order.key = key;
    order.out = value.data();
    order.out_count = value.size();
    return order;
  }

  struct Barrier {
    int rank = 0;
    Stop stop;
    std::optional<Task<void>> task;
    bool done() const { return task->done(); }
  };
  static Task<void> between_barriers(Store& store, int rank, Stop& stop,
                                     std::function<Task<void>(int rank, Stop& stop)> body) {
    co_await store.barrier(stop, "a call", false);
    co_await body(rank, stop);
    co_await store.barrier(stop, "a call", false);
  }

  SimJob job;
  std::map<int, Group*> groups;  // of the workers
  std::vector<std::shared_ptr<Store>> stores;
  std::deque<std::vector<std::string>> reports;  // by rank
  std::vector<std::unique_ptr<Operation>> operations;
  std::deque<Barrier> barriers;
};

}  // namespace aiacc::sim
