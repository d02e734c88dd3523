#include "base/io/traffic_marks.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/error.h"
#include "base/quantity.h"

namespace aiacc::io {
namespace {

struct Key {
  std::string_view name;
  std::optional<int> TrafficMarks::*value;
  int lowest;
  int highest;
};
constexpr std::array kKeys = {Key{"dscp", &TrafficMarks::dscp, 0, 63},
                              Key{"priority", &TrafficMarks::priority, 0, TrafficMarks::kMostPriority},
                              Key{"share", &TrafficMarks::share, 1, TrafficMarks::kMostShare}};

// The units of tc(8), largest first.
struct RateUnit {
  std::string_view name;
  std::uint64_t bits;
};
constexpr std::array kUnits = {RateUnit{"gbit", 1'000'000'000}, RateUnit{"mbit", 1'000'000}, RateUnit{"kbit", 1'000},
                               RateUnit{"bit", 1}};

[[noreturn]] void refuse_marks(std::string_view name, std::string_view word) {
  std::string known;
  for (const Key& key : kKeys) {
    known += fmt::format("{}{}={} to {}", known.empty() ? "" : ", ", key.name, key.lowest, key.highest);
  }
  throw Error(
      Code::kInvalidArgument,
      fmt::format(
          "{}: '{}' is nothing that a traffic class has; it takes {}, rate=8kbit to 10000gbit, as in "
          "rate=500mbit, delay=10us to 1s, as in delay=2ms, or none, and lossless=yes or no, separated by commas",
          name, word, known));
}

template <class Number>
bool read(std::string_view text, Number& value) noexcept {
  const auto [stopped, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && stopped == text.data() + text.size();
}

std::optional<std::uint64_t> read_rate(std::string_view text) noexcept {
  for (const RateUnit& unit : kUnits) {
    std::uint64_t number = 0;
    if (!text.ends_with(unit.name)) continue;
    if (!read(text.substr(0, text.size() - unit.name.size()), number)) return std::nullopt;
    if (number > TrafficMarks::kMostRate / unit.bits || number * unit.bits < TrafficMarks::kLeastRate)
      return std::nullopt;
    return number * unit.bits;
  }
  return std::nullopt;
}

std::optional<Duration> read_delay(std::string_view text) noexcept {
  if (text == "none") return Duration{};
  const std::optional<Duration> delay = parse_duration(text);
  const bool possible = delay && *delay >= TrafficMarks::kLeastDelay && *delay <= TrafficMarks::kMostDelay;
  return possible ? delay : std::nullopt;
}

std::string text_of_rate(std::uint64_t rate) {
  for (const RateUnit& unit : kUnits) {
    if (rate % unit.bits == 0) return fmt::format("{}{}", rate / unit.bits, unit.name);
  }
  return {};
}

template <class Value>
void put(std::string_view name, std::string_view key, std::optional<Value>& into, Value value) {
  if (into) throw Error(Code::kInvalidArgument, fmt::format("{}: '{}' is there twice", name, key));
  into = value;
}

void parse_word(std::string_view name, std::string_view word, TrafficMarks& marks) {
  const std::size_t equals = word.find('=');
  if (equals == std::string_view::npos) refuse_marks(name, word);
  const std::string_view its = word.substr(0, equals), text = word.substr(equals + 1);
  if (its == "rate") {
    const std::optional<std::uint64_t> rate = read_rate(text);
    if (!rate) refuse_marks(name, word);
    return put(name, its, marks.rate, *rate);
  }
  if (its == "delay") {
    const std::optional<Duration> delay = read_delay(text);
    if (!delay) refuse_marks(name, word);
    return put(name, its, marks.delay, *delay);
  }
  if (its == "lossless") {
    if (text != "yes" && text != "no") refuse_marks(name, word);
    return put(name, its, marks.lossless, text == "yes");
  }
  for (const Key& key : kKeys) {
    int value = 0;
    if (its != key.name) continue;
    if (!read(text, value) || value < key.lowest || value > key.highest) break;
    return put(name, its, marks.*key.value, value);
  }
  refuse_marks(name, word);
}

template <class Value>
bool set(int descriptor, int level, int option, Value value) noexcept {
  return setsockopt(descriptor, level, option, &value, sizeof value) == 0;
}

}  // namespace

TrafficMarks TrafficMarks::parse(std::string_view name, const std::string& text) {
  TrafficMarks marks;
  for (std::string_view left = text; !left.empty();) {
    const std::size_t comma = left.find(',');
    parse_word(name, left.substr(0, comma), marks);
    if (comma == left.size() - 1) refuse_marks(name, "");
    left = comma == std::string_view::npos ? std::string_view() : left.substr(comma + 1);
  }
  return marks;
}

std::string TrafficMarks::text() const {
  std::string words;
  for (const Key& key : kKeys) {
    const std::optional<int>& value = this->*key.value;
    if (value) words += fmt::format("{}{}={}", words.empty() ? "" : ",", key.name, *value);
  }
  if (rate) words += fmt::format("{}rate={}", words.empty() ? "" : ",", text_of_rate(*rate));
  if (delay) words += fmt::format("{}delay={}", words.empty() ? "" : ",", limits_delay() ? text_of(*delay) : "none");
  if (lossless) words += fmt::format("{}lossless={}", words.empty() ? "" : ",", *lossless ? "yes" : "no");
  return words;
}

std::string mark_traffic(int descriptor, const TrafficMarks& marks) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  if (descriptor < 0 || getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) return {};
  const bool is_v6 = address.ss_family == AF_INET6;
  if (!is_v6 && address.ss_family != AF_INET) return {};
  bool marked = true;
  if (marks.dscp) {
    // A socket of IPv6 may carry IPv4, which takes its own option.
    marked = set(descriptor, IPPROTO_IP, IP_TOS, *marks.dscp << 2);
    if (is_v6) marked = set(descriptor, IPPROTO_IPV6, IPV6_TCLASS, *marks.dscp << 2);
  }
  // Last, because IP_TOS sets a priority, too.
  if (marked && marks.priority) marked = set(descriptor, SOL_SOCKET, SO_PRIORITY, *marks.priority);
  if (marked && marks.rate) marked = set(descriptor, SOL_SOCKET, SO_MAX_PACING_RATE, *marks.rate / 8);
  if (marked) return {};
  return system_error(fmt::format("a connection cannot have {}", marks.text()), errno).message();
}

}  // namespace aiacc::io
