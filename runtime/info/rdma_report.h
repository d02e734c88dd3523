// The RDMA devices of this host, what their ports have counted, whether the Ethernet below RoCE is set for it, and what of this will
// make a job fail, run slowly or not use them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/io/priority_pause.h"
#include "base/io/rdma_devices.h"
#include "base/json.h"
#include "runtime/info/finding.h"

namespace aiacc::info {

struct RdmaReport {
  struct Port {
    io::RdmaPort port;
    std::map<std::string, std::uint64_t> counters;
    io::PriorityPause pause;  // of its network device
  };
  struct Device {
    io::RdmaDevice device;
    std::vector<Port> ports;
  };
  std::vector<Device> devices;
  // What messages over RoCE ask for: the byte of the IP header, DSCP * 4 + ECN.
  int traffic_class = 0;

  // `ucx`: settings of UCX, "UCX_IB_TRAFFIC_CLASS=104". `root`: a test's in place of the file system's.
  static RdmaReport read(std::span<const std::string> ucx, const std::filesystem::path& root = "/");

  // There is one that ranks can use.
  bool usable() const noexcept;
  // What the port's packets have: what the driver forces on them, or else traffic_class.
  int traffic_class_of(const io::RdmaPort& port) const noexcept {
    return port.forced_traffic_class.value_or(traffic_class);
  }
};

Json to_json(const RdmaReport& report);
Findings judge(const RdmaReport& report);

}  // namespace aiacc::info
