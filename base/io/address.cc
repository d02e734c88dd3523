// Address: the text forms that net.h describes.
#include <arpa/inet.h>
#include <fmt/format.h>

#include <charconv>

#include "base/io/net.h"

namespace aiacc::io {
namespace {

[[noreturn]] void reject(const std::string& text, std::string_view why) {
  throw Error(Code::kInvalidArgument,
              fmt::format("'{}' is not an address: {}; write local:NAME, tcp:192.0.2.1:4242 or tcp:[2001:db8::1]:4242",
                          text, why));
}

bool is_numeric(int family, const std::string& ip) {
  in6_addr scratch{};
  return inet_pton(family, ip.c_str(), &scratch) == 1;
}

std::uint16_t parse_port(const std::string& text, std::string_view digits) {
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error != std::errc() || end != digits.data() + digits.size())
    reject(text, "the port is not a number up to 65535");
  return port;
}

}  // namespace

Address Address::parse(const std::string& text) {
  constexpr std::string_view kLocalPrefix = "local:";
  constexpr std::string_view kTcpPrefix = "tcp:";
  if (text.starts_with(kLocalPrefix)) {
    if (text.size() == kLocalPrefix.size()) reject(text, "the name is empty");
    return local(text.substr(kLocalPrefix.size()));
  }
  if (!text.starts_with(kTcpPrefix)) reject(text, "it begins neither with local: nor with tcp:");
  const std::string rest = text.substr(kTcpPrefix.size());
  const std::size_t colon = rest.rfind(':');
  if (colon == std::string::npos) reject(text, "the port is missing");
  const std::string place = rest.substr(0, colon);
  const std::uint16_t port = parse_port(text, std::string_view(rest).substr(colon + 1));
  const bool bracketed = place.size() > 2 && place.front() == '[' && place.back() == ']';
  const std::string ip = bracketed ? place.substr(1, place.size() - 2) : place;
  if (!is_numeric(bracketed ? AF_INET6 : AF_INET, ip)) {
    reject(text, bracketed ? "the text in brackets is no IPv6 address" : "it has no numeric IPv4 address");
  }
  return tcp(ip, port);
}

std::string Address::text() const {
  if (kind == Kind::kLocal) return "local:" + name;
  const bool v6 = name.find(':') != std::string::npos;
  return v6 ? fmt::format("tcp:[{}]:{}", name, port) : fmt::format("tcp:{}:{}", name, port);
}

}  // namespace aiacc::io
