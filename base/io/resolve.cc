#include "base/io/resolve.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>

#include "base/error.h"

namespace aiacc::io {

HostPort HostPort::parse(std::string_view what, const std::string& text) {
  const auto reject = [&](std::string_view why) {
    return Error(Code::kInvalidArgument,
                 fmt::format("{}={}: {}; write host:4242, 192.0.2.1:4242 or [2001:db8::1]:4242", what, text, why));
  };
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) throw reject("the port is missing");
  HostPort place;
  place.host = text.substr(0, colon);
  const bool bracketed = place.host.size() > 2 && place.host.front() == '[' && place.host.back() == ']';
  if (bracketed) place.host = place.host.substr(1, place.host.size() - 2);
  if (place.host.empty()) throw reject("the host is missing");
  if (!bracketed && place.host.find(':') != std::string::npos) throw reject("an IPv6 address stands in brackets");
  in6_addr scratch{};
  if (bracketed && ::inet_pton(AF_INET6, place.host.c_str(), &scratch) != 1) {
    throw reject("what stands in brackets is no IPv6 address");
  }
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data() + colon + 1, end, place.port);
  if (error != std::errc() || rest != end || place.port == 0) throw reject("the port is not a number from 1 to 65535");
  return place;
}

bool is_numeric_address(const std::string& host) noexcept {
  in6_addr scratch{};
  return ::inet_pton(AF_INET, host.c_str(), &scratch) == 1 || ::inet_pton(AF_INET6, host.c_str(), &scratch) == 1;
}

bool is_loopback(const std::string& numeric) noexcept {
  in_addr v4{};
  if (::inet_pton(AF_INET, numeric.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6{};
  if (::inet_pton(AF_INET6, numeric.c_str(), &v6) != 1) return false;
  return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

std::vector<Address> resolve(const HostPort& place) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(place.host.c_str(), nullptr, &hints, &list);
  if (error != 0) {
    throw Error(Code::kPeerFailed,
                fmt::format("the host '{}' has no known address: {}", place.host, ::gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, ::freeaddrinfo);
  std::vector<Address> found;
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next) {
    std::array<char, INET6_ADDRSTRLEN> text{};
    const void* bytes = one->ai_family == AF_INET
                            ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(one->ai_addr)->sin_addr)
                            : &reinterpret_cast<const sockaddr_in6*>(one->ai_addr)->sin6_addr;
    if (::inet_ntop(one->ai_family, bytes, text.data(), text.size()) == nullptr) continue;
    const Address address = Address::tcp(text.data(), place.port);
    if (std::find(found.begin(), found.end(), address) == found.end()) found.push_back(address);
  }
  return found;
}

}  // namespace aiacc::io
