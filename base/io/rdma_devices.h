// The RDMA devices of this host, as the kernel describes them in /sys: their ports, addresses (GIDs) and counters, and what marks their
// packets. libibverbs says less than these files, which can also be read where it is not installed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace aiacc::io {

struct RdmaGid {
  int index = 0;
  std::string text;    // "0000:0000:0000:0000:0000:ffff:0a63:0001"
  std::string type;    // "RoCE v2", "IB/RoCE v1"
  std::string device;  // the network device whose address it is; "" on InfiniBand
};

struct RdmaPort {
  int number = 0;
  std::string state;       // "ACTIVE", "DOWN", "INIT"
  std::string physical;    // "LinkUp", "Disabled", "Polling"
  std::string link_layer;  // "Ethernet" (RoCE), "InfiniBand"
  std::string rate;        // "100 Gb/sec (4X EDR)"
  std::vector<RdmaGid> gids;
  std::optional<int>
      forced_traffic_class;  // what the driver gives every connection, whatever was asked for (drivers outside the kernel)
  std::optional<int> rdma_cm_tos;  // what connections of rdma_cm get if nothing else was asked for (configfs)

  bool active() const noexcept { return state == "ACTIVE"; }
  bool ethernet() const noexcept { return link_layer == "Ethernet"; }
  // The network device of its GIDs; "" if none has one.
  std::string net_device() const;
};

struct RdmaDevice {
  std::string name;    // "mlx5_0"
  std::string driver;  // "mlx5_core"; "" for one of software
  std::string firmware;
  std::optional<int> numa;  // its NUMA domain
  std::string node;         // of libibverbs, "/dev/infiniband/uverbs0"; "" if there is none
  bool usable = false;      // this process may open it
  std::vector<RdmaPort> ports;

  bool efa() const noexcept { return driver == "efa"; }
  bool has_active_port() const noexcept;
};

// Devices by name, ports by number. `root`: a test's in place of the file system's.
std::vector<RdmaDevice> rdma_devices(const std::filesystem::path& root = "/");

// The counters of a port by the driver's names, those of both folders (counters, hw_counters) that can be read. Some drivers ask their
// adapter for each.
std::map<std::string, std::uint64_t> rdma_counters(const std::string& device, int port,
                                                   const std::filesystem::path& root = "/");

}  // namespace aiacc::io
