// SimCluster: a world of simulated ranks, each with its loop, port and messenger, and a program, which is one coroutine.
// For tests and for predicting how a cluster behaves. Ranks of one host share memory, if the cluster has several ranks
// a host.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/sim/sim_compute.h"
#include "base/sim/sim_loop.h"
#include "base/sim/world.h"
#include "base/task/scope.h"
#include "base/view.h"
#include "transports/messenger.h"
#include "transports/sim/sim_domain.h"
#include "transports/sim/sim_fabric.h"
#include "transports/sim/sim_port.h"

namespace aiacc::sim {

class SimCluster;

class SimRank final : private Root::Owner {
 public:
  SimRank(SimCluster& cluster, int rank);
  ~SimRank();  // a program that has not ended is stopped, and unwinds outside of time

  // The program begins at the current instant. Several may run one after another; each starts after the one before has
  // ended.
  void start(Task<void> program);

  int rank() const noexcept { return rank_; }
  bool ended() const noexcept { return !root_ || ended_; }
  Instant ended_at() const noexcept { return ended_at_; }
  // What the last program threw, or nullopt.
  std::optional<Error> error() const noexcept { return error_ ? std::optional(as_error(error_)) : std::nullopt; }

  SimLoop& loop() noexcept { return loop_; }
  Messenger& messenger() noexcept { return messenger_; }
  Mailbox& mailbox() noexcept { return messenger_.mailbox(); }
  Compute& compute() noexcept { return compute_; }
  SimDomain* domain() noexcept { return domain_.get(); }  // null if it is alone on its host, or hosts have no memory
  Stop& stop() noexcept { return stop_; }

 private:
  void root_ended(Root& root, std::exception_ptr error) noexcept override;

  int rank_;
  SimLoop loop_;
  SimCompute compute_{loop_};
  std::unique_ptr<SimDomain> domain_;
  std::unique_ptr<SimPort> port_;
  Messenger messenger_;
  Stop stop_;
  std::optional<Root> root_;
  bool ended_ = false;
  Instant ended_at_{};
  std::exception_ptr error_;
};

class SimCluster {
 public:
  // `ranks` ranks, `per_host` on each host.
  SimCluster(std::uint64_t seed, int ranks, FabricModel model = {}, int per_host = 1);
  // Rank r is on host hosts[r]; ranks of a host share memory.
  SimCluster(std::uint64_t seed, const std::vector<std::uint32_t>& hosts, FabricModel model = {});

  World& world() noexcept { return world_; }
  SimFabric& fabric() noexcept { return fabric_; }
  const ViewPtr& view() const noexcept { return view_; }
  int size() const noexcept { return view_->size(); }
  SimRank& rank(int rank) noexcept { return *ranks_[static_cast<std::size_t>(rank)]; }

  void kill(int rank) { world_.kill(this->rank(rank).loop().node()); }
  void freeze(int rank) { world_.freeze(this->rank(rank).loop().node()); }
  void thaw(int rank) { world_.thaw(this->rank(rank).loop().node()); }

  // Runs until every program has ended or no event is left; returns whether the programs of all living ranks have
  // ended.
  bool run();

 private:
  friend class SimRank;
  World world_;
  ViewPtr view_;
  SimFabric fabric_;
  std::vector<std::unique_ptr<SimHostMemory>> memories_;  // of each host of the view; null if it has one rank, or none
  std::vector<std::unique_ptr<SimRank>> ranks_;
};

}  // namespace aiacc::sim
