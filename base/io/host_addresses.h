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

// A bridge or a pair of a container runtime, by its name.
bool of_containers(std::string_view interface);

// Numeric addresses, the likeliest first: the one on which ssh came in, then IPv4 before IPv6 in the order of interfaces.
// Bridges and pairs of container runtimes, whose private addresses are the same on every host, count only where there is
// nothing else.
std::vector<std::string> choose_addresses(std::span<const InterfaceAddress> found, const std::string& ssh_connection);

// Of this host, with the SSH_CONNECTION of `environment`.
std::vector<std::string> host_addresses(const std::vector<std::string>& environment);

}  // namespace aiacc::io
