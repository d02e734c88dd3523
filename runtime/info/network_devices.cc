#include "runtime/info/network_devices.h"

#include <fmt/format.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <sstream>

#include "base/fd.h"
#include "base/io/host_addresses.h"

namespace aiacc::info {

namespace {

ifreq request_for(const std::string& name) {
  ifreq request{};
  std::strncpy(request.ifr_name, name.c_str(), IFNAMSIZ - 1);
  return request;
}

std::optional<int> integer(const std::optional<std::string>& text) {
  std::istringstream in(text.value_or(""));
  int value = 0;
  if (!(in >> value)) return std::nullopt;
  return value;
}

std::optional<int> not_negative(std::optional<int> value) { return value && *value >= 0 ? value : std::nullopt; }

// State and MTU come from the kernel for this network namespace. /sys may show the devices of another namespace; then the
// index there differs.
NetworkDevice read_device(const std::string& name, unsigned index, const Fd& socket, const ReadFile& read_file) {
  NetworkDevice device;
  device.name = name;
  ifreq request = request_for(name);
  if (ioctl(socket.get(), SIOCGIFFLAGS, &request) == 0) {
    const auto flags = static_cast<unsigned>(request.ifr_flags);
    device.loopback = (flags & IFF_LOOPBACK) != 0;
    device.state = (flags & IFF_UP) == 0 ? "down" : (flags & IFF_RUNNING) == 0 ? "no carrier" : "up";
  }
  request = request_for(name);
  if (ioctl(socket.get(), SIOCGIFMTU, &request) == 0) device.mtu = request.ifr_mtu;
  const std::string folder = "/sys/class/net/" + name;
  if (integer(read_file(folder + "/ifindex")) != static_cast<int>(index)) return device;
  device.speed_mbit = not_negative(integer(read_file(folder + "/speed")));
  device.numa = not_negative(integer(read_file(folder + "/device/numa_node")));
  return device;
}

std::string reason(const NetworkDevice& device, std::size_t chosen, bool came_by_ssh) {
  if (device.choice == 0) {
    if (came_by_ssh) return "tried first: ssh came in on it";
    return chosen == 1 ? "the only one that others could reach"
                       : "tried first: IPv4 before IPv6, in the kernel's order";
  }
  if (device.choice) return "tried when those before it do not answer";
  if (device.loopback) return "loopback reaches this host only";
  if (device.state == "down") return "it is down";
  if (device.addresses.empty()) return "it has no address of IPv4 or IPv6";
  if (device.link_local_only) return "it has link-local addresses only";
  if (io::of_containers(device.name)) return "of a container runtime: such addresses repeat on every host";
  return "its addresses are another device's too";
}

std::vector<NetworkDevice> read_devices(const ReadFile& read_file) {
  std::vector<NetworkDevice> devices;
  const Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const std::unique_ptr<struct if_nameindex, void (*)(struct if_nameindex*)> names(::if_nameindex(),
                                                                                   ::if_freenameindex);
  for (const struct if_nameindex* one = names.get(); one != nullptr && one->if_index != 0; ++one) {
    devices.push_back(read_device(one->if_name, one->if_index, socket, read_file));
  }
  return devices;
}

}  // namespace

std::vector<NetworkDevice> network_devices(const ReadFile& read_file, const std::string& ssh_connection) {
  std::vector<NetworkDevice> devices = read_devices(read_file);
  const std::vector<io::InterfaceAddress> found = io::interface_addresses();
  const std::vector<std::string> order = io::choose_addresses(found, ssh_connection);
  const std::vector<std::string> usual = io::choose_addresses(found, "");
  std::vector<std::string> owners;  // of the addresses of `order`
  for (const std::string& address : order) {
    const auto owner = std::find_if(found.begin(), found.end(), [&](const io::InterfaceAddress& one) {
      return one.address == address && one.usable;
    });
    owners.push_back(owner->interface);
  }
  for (NetworkDevice& device : devices) {
    bool usable = false;
    for (const io::InterfaceAddress& one : found) {
      if (one.interface != device.name) continue;
      device.addresses.push_back(one.address);
      usable |= one.usable;
    }
    device.link_local_only = !device.addresses.empty() && !usable && !device.loopback;
    const auto first = std::find(owners.begin(), owners.end(), device.name);
    if (first != owners.end()) device.choice = static_cast<int>(first - owners.begin());
    device.why = reason(device, order.size(), !order.empty() && order != usual);
  }
  return devices;
}

Json to_json(const std::vector<NetworkDevice>& devices) {
  const auto or_null = [](const std::optional<int>& value) { return value ? Json(*value) : Json(); };
  Json::Array list;
  for (const NetworkDevice& device : devices) {
    Json::Array addresses;
    for (const std::string& address : device.addresses) addresses.emplace_back(address);
    list.push_back(Json::Object{{"name", device.name},
                                {"state", device.state},
                                {"addresses", std::move(addresses)},
                                {"mtu", or_null(device.mtu)},
                                {"speed_mbit", or_null(device.speed_mbit)},
                                {"numa", or_null(device.numa)},
                                {"chosen", device.choice.has_value()},
                                {"order", or_null(device.choice)},
                                {"why", device.why}});
  }
  return list;
}

}  // namespace aiacc::info
