// RendezvousBootstrap: the provider for ranks that were not started by aiaccrun and have a rendezvous endpoint
// (runtime/rendezvous/rendezvous_endpoint.h). Rank 0 gathers them, ranks of one host find each other and share memory,
// and ranks of other hosts are reached over a network. Rank 0 reports lost ranks for as long as it lives.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/io/real_clock.h"
#include "base/io/real_loop.h"
#include "base/io/real_net.h"
#include "base/io/real_processes.h"
#include "runtime/bootstrap/bootstrap.h"
#include "runtime/bootstrap/networks.h"
#include "runtime/bootstrap/shm_discovery.h"
#include "runtime/rendezvous/rendezvous.h"

namespace aiacc {

class RendezvousBootstrap final : public Bootstrap {
 public:
  struct Settings {
    int rank = 0;
    int size = 1;
    std::string job;      // the name that the user gave
    std::string version;  // of the library
    std::string host_name;
    std::vector<std::string> addresses;  // this host's
    Duration limit{};                    // for the rendezvous
    NetworkSettings network;
    std::uint64_t slice_bytes = 0;
    bool share_memory = true;                   // false: with no rank; for tests
    TellUser tell = [](const std::string&) {};  // what the rendezvous waits for, when it takes long
  };
  RendezvousBootstrap(io::RealLoop& loop, std::unique_ptr<RendezvousEndpoint> endpoint, Settings settings);
  ~RendezvousBootstrap() override;

  Task<BootstrapResult> join(Stop& stop) override;
  void observe(BootstrapObserver& observer) noexcept override { rendezvous_->observe(observer); }
  bool leaves_alone() const noexcept override { return leaves_alone_; }
  Task<void> leave(Instant end, Stop& stop) override { return rendezvous_->leave(end, stop); }

 private:
  wire::Arrive introduction() const;
  Task<wire::Roster> gather(Stop& stop);
  BootstrapResult bootstrapped_of(const wire::Roster& roster, const std::vector<std::int32_t>& firsts,
                                  std::unique_ptr<HostDomain> host);

  io::RealLoop& loop_;
  io::RealNet net_;
  io::RealEntropy entropy_;
  io::RealProcesses processes_;
  std::unique_ptr<RendezvousEndpoint> endpoint_;
  Settings settings_;
  bool leaves_alone_ = false;
  NetworkPorts networks_;  // used until start
  std::unique_ptr<ShmDomainDiscovery> shm_discovery_;
  std::unique_ptr<Rendezvous> rendezvous_;
};

}  // namespace aiacc
