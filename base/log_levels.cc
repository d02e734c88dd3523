#include "base/log_levels.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/nearest.h"

namespace aiacc {
namespace {

constexpr std::array<std::string_view, 6> kLevelNames{"trace", "debug", "info", "warn", "error", "off"};
constexpr std::array<std::string_view, kLogParts> kPartNames{"core",   "net",       "memory",
                                                             "launch", "bootstrap", "collective"};

template <class Enum, std::size_t N>
Enum parse_name(std::string_view word, const std::array<std::string_view, N>& names, std::string_view what) {
  const auto found = std::find(names.begin(), names.end(), word);
  if (found != names.end()) return static_cast<Enum>(found - names.begin());
  throw Error(Code::kInvalidArgument,
              fmt::format("'{}' is no {} of log messages{}: there are {}", word, what,
                          if_near(word, names, "; the nearest is '", "'"), fmt::join(names, ", ")));
}

}  // namespace

std::string_view name_of(LogLevel level) noexcept { return kLevelNames[static_cast<std::size_t>(level)]; }
std::string_view name_of(LogPart part) noexcept { return kPartNames[static_cast<std::size_t>(part)]; }

LogLevels LogLevels::parse(std::string_view text) {
  LogLevels result;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    const std::size_t equals = word.find('=');
    const auto level = parse_name<LogLevel>(equals == word.npos ? word : word.substr(equals + 1), kLevelNames, "level");
    if (equals == word.npos) {
      result.levels_.fill(level);
    } else {
      result.levels_[static_cast<std::size_t>(parse_name<LogPart>(word.substr(0, equals), kPartNames, "part"))] = level;
    }
    begin = end + 1;
  }
  return result;
}

std::string LogLevels::text() const {
  // The most common level is written for all parts; parts with other levels are named.
  LogLevel common = levels_[0];
  const auto count = [this](LogLevel level) { return std::count(levels_.begin(), levels_.end(), level); };
  for (const LogLevel level : levels_) {
    if (count(level) > count(common)) common = level;
  }
  std::string result(name_of(common));
  for (std::size_t part = 0; part < kLogParts; ++part) {
    if (levels_[part] != common) result += fmt::format(",{}={}", kPartNames[part], name_of(levels_[part]));
  }
  return result;
}

}  // namespace aiacc
