// SimFabric: the network between simulated ranks that whole messages cross. It holds the cost of links, which links are
// cut or slow, and which ranks are dead; SimPort (sim_port.h) is one rank's end of it.
//
// Cost of a message of S bytes, LogGP style (Alexandrov et al., SPAA 1995), in integer nanoseconds:
//   overhead on the sender, S/bandwidth on its way out (one message of a class at a time), latency and jitter, and
//   S/bandwidth on the way in, where senders to one receiver queue.
//
// Only ranks that have communicated with a rank are notified of its death directly (as with connections); others learn
// of it when they first send to it, or from an abort notice.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/sim/sim_loop.h"
#include "base/sim/world.h"
#include "base/view.h"
#include "transports/sim/sim_channel.h"

namespace aiacc::sim {

struct LinkModel {
  Duration latency = std::chrono::microseconds(5);
  std::uint64_t bytes_per_second = 12'500'000'000;    // 100 Gb/s
  Duration overhead = std::chrono::nanoseconds(400);  // of the sender's CPU, each message
  Duration jitter = std::chrono::nanoseconds(200);    // uniform below this, on top of the latency
};

struct FabricModel {
  LinkModel between_hosts;
  LinkModel within_host{std::chrono::nanoseconds(500), 40'000'000'000, std::chrono::nanoseconds(100),
                        std::chrono::nanoseconds(50)};
  Duration detection = std::chrono::milliseconds(1);  // from a death until the first peer learns of it
  Duration lease = std::chrono::seconds(30);          // a peer counts as lost after its link was cut for this long
  bool one_queue = false;  // of what a rank sends, for all classes: what is short waits behind what is long
};

class SimPort;

class SimFabric final : private DeathWatcher {
 public:
  SimFabric(World& world, ViewPtr members, FabricModel model = {});
  ~SimFabric();

  // The port of `rank`, which lives on `loop`. A rank has one; it must be destroyed before the fabric.
  std::unique_ptr<SimPort> open(int rank, SimLoop& loop);

  // Nothing crosses between the two ranks until heal(); messages in flight wait.
  void cut(int rank, int other);
  void heal(int rank, int other);
  // Latency and transfer take `factor` times as long from now on.
  void slow(int rank, int other, unsigned factor);

  World& world() noexcept { return world_; }
  const FabricModel& model() const noexcept { return model_; }
  TrafficClass queue_of(TrafficClass traffic) const noexcept {
    return model_.one_queue ? TrafficClass::kBulk : traffic;
  }
  std::uint64_t messages() const noexcept { return messages_; }
  std::uint64_t bytes() const noexcept { return bytes_; }  // of all payloads

 private:
  friend class SimPort;
  friend class SimChannel;
  struct LinkState {
    bool cut = false;
    Instant since{};
    std::uint64_t cuts = 0;
    unsigned factor = 1;
  };

  void node_died(NodeId node) noexcept override;
  SimPort* port(int rank) const noexcept { return ports_[static_cast<std::size_t>(rank)]; }
  const LinkModel& link(int from, int to) const noexcept;
  const LinkState* state(int from, int to) const noexcept;
  bool is_cut(int from, int to) const noexcept;
  Duration latency(int from, int to);
  Duration transfer(int from, int to, std::uint64_t bytes) const noexcept;
  SimChannel& channel(int from, int to, TrafficClass traffic);
  std::string name(int rank) const;
  void recycle(SimMessages& messages) noexcept;

  World& world_;
  ViewPtr members_;
  FabricModel model_;
  std::uint64_t messages_ = 0;
  std::uint64_t bytes_ = 0;
  SimMessages spare_;
  std::vector<SimPort*> ports_;
  std::vector<NodeId> nodes_;  // of each rank that ever had a port; outlives the port
  std::map<std::pair<int, int>, LinkState> links_;
  std::map<std::tuple<int, int, TrafficClass>, std::unique_ptr<SimChannel>> channels_;
};

}  // namespace aiacc::sim
