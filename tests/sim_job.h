// For tests: a job of simulated ranks, each with a Context, on one host or several. The lane, group, board, mailbox and
// collectives are the ones of real processes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/sim/sim_compute.h"
#include "base/sim/sim_loop.h"
#include "runtime/context.h"
#include "runtime/group/group.h"
#include "runtime/group/group_operation.h"
#include "runtime/group/groups.h"
#include "transports/sim/sim_domain.h"
#include "transports/sim/sim_fabric.h"
#include "transports/sim/sim_port.h"

namespace aiacc::sim {

class SimContext final : public ProgressWatch::Reporter {
 public:
  // `memory` is null if the rank is alone on its host, `fabric` if the job has one host.
  using WrapPort = std::function<std::unique_ptr<MessagePort>(std::unique_ptr<MessagePort>)>;
  SimContext(World& world, SimHostMemory* memory, SimFabric* fabric, const ViewPtr& view, int rank,
             const WrapPort& wrap = {}, Compute* another = nullptr)
      : loop(world, "host " + std::to_string(view->member(rank).host)), compute(loop), lane(loop, nullptr, "sim") {
    BootstrapResult bootstrapped;
    bootstrapped.rank = rank;
    bootstrapped.world = view;
    if (memory != nullptr) bootstrapped.host = memory->attach(view->local_rank_of(rank), loop);
    if (fabric != nullptr) bootstrapped.port = fabric->open(rank, loop);
    if (wrap) bootstrapped.port = wrap(std::move(bootstrapped.port));
    bootstrapped.host_name = "sim";
    context.emplace(lane, another != nullptr ? *another : compute, std::move(bootstrapped), RuntimeConfig{}, *this);
  }
  ~SimContext() {
    stop.request(std::make_exception_ptr(Error(Code::kAborted, "the simulation is over")));
    context->world().abort(stop.reason());  // also operations that have not begun
    loop.bury();
  }
  SimContext(const SimContext&) = delete;
  SimContext& operator=(const SimContext&) = delete;
  void late(const std::string& sentence) noexcept override { reports.push_back({loop.now(), sentence}); }
  void failed(Context&, const Group&, const Error&) noexcept override {}

  // Starts an allreduce of `count` ones.
  GroupOperation& sum(std::size_t count, CallOptions options = {}) {
    data.emplace_back(count, 1.0f);
    Buffer buffer;
    buffer.data = reinterpret_cast<std::byte*>(data.back().data());
    buffer.bytes = count * sizeof(float);
    Call call;
    call.kind = Collective::kAllreduce;
    call.count = count;
    return start(call, buffer, buffer, options);
  }
  // The same as the C ABI starts it: as what waits without an operation, if it can.
  RequestedWork& sum_plainly(std::size_t count) {
    std::vector<float>& ones = data.emplace_back(count, 1.0f);
    const Buffer buffer{reinterpret_cast<std::byte*>(ones.data()), count * sizeof(float)};
    Call call;
    call.kind = Collective::kAllreduce;
    call.count = count;
    std::unique_ptr<RequestedWork> work = context->world().prepare_waiting(PlainCall::of(call), buffer, buffer);
    if (work == nullptr) work = context->world().prepare(call, buffer, buffer, nullptr);
    plain_ones.push_back(std::move(work));
    lane.begin_here(*plain_ones.back());
    return *plain_ones.back();
  }
  GroupOperation& start(const Call& call, Buffer send, Buffer recv, const CallOptions& options = {}) {
    operations.push_back(context->world().prepare(call, send, recv, &options));
    lane.start(*operations.back());
    return *operations.back();
  }

  // Called after every event; each operation is checked until it is done, and not again.
  bool all_done() {
    while (ended < operations.size() && operations[ended]->done()) ++ended;
    while (plain_ended < plain_ones.size() && plain_ones[plain_ended]->done()) ++plain_ended;
    return ended == operations.size() && plain_ended == plain_ones.size();
  }

  struct Report {
    Instant when;
    std::string sentence;
  };
  SimLoop loop;
  SimCompute compute;
  Lane lane;
  std::optional<Lane::Waiting> waits{std::in_place,
                                     lane};  // set: the rank waits for its operations; empty: it computes
  Stop stop;                                 // for the test's programs
  std::optional<Context> context;
  std::vector<Report> reports;
  std::deque<std::vector<float>> data;
  std::vector<std::unique_ptr<GroupOperation>> operations;
  std::size_t ended = 0;                                   // how many operations have ended, counted from the first
  std::vector<std::unique_ptr<RequestedWork>> plain_ones;  // of sum_plainly()
  std::size_t plain_ended = 0;
};

class SimJob {
 public:
  // Rank i is on host hosts[i]. `wrap`, if any, wraps each rank's port; `compute`, if any, is that of all.
  explicit SimJob(const std::vector<std::uint32_t>& hosts, std::uint64_t seed = 1, FabricModel model = {},
                  const SimContext::WrapPort& wrap = {}, Compute* compute = nullptr)
      : world(seed) {
    std::vector<Member> members;
    for (const std::uint32_t host : hosts) members.push_back({static_cast<std::uint32_t>(members.size()), 0, host});
    view = std::make_shared<const View>(1, 0, 0, 0, std::move(members));
    if (view->hosts() > 1) fabric.emplace(world, view, model);
    for (int host = 0; host < view->hosts(); ++host) {
      const auto here = view->ranks_on_host(host).size();
      memories.push_back(here == 1 ? nullptr : std::make_unique<SimHostMemory>(world, static_cast<int>(here)));
    }
    for (int rank = 0; rank < view->size(); ++rank) {
      ranks.push_back(std::make_unique<SimContext>(world, memories[static_cast<std::size_t>(view->host_of(rank))].get(),
                                                   fabric ? &*fabric : nullptr, view, rank, wrap, compute));
    }
    Stop stop;
    std::vector<Task<void>> opening;
    for (auto& rank : ranks) opening.push_back(rank->context->open(stop));
    for (Task<void>& task : opening) task.start();
    for (Task<void>& task : opening) {
      EXPECT_TRUE(world.run_while_not([&] { return task.done(); }));
      task.take();
    }
    began = world.now();
  }
  SimContext& operator[](int rank) { return *ranks[static_cast<std::size_t>(rank)]; }
  int size() const { return static_cast<int>(ranks.size()); }
  bool all_done() const {
    return std::all_of(ranks.begin(), ranks.end(),
                       [](const auto& rank) { return rank->loop.dead() || rank->all_done(); });
  }
  void finish() {
    EXPECT_TRUE(world.run_while_not([this] { return all_done(); })) << world.recent();
  }
  Duration elapsed() const { return world.now() - began; }

  World world;
  ViewPtr view;
  std::optional<SimFabric> fabric;
  std::vector<std::unique_ptr<SimHostMemory>> memories;
  std::vector<std::unique_ptr<SimContext>> ranks;
  Instant began{};
};

// Runs what `make(*rank, stop)` returns for each of `ranks`, a task, until all have ended.
template <class Rank, class Make>
void run_all(SimJob& job, std::vector<std::unique_ptr<Rank>>& ranks, Make&& make) {
  Stop stop;
  std::vector<Task<void>> tasks;
  for (auto& rank : ranks) tasks.push_back(make(*rank, stop));
  for (Task<void>& task : tasks) task.start();
  const auto ended = [&] {
    return testing::Test::HasFatalFailure() ||
           std::all_of(tasks.begin(), tasks.end(), [](const Task<void>& task) { return task.done(); });
  };
  ASSERT_TRUE(job.world.run_while_not(ended)) << job.world.recent();
  for (Task<void>& task : tasks) task.take();
}

inline Error error_of(const RequestedWork& operation) {
  EXPECT_TRUE(operation.done());
  return operation.error() ? as_error(operation.error()) : Error(Code::kOk, "");
}

}  // namespace aiacc::sim
