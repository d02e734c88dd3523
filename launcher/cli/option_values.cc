#include "launcher/cli/option_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <span>

#include "base/nearest.h"

namespace aiacc::launcher {

namespace {

constexpr int kMaxCount = kMostRanks;
constexpr double kMaxSeconds = 1e9;  // 31 years; added to a clock's reading it cannot overflow
constexpr std::string_view kMapNames[] = {"slot", "node", "core", "numa", "package"};
constexpr std::string_view kBindNames[] = {"auto", "core", "numa", "package", "none"};
constexpr std::string_view kFamilies[] = {"horovod", "ompi"};
constexpr std::string_view kProvided[] = {"gloo", "horovod", "perseus"};

std::vector<std::string_view> split_at_commas(std::string_view text) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t comma = text.find(',');
    parts.push_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

// False unless the whole text is a number of that type.
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
  const std::string_view wanted = text == "socket" ? "package" : text;  // mpirun's older name
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == wanted) return i;
  }
  throw UsageError(MessageId::kValue, fmt::format("{} takes {}, not '{}'{}", typed, alternatives(names), text,
                                                  if_near(text, names, "; the nearest is ")));
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

int parse_limit(std::string_view typed, std::string_view text) {
  int limit = 0;
  if (text == "0" || is_count(text, limit)) return limit;
  throw UsageError(MessageId::kValue, fmt::format("{} takes a number from 0 to {}, not '{}'", typed, kMaxCount, text));
}

int parse_input_rank(std::string_view typed, std::string_view text) {
  if (text == "none") return kNoRank;
  int rank = 0;
  if (!read_number(text, rank) || rank < 0 || rank >= kMaxCount) {
    throw UsageError(MessageId::kValue, fmt::format("{} takes the number of one rank, or none, not '{}'", typed, text));
  }
  return rank;
}

Duration parse_seconds(std::string_view typed, std::string_view text) {
  double value = 0;
  const bool number = read_number(text, value) && std::isfinite(value) && value >= 0 && value <= kMaxSeconds;
  if (!number) {
    throw UsageError(MessageId::kValue, fmt::format("{} takes a number of seconds, 0 or more, not '{}'", typed, text));
  }
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(value));
}

CooldownRange parse_cooldown(std::string_view typed, std::string_view first, std::string_view longest) {
  const CooldownRange range{parse_seconds(typed, first), parse_seconds(typed, longest)};
  if (range.first <= Duration::zero() || range.longest < range.first) {
    throw UsageError(MessageId::kValue,
                     fmt::format("{} takes the shortest and the longest time in seconds, above 0, not '{} {}'", typed,
                                 first, longest));
  }
  return range;
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
        fmt::format("{} '{}': '*' may only be the last character of a name, and such a name takes no value", typed,
                    text));
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

std::vector<std::string> parse_provide(std::string_view typed, std::string_view text) {
  std::vector<std::string> packages;
  if (text == "none") return packages;
  for (const std::string_view one : split_at_commas(text)) {
    const std::string name(kProvided[parse_choice(typed, one, kProvided)]);
    if (std::find(packages.begin(), packages.end(), name) == packages.end()) packages.push_back(name);
  }
  return packages;
}

std::string_view name_of(MapBy by) noexcept { return kMapNames[static_cast<std::size_t>(by)]; }
std::string_view name_of(BindTo to) noexcept { return kBindNames[static_cast<std::size_t>(to)]; }

}  // namespace aiacc::launcher
