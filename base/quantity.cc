#include "base/quantity.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

namespace aiacc {
namespace {

struct Unit {
  std::string_view name;
  std::uint64_t factor;
};
// Largest first.
constexpr std::array<Unit, 7> kTimes{{{"d", 86'400'000'000'000},
                                      {"h", 3'600'000'000'000},
                                      {"m", 60'000'000'000},
                                      {"s", 1'000'000'000},
                                      {"ms", 1'000'000},
                                      {"us", 1'000},
                                      {"ns", 1}}};
constexpr std::array<Unit, 5> kSizes{
    {{"T", 1ull << 40}, {"G", 1ull << 30}, {"M", 1ull << 20}, {"K", 1ull << 10}, {"", 1}}};

// Splits "1.5m" into its number, scaled by the unit's factor; `unit` finds the factor or 0.
template <class FindUnit>
std::optional<std::uint64_t> parse_scaled(std::string_view text, FindUnit factor_of) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string_view number = text.substr(0, digits);
  const std::uint64_t factor = factor_of(text.substr(digits));
  if (factor == 0 || number.empty() || number == ".") return std::nullopt;
  std::uint64_t whole = 0;
  const char* const end = number.data() + number.size();
  if (const auto result = std::from_chars(number.data(), end, whole); result.ec == std::errc() && result.ptr == end) {
    std::uint64_t scaled = 0;
    if (__builtin_mul_overflow(whole, factor, &scaled)) return std::nullopt;
    return scaled;
  }
  double fraction = 0;
  const auto result = std::from_chars(number.data(), end, fraction, std::chars_format::fixed);
  if (result.ec != std::errc() || result.ptr != end) return std::nullopt;
  const double scaled = std::round(fraction * static_cast<double>(factor));
  if (!(scaled < 9.2e18)) return std::nullopt;
  return static_cast<std::uint64_t>(scaled);
}

template <std::size_t N>
std::string text_in(std::uint64_t value, const std::array<Unit, N>& units, std::string_view of_zero) {
  if (value == 0) return fmt::format("0{}", of_zero);
  for (const Unit& unit : units) {
    if (value % unit.factor == 0) return fmt::format("{}{}", value / unit.factor, unit.name);
  }
  return {};
}

}  // namespace

std::optional<Duration> parse_duration(std::string_view text) {
  const auto value = parse_scaled(text, [](std::string_view name) -> std::uint64_t {
    if (name.empty()) name = "s";
    for (const Unit& unit : kTimes) {
      if (unit.name == name) return unit.factor;
    }
    return 0;
  });
  if (!value || *value > static_cast<std::uint64_t>(Duration::max().count())) return std::nullopt;
  return Duration(static_cast<std::int64_t>(*value));
}

std::string text_of(Duration span) { return text_in(static_cast<std::uint64_t>(span.count()), kTimes, "s"); }

std::optional<std::uint64_t> parse_bytes(std::string_view text) {
  return parse_scaled(text, [](std::string_view name) -> std::uint64_t {
    for (const std::string_view ending : {"iB", "B"}) {
      if (name.size() == ending.size() + 1 && name.ends_with(ending)) name.remove_suffix(ending.size());
    }
    if (name == "B") name = "";
    if (name == "k") name = "K";
    for (const Unit& unit : kSizes) {
      if (unit.name == name) return unit.factor;
    }
    return 0;
  });
}

std::string text_of_bytes(std::uint64_t bytes) { return text_in(bytes, kSizes, ""); }

std::optional<std::int64_t> parse_integer(std::string_view text) {
  std::int64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<bool> parse_flag(std::string_view text) {
  for (const std::string_view yes : {"1", "yes", "true", "on"}) {
    if (text == yes) return true;
  }
  for (const std::string_view no : {"0", "no", "false", "off"}) {
    if (text == no) return false;
  }
  return std::nullopt;
}

}  // namespace aiacc
