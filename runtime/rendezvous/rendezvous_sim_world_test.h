// A job whose ranks meet over the simulated network, each on a host of its own: for the tests of the rendezvous.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/io/processes.h"
#include "base/sim/sim_net.h"
#include "base/task/leave_deadline.h"
#include "runtime/rendezvous/rendezvous_client.h"
#include "runtime/rendezvous/rendezvous_server.h"

namespace aiacc::rendezvous_sim {

class SimEndpoint final : public RendezvousEndpoint {
 public:
  SimEndpoint(io::Address where, const wire::Secret& secret) : where_(std::move(where)), secret_(secret) {}
  std::unique_ptr<io::Listener> open(io::Net& net) override { return net.listen(where_); }
  wire::Secret secret() const override { return secret_; }
  Found find(Duration) override { return {{where_}, secret_}; }
  std::string name() const override { return where_.text(); }

 private:
  io::Address where_;
  wire::Secret secret_;
};

inline wire::Secret secret_of(char salt) { return wire::Secret::from(std::string(wire::Secret::kBytes, salt)); }

inline const io::Address kEndpoint = io::Address::tcp("192.0.2.1", 4242);

// A process on a host of its own.
struct Node {
  Node(sim::World& world, sim::SimNetwork& network, int host)
      : loop(world, "host " + std::to_string(host)), net(network, loop, host, {1000, 1}), entropy(world, loop.node()) {}
  sim::SimLoop loop;
  sim::SimNet net;
  sim::SimEntropy entropy;
};

// The ends of simulated processes, which all see each other unless told otherwise; "sim" stands for their namespaces, and the number is
// the node's.
class SimProcesses final : public io::Processes {
 public:
  SimProcesses(sim::World& world, sim::SimLoop& loop) : world_(world), loop_(loop) {}
  std::string own_name() const override { return seen ? "sim " + std::to_string(loop_.node()) + " 0" : std::string(); }
  std::unique_ptr<io::ProcessEnd> watch(const std::string& name) override {
    if (name.empty()) return nullptr;
    return std::make_unique<End>(world_, loop_, static_cast<sim::NodeId>(std::stoul(name.substr(4))));
  }

  bool seen = true;

 private:
  class End final : public io::ProcessEnd, private sim::DeathWatcher {
   public:
    End(sim::World& world, sim::SimLoop& loop, sim::NodeId node) : node_(node), ended_(loop) {
      world.watch_deaths(*this);
      if (world.dead(node)) ended_.set();
    }
    Task<void> wait(Stop& stop) override { co_await ended_.wait(stop); }
    std::string describe() const override { return "process " + std::to_string(node_); }

   private:
    void node_died(sim::NodeId node) noexcept override {
      if (node == node_) ended_.set();
    }
    sim::NodeId node_;
    Event ended_;
  };
  sim::World& world_;
  sim::SimLoop& loop_;
};

struct Lost final : BootstrapObserver {
  bool leaving(int rank) const noexcept override { return left.contains(rank); }
  void on_rank_lost(int rank, std::exception_ptr error) noexcept override {
    ranks.push_back(rank);
    sentences.push_back(as_error(error).message());
    if (next != nullptr) next->on_rank_lost(rank, std::move(error));
  }
  std::vector<int> ranks;
  std::vector<std::string> sentences;
  std::set<int> left;                 // in order, as the shared memory of the host would say
  BootstrapObserver* next = nullptr;  // told after this one
};

struct Rank {
  Rank(sim::World& world, sim::SimNetwork& network, int its_rank, int its_size)
      : node(world, network, its_rank), processes(world, node.loop), rank(its_rank), size(its_size), first(its_rank) {}
  ~Rank() {
    stop.request(std::make_exception_ptr(Error(Code::kAborted, "the simulation is over")));
    node.loop.bury();
  }
  wire::Arrive introduction() {
    wire::Arrive me;
    me.version = "1.2.3";
    me.rank = rank;
    me.size = size;
    me.host_name = "host" + std::to_string(rank);
    const auto port = static_cast<std::uint16_t>(1000 + rank);
    me.ports.ports = {wire::tcp_address(port)};
    me.addresses = {"192.0.2." + std::to_string(1 + rank)};
    me.process = processes.own_name();
    return me;
  }
  void listen() {
    const wire::Arrive me = introduction();
    data = node.net.listen(io::Address::tcp(me.addresses[0], *wire::tcp_port_of(me.ports)));
  }
  // Gathers, settles, and listens.
  void start(Duration when = Duration::zero(), Duration limit = std::chrono::seconds(60), char salt = 's') {
    task.emplace(run(when, limit, salt));
    task->start();
  }
  Task<void> run(Duration when, Duration limit, char salt) {
    try {
      co_await sleep_for(node.loop, when, stop);
      const Deadline deadline(node.loop, after(node.loop.now(), limit), stop, "too late");
      const wire::Arrive me = introduction();
      listen();
      endpoint.emplace(kEndpoint, secret_of(salt));
      if (rank == 0) {
        RendezvousServer::Listeners listeners{endpoint->open(node.net),
                                              node.net.listen(io::Address::tcp(kEndpoint.name, 0))};
        rendezvous = std::make_unique<RendezvousServer>(node.loop, node.net, std::move(listeners), endpoint->secret(),
                                                        node.entropy, me, endpoint->name(), limit);
      } else {
        rendezvous = std::make_unique<RendezvousClient>(node.loop, node.net, *endpoint, node.entropy, me, limit);
      }
      roster = co_await gather_and_tell(node.loop, *rendezvous, tell, stop);
      firsts = co_await rendezvous->agree_on_hosts(first, stop);
      rendezvous->watch_local_peers(processes, *roster, firsts);
      rendezvous->observe(lost);
    } catch (const Error& thrown) {
      error = thrown;
    }
  }
  bool done() const { return task->done(); }

  Node node;
  SimProcesses processes;
  int rank;
  int size;
  int first;  // of its host, as it says; its network is its own all the same
  Stop stop;
  Lost lost;
  std::unique_ptr<io::Listener> data;  // nobody accepts: this rank computes
  std::optional<SimEndpoint> endpoint;
  std::unique_ptr<Rendezvous> rendezvous;
  std::vector<std::string> told;
  TellUser tell = [this](const std::string& sentence) { told.push_back(sentence); };
  std::optional<wire::Roster> roster;
  std::vector<std::int32_t> firsts;
  std::optional<Error> error;
  std::optional<Task<void>> task;
};

struct RendezvousJob {
  explicit RendezvousJob(int size, std::uint64_t seed = 1) : world(seed) {
    for (int rank = 0; rank < size; ++rank) ranks.push_back(std::make_unique<Rank>(world, network, rank, size));
  }
  bool run_until(const std::function<bool()>& done, Duration limit = std::chrono::seconds(100)) {
    const Instant end = after(world.now(), limit);
    return world.run_while_not([&] { return done() || world.now() > end; }) && done();
  }
  bool all_done() {
    return std::all_of(ranks.begin(), ranks.end(), [](const auto& one) { return !one->task || one->done(); });
  }
  void expect_met() {
    ASSERT_TRUE(run_until([this] { return all_done(); }));
    for (const auto& one : ranks) {
      ASSERT_FALSE(one->error) << one->error->message();
      EXPECT_EQ(one->roster->job, ranks[0]->roster->job);
      EXPECT_EQ(one->roster->secret, ranks[0]->roster->secret);
      ASSERT_EQ(one->roster->ranks.size(), ranks.size());
      for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        EXPECT_EQ(wire::tcp_port_of(one->roster->ranks[rank].ports), 1000 + rank);
        EXPECT_EQ(one->firsts[rank], ranks[rank]->first);
      }
    }
  }
  Rank& rank(int number) { return *ranks[static_cast<std::size_t>(number)]; }
  // Together, within the time of last words.
  void expect_to_leave(const std::vector<int>& leaving) {
    Stop stop;
    std::vector<Task<void>> tasks;
    for (const int one : leaving) {
      tasks.push_back(rank(one).rendezvous->leave(leave_by(), stop));
      tasks.back().start();
    }
    const auto left = [&] { return std::all_of(tasks.begin(), tasks.end(), [](auto& task) { return task.done(); }); };
    EXPECT_TRUE(run_until(left, std::chrono::milliseconds(1100)));
  }

  Instant leave_by() const { return after(world.now(), LeaveDeadline::kLimit); }

  sim::World world;
  sim::SimNetwork network{world};
  std::vector<std::unique_ptr<Rank>> ranks;
};

}  // namespace aiacc::rendezvous_sim
