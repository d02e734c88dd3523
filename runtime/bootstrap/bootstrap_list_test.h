// ListBootstrap, for tests: the provider for ranks that get everything beforehand: their identity, the addresses of all
// others, and the job's secret. There is no rendezvous and nobody reports deaths; a rank notices only broken
// connections.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/io/real_clock.h"
#include "base/io/real_net.h"
#include "runtime/bootstrap/bootstrap.h"
#include "runtime/bootstrap/data_port.h"
#include "transports/host/memfd_domain.h"
#include "transports/host/segment.h"

namespace aiacc {

struct ListedRank {
  int rank = 0;
  ViewPtr world;
  JobPlaces places;
  std::string job_name;
  std::unique_ptr<io::Listener> listener;   // on this rank's port in the list of places
  std::shared_ptr<SegmentMapping> segment;  // of the ranks on this host; null if this one is alone here
};

class ListBootstrap final : public Bootstrap {
 public:
  // `me.listener` belongs to `loop`.
  ListBootstrap(io::RealLoop& loop, ListedRank me) : loop_(loop), net_(loop), me_(std::move(me)) {}

  Task<BootstrapResult> join(Stop& stop) override;
  void observe(BootstrapObserver&) noexcept override {}
  Task<void> leave(Instant end, Stop& stop) override;

 private:
  io::RealLoop& loop_;
  io::RealNet net_;
  io::RealEntropy entropy_;
  ListedRank me_;
};

inline Task<BootstrapResult> ListBootstrap::join(Stop& stop) {
  stop.throw_if_requested();
  const View& world = *me_.world;
  BootstrapResult bootstrapped;
  bootstrapped.rank = me_.rank;
  bootstrapped.world = me_.world;
  bootstrapped.job_name = me_.job_name;
  for (const JobPlaces::Host& host : me_.places.hosts) bootstrapped.host_names.push_back(host.name);
  bootstrapped.host_name = bootstrapped.host_names.at(world.member(me_.rank).host);
  if (me_.segment != nullptr) {
    bootstrapped.host = std::make_unique<MemfdDomain>(me_.segment, world.local_rank_of(me_.rank), loop_);
  }
  if (world.hosts() > 1) {
    NetworkPorts networks = network_ports(loop_, net_, entropy_, std::move(me_.listener));
    bootstrapped.port = open_data_port(networks, world, me_.rank, me_.places, kRefusedLimit);
  }
  co_return bootstrapped;
}

inline Task<void> ListBootstrap::leave(Instant, Stop&) { co_return; }

}  // namespace aiacc
