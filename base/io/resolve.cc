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
#include "base/io/real_clock.h"

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
  if (!bracketed && place.host.find(':') != std::string::npos) throw reject("an IPv6 address must be in brackets");
  in6_addr scratch{};
  if (bracketed && ::inet_pton(AF_INET6, place.host.c_str(), &scratch) != 1) {
    throw reject("the text in brackets is no IPv6 address");
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

namespace {

using AddressList = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

// The memory that a lookup uses until it ends, which may be after its caller has timed out.
struct Lookup {
  std::string host;
  addrinfo hints{};
  gaicb request{};
};

// Returns the lookup's error; EAI_INPROGRESS after the limit.
int wait_for(gaicb& request, Duration limit) {
  gaicb* all[] = {&request};
  int error = ::getaddrinfo_a(GAI_NOWAIT, all, 1, nullptr);
  if (error != 0) return error;
  RealClock clock;
  const Instant end = after(clock.now(), limit);
  for (;;) {
    error = ::gai_error(&request);
    const std::int64_t left = Duration(end - clock.now()).count();
    if (error != EAI_INPROGRESS || left <= 0) return error;
    const timespec wait{left / 1'000'000'000, left % 1'000'000'000};
    ::gai_suspend(all, 1, &wait);
  }
}

// Null if there was no answer in time. Numeric addresses need no name server.
AddressList look_up(const std::string& host, Duration limit) {
  auto lookup = std::make_unique<Lookup>();
  lookup->host = host;
  lookup->hints.ai_family = AF_UNSPEC;
  lookup->hints.ai_socktype = SOCK_STREAM;
  gaicb& request = lookup->request;
  request.ar_name = lookup->host.c_str();
  request.ar_request = &lookup->hints;
  int error = 0;
  if (is_numeric_address(host)) {
    error = ::getaddrinfo(request.ar_name, nullptr, &lookup->hints, &request.ar_result);
  } else {
    error = wait_for(request, limit);
  }
  if (error == EAI_INPROGRESS) {
    // The resolver may still write into this memory, so it is leaked.
    if (::gai_cancel(&request) != EAI_CANCELED) static_cast<void>(lookup.release());
    return {nullptr, ::freeaddrinfo};
  }
  if (error != 0) {
    throw Error(Code::kPeerFailed, fmt::format("the host '{}' has no known address: {}", host, ::gai_strerror(error)));
  }
  return {request.ar_result, ::freeaddrinfo};
}

}  // namespace

std::vector<Address> resolve(const HostPort& place, Duration limit) {
  const AddressList list = look_up(place.host, limit);
  if (list == nullptr) {
    throw Error(Code::kPeerFailed,
                fmt::format("the host '{}' has no known address: the system's resolver did not answer "
                            "within {:.6g} s",
                            place.host, seconds(limit)));
  }
  std::vector<Address> found;
  for (const addrinfo* one = list.get(); one != nullptr; one = one->ai_next) {
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
