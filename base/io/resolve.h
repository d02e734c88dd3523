// Resolves names of hosts. The only code that calls the system's resolver. It blocks the calling thread, so it is for
// initialisation only.
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

// Whether it is a loopback address: 127.0.0.0/8, ::1, or an IPv4 one written as IPv6.
bool is_loopback(const std::string& numeric) noexcept;

// The TCP addresses of a host, each once, in the resolver's order. Throws kPeerFailed with the resolver's message if
// the name is unknown, perhaps only at present, or if the resolver does not answer within `limit`: it may wait minutes
// for a name server.
std::vector<Address> resolve(const HostPort& place, Duration limit);

}  // namespace aiacc::io
