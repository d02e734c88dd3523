// Networks of real ranks: which transports a rank offers to its peers, and in which order.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/io/clock.h"
#include "base/io/real_loop.h"
#include "base/io/real_net.h"
#include "transports/port_factory.h"

namespace aiacc {

struct NetworkSettings {
  io::TcpSettings tcp;
  Network network = Network::kAuto;
  std::string algorithms;        // AIACC_ALGORITHM, which all ranks must have alike
  std::string algorithm_table;   // of rank 0, for all (algorithm_table.h)
  bool protection = false;       // is asked for, which UCX and libfabric do not have
  std::vector<std::string> ucx;  // "UCX_TLS=tcp"
  std::vector<std::string> ofi;  // "OFI_PROVIDER=shm"
};

// The RDMA devices of this host: those that UCX drives, and those of Amazon's EFA, for which there is libfabric.
struct RdmaDevices {
  bool other = false;
  bool efa = false;
  bool any() const noexcept { return other || efa; }
};
RdmaDevices rdma_devices(const std::filesystem::path& folder = "/sys/class/infiniband");

// TCP always, because ranks of a rendezvous tell each other its address; UCX and libfabric before it as the settings say. All
// but the listener outlive the port. Throws kUnsupported if one of these is demanded and there is none.
NetworkPorts networks_of(io::RealLoop& loop, io::RealNet& net, io::Entropy& entropy,
                         std::unique_ptr<io::Listener> listener, const NetworkSettings& settings);

}  // namespace aiacc
