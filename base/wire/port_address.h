// How ranks of other hosts reach a rank. It has one address for each network that it can open a port on; the messages of launch
// and rendezvous carry the list and do not read it, except for TCP's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace aiacc::wire {

struct PortAddress {
  std::string transport;            // "tcp"
  std::vector<std::uint8_t> bytes;  // the transport's own; of "tcp" a port, u16, at the addresses of the rank's host
  auto fields() { return std::tie(transport, bytes); }
  bool operator==(const PortAddress&) const = default;
};

// Of one rank, the preferred first; empty in a job of one host.
struct RankPorts {
  std::vector<PortAddress> ports;
  auto fields() { return std::tie(ports); }
  bool operator==(const RankPorts&) const = default;

  const PortAddress* find(std::string_view transport) const noexcept {
    const auto at =
        std::find_if(ports.begin(), ports.end(), [&](const PortAddress& port) { return port.transport == transport; });
    return at == ports.end() ? nullptr : &*at;
  }
};

inline constexpr std::string_view kTcp = "tcp";

inline PortAddress tcp_address(std::uint16_t port) {
  return {std::string(kTcp), {static_cast<std::uint8_t>(port & 0xff), static_cast<std::uint8_t>(port >> 8)}};
}

// nullopt: these bytes are no TCP port.
inline std::optional<std::uint16_t> tcp_port_of(const std::vector<std::uint8_t>& bytes) noexcept {
  if (bytes.size() != 2 || (bytes[0] | bytes[1]) == 0) return std::nullopt;
  return static_cast<std::uint16_t>(bytes[0] | bytes[1] << 8);
}

// nullopt: the rank has no TCP port.
inline std::optional<std::uint16_t> tcp_port_of(const RankPorts& rank) noexcept {
  const PortAddress* const address = rank.find(kTcp);
  return address == nullptr ? std::nullopt : tcp_port_of(address->bytes);
}

}  // namespace aiacc::wire
