// Names of hosts. The one place that asks the system's resolver, and blocks the calling thread meanwhile: for coming up only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/io/net.h"
#include "base/time.h"

namespace aiacc::io {

// "host:4242", "192.0.2.1:4242" or "[2001:db8::1]:4242", as a user writes it.
struct HostPort {
  std::string host;  // without brackets
  std::uint16_t port = 0;

  // Throws kInvalidArgument; `what` begins the sentence: "AIACC_RENDEZVOUS".
  static HostPort parse(std::string_view what, const std::string& text);
};

bool is_numeric_address(const std::string& host) noexcept;

// Of this host alone: 127.0.0.0/8, ::1, and the IPv4 ones written as IPv6.
bool is_loopback(const std::string& numeric) noexcept;

// Addresses of a host by which TCP connects, each once, in the order that the system gives. Throws kPeerFailed with the
// resolver's words if the name is not known, or not yet, and if the resolver does not answer within `limit`: it may wait for
// minutes for a name server.
std::vector<Address> resolve(const HostPort& place, Duration limit);

}  // namespace aiacc::io
