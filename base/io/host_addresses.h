// The addresses under which other hosts may reach this one.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace aiacc::io {

struct InterfaceAddress {
  std::string interface;  // "eth0"
  std::string address;    // numeric, without a scope
  bool usable = true;     // up, not loopback, not link-local
};

// Every address of every interface, those of IPv4 and IPv6, in the order of the kernel.
std::vector<InterfaceAddress> interface_addresses();

// Whether the name is that of a container runtime's bridge or veth pair.
bool of_containers(std::string_view interface);

// Numeric addresses, the most likely to be reachable first: the one that ssh connected to, then IPv4 before IPv6 in the
// order of interfaces. Interfaces of container runtimes, whose private addresses are equal on every host, are used only
// if there is no other.
std::vector<std::string> choose_addresses(std::span<const InterfaceAddress> found, const std::string& ssh_connection);

// The same for this host's interfaces and the SSH_CONNECTION of `environment`.
std::vector<std::string> host_addresses(const std::vector<std::string>& environment);

}  // namespace aiacc::io
