// The network devices of this host, and the addresses by which other hosts would reach it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/cgroups.h"
#include "base/json.h"

namespace aiacc::info {

struct NetworkDevice {
  std::string name;
  std::string state;                   // "up", "no carrier", "down"
  std::vector<std::string> addresses;  // numeric
  std::optional<int> mtu;
  std::optional<int> speed_mbit;  // as the driver reports it
  std::optional<int> numa;        // its NUMA domain
  bool loopback = false;
  bool link_local_only = false;  // it has addresses, and each is link-local
  std::optional<int> choice;     // 0: its address is tried first, 1: second ...
  std::string why;               // why it is chosen or not
};

// `ssh_connection`: SSH_CONNECTION of the environment, or "".
std::vector<NetworkDevice> network_devices(const ReadFile& read_file, const std::string& ssh_connection);

Json to_json(const std::vector<NetworkDevice>& devices);

}  // namespace aiacc::info
