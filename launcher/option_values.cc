#include "launcher/option_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <charconv>
#include <cmath>
#include <span>

#include "base/nearest.h"

namespace aiacc::launcher {

namespace {

constexpr int kMaxCount = 100'000;   // ranks or slots: a slip of the finger beyond this
constexpr double kMaxSeconds = 1e9;  // 31 years; keeps the sum with a clock's reading far from overflow
constexpr std::string_view kMapNames[] = {"slot", "core", "numa", "package"};
constexpr std::string_view kBindNames[] = {"auto", "core", "numa", "package", "none"};
constexpr std::string_view kFamilies[] = {"horovod", "ompi"};

std::vector<std::string_view> split_at_commas(std::string_view text) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t comma = text.find(',');
    parts.push_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

// The whole text as a number of that type, or false.
template <typename Number>
bool read_number(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size();
}

bool is_count(std::string_view text, int& count) {
  return read_number(text, count) && count >= 1 && count <= kMaxCount;
}

// "a, b or c"
std::string alternatives(std::span<const std::string_view> names) {
  return fmt::format("{} or {}", fmt::join(names.first(names.size() - 1), ", "), names.back());
}

std::size_t parse_choice(std::string_view typed, std::string_view text, std::span<const std::string_view> names) {
  const std::string_view wanted = text == "socket" ? "package" : text;  // mpirun's older word
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == wanted) return i;
  }
  throw UsageError(MessageId::kValue, fmt::format("{} takes {}, not '{}'; the nearest is {}", typed,
                                                  alternatives(names), text, nearest(text, names)));
}

bool is_host_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' ||
         c == '_' || c == ':' || c == '%';
}

[[noreturn]] void bad_host(std::string_view typed, std::string_view entry, std::string_view why) {
  throw UsageError(MessageId::kHosts, fmt::format("{}: '{}' {}; write HOST or HOST:SLOTS, and [ADDRESS]:SLOTS for IPv6",
                                                  typed, entry, why));
}

// name, name:slots, [v6], [v6]:slots, or a bare v6 address, which has two colons and so no slots.
HostSpec parse_host(std::string_view typed, std::string_view entry) {
  std::string_view name = entry;
  std::string_view slots;
  bool has_slots = false;
  if (entry.starts_with('[')) {
    const std::size_t close = entry.find(']');
    if (close == std::string_view::npos) bad_host(typed, entry, "has no closing bracket");
    name = entry.substr(1, close - 1);
    const std::string_view rest = entry.substr(close + 1);
    if (!rest.empty() && rest.front() != ':') bad_host(typed, entry, "goes on after its bracket");
    has_slots = !rest.empty();
    if (has_slots) slots = rest.substr(1);
  } else if (const std::size_t colon = entry.find(':'); colon != std::string_view::npos && colon == entry.rfind(':')) {
    name = entry.substr(0, colon);
    slots = entry.substr(colon + 1);
    has_slots = true;
  }
  if (name.empty()) bad_host(typed, entry, "names no host");
  for (const char c : name) {
    if (!is_host_character(c)) bad_host(typed, entry, fmt::format("has a character that no host name has ('{}')", c));
  }
  HostSpec spec{std::string(name), 1};
  if (has_slots && !is_count(slots, spec.slots)) {
    bad_host(typed, entry, fmt::format("has a number of slots that is not between 1 and {}", kMaxCount));
  }
  return spec;
}

}  // namespace

int parse_count(std::string_view typed, std::string_view text) {
  int count = 0;
  if (!is_count(text, count)) {
    throw UsageError(MessageId::kRanks,
                     fmt::format("{} takes a whole number from 1 to {}, not '{}'", typed, kMaxCount, text));
  }
  return count;
}

Duration parse_seconds(std::string_view typed, std::string_view text) {
  double value = 0;
  const bool number = read_number(text, value) && std::isfinite(value) && value >= 0 && value <= kMaxSeconds;
  if (!number) {
    throw UsageError(MessageId::kValue, fmt::format("{} takes a number of seconds, 0 or more, not '{}'", typed, text));
  }
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(value));
}

std::vector<HostSpec> parse_hosts(std::string_view typed, std::string_view text) {
  std::vector<HostSpec> hosts;
  for (const std::string_view entry : split_at_commas(text)) {
    if (entry.empty()) {
      throw UsageError(MessageId::kHosts, fmt::format("{}: the list '{}' has an empty entry", typed, text));
    }
    hosts.push_back(parse_host(typed, entry));
  }
  return hosts;
}

Forward parse_forward(std::string_view typed, std::string_view text) {
  const std::size_t equals = text.find('=');
  Forward forward{std::string(text.substr(0, equals)), std::nullopt};
  if (equals != std::string_view::npos) forward.value = std::string(text.substr(equals + 1));
  const std::size_t star = forward.name.find('*');
  if (forward.name.empty() || forward.name.find_first_of(" \t\n") != std::string::npos) {
    throw UsageError(MessageId::kVariable, fmt::format("{} takes NAME or NAME=VALUE, not '{}'", typed, text));
  }
  if (star != std::string::npos && (star + 1 != forward.name.size() || forward.value)) {
    throw UsageError(
        MessageId::kVariable,
        fmt::format("{} '{}': a '*' stands at the end of a name, and such names take no value", typed, text));
  }
  return forward;
}

MapBy parse_map_by(std::string_view typed, std::string_view text) {
  return static_cast<MapBy>(parse_choice(typed, text, kMapNames));
}

BindTo parse_bind_to(std::string_view typed, std::string_view text) {
  return static_cast<BindTo>(parse_choice(typed, text, kBindNames));
}

CompatEnv parse_compat_env(std::string_view typed, std::string_view text) {
  CompatEnv families;
  if (text == "none") return families;
  for (const std::string_view family : split_at_commas(text)) {
    const std::size_t which = parse_choice(typed, family, kFamilies);
    (which == 0 ? families.horovod : families.ompi) = true;
  }
  return families;
}

std::string_view name_of(MapBy by) noexcept { return kMapNames[static_cast<std::size_t>(by)]; }
std::string_view name_of(BindTo to) noexcept { return kBindNames[static_cast<std::size_t>(to)]; }

}  // namespace aiacc::launcher
