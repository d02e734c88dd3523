// Networks of real ranks: which transports a rank offers to its peers, and in which order.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/config.h"
#include "base/io/clock.h"
#include "base/io/real_loop.h"
#include "base/io/real_net.h"
#include "base/time.h"
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
  Duration failback{};           // until a path of theirs that broke is tried again; zero: never
};

// The RDMA devices of this host that have an active port and that this process may open: whether there are any of Amazon's EFA, for
// which there is libfabric, and the names of the others, which UCX drives.
struct RdmaDevices {
  std::vector<std::string> others;
  bool efa = false;
};
// `root`: a test's in place of the file system's.
RdmaDevices usable_rdma_devices(const std::filesystem::path& root = "/");

// Whether a transport that describes itself so uses one of them: "UCX 1.13.1: tcp/eth0, rc_verbs/mlx5_0:1" uses mlx5_0. UCX may drive
// none of them, and would then be TCP without what aiacc's own transport over TCP has.
bool uses_one_of(const std::vector<std::string>& devices, std::string_view description);

// Why UCX must not be opened, "" if it may be: UCX 1.13 tries for ever to make a worker on a device for which it cannot lock its buffers.
// `lockable`: base/io/limits.h.
std::string obstacle_to_ucx(const std::vector<std::string>& devices, std::span<const std::string> settings,
                            std::optional<std::uint64_t> lockable);

// TCP always, because ranks of a rendezvous tell each other its address; UCX and libfabric before it as the settings say. All
// but the listener outlive the port. Throws kUnsupported if one of these is demanded and there is none.
NetworkPorts networks_of(io::RealLoop& loop, io::RealNet& net, io::Entropy& entropy,
                         std::unique_ptr<io::Listener> listener, const NetworkSettings& settings);

}  // namespace aiacc
