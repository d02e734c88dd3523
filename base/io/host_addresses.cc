#include "base/io/host_addresses.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <memory>
#include <sstream>

namespace aiacc::io {

namespace {

constexpr std::array<std::string_view, 7> kContainerPrefixes = {"docker", "br-",     "virbr", "veth",
                                                                "cni",    "flannel", "cali"};

// SSH_CONNECTION is "CLIENT PORT SERVER PORT": the third word is the address of this host that ssh connected to.
std::string server_of(const std::string& ssh_connection) {
  std::istringstream in(ssh_connection);
  std::string client, port, server;
  in >> client >> port >> server;
  return server;
}

std::string text_of(const sockaddr& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* bytes = address.sa_family == AF_INET
                          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in&>(address).sin_addr)
                          : &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  return ::inet_ntop(address.sa_family, bytes, text.data(), text.size()) == nullptr ? "" : text.data();
}

bool link_local(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    return (ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 16) == 0xA9FE;  // 169.254.0.0/16
  }
  return IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

}  // namespace

bool of_containers(std::string_view interface) {
  return std::any_of(kContainerPrefixes.begin(), kContainerPrefixes.end(),
                     [&](std::string_view prefix) { return interface.starts_with(prefix); });
}

std::vector<InterfaceAddress> interface_addresses() {
  std::vector<InterfaceAddress> found;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return found;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr) continue;
    if (one->ifa_addr->sa_family != AF_INET && one->ifa_addr->sa_family != AF_INET6) continue;
    const bool up = (one->ifa_flags & IFF_UP) != 0 && (one->ifa_flags & IFF_LOOPBACK) == 0;
    found.push_back({one->ifa_name, text_of(*one->ifa_addr), up && !link_local(*one->ifa_addr)});
  }
  return found;
}

std::vector<std::string> choose_addresses(std::span<const InterfaceAddress> found, const std::string& ssh_connection) {
  std::vector<std::string> addresses;
  const std::string proved = server_of(ssh_connection);
  for (const bool containers : {false, true}) {
    for (const bool six : {false, true}) {
      for (const InterfaceAddress& one : found) {
        const bool is_six = one.address.find(':') != std::string::npos;
        if (!one.usable || is_six != six || of_containers(one.interface) != containers) continue;
        if (std::find(addresses.begin(), addresses.end(), one.address) == addresses.end()) {
          addresses.push_back(one.address);
        }
      }
    }
    if (!addresses.empty()) break;
  }
  const auto first = std::find(addresses.begin(), addresses.end(), proved);
  if (first != addresses.end()) std::rotate(addresses.begin(), first, first + 1);
  return addresses;
}

std::vector<std::string> host_addresses(const std::vector<std::string>& environment) {
  constexpr std::string_view kName = "SSH_CONNECTION=";
  std::string connection;
  for (const std::string& entry : environment) {
    if (entry.starts_with(kName)) connection = entry.substr(kName.size());
  }
  const std::vector<InterfaceAddress> found = interface_addresses();
  return choose_addresses(found, connection);
}

}  // namespace aiacc::io
