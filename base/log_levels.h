// A log level for each part of the library, in the syntax of AIACC_LOG ("warn", "info,net=debug").
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace aiacc {

enum class LogLevel : std::uint8_t { kTrace, kDebug, kInfo, kWarn, kError, kOff };

// The parts of the library that have a level of their own.
enum class LogPart : std::uint8_t {
  kCore,        // context, configuration, lanes
  kNet,         // connections
  kMemory,      // host segments, mappings, registration
  kLaunch,      // starting and ending processes
  kBootstrap,   // finding the peers
  kCollective,  // operations and their algorithms
};
inline constexpr std::size_t kLogParts = 6;

std::string_view name_of(LogLevel level) noexcept;
std::string_view name_of(LogPart part) noexcept;

class LogLevels {
 public:
  LogLevels() noexcept { levels_.fill(LogLevel::kWarn); }
  explicit LogLevels(LogLevel all) noexcept { levels_.fill(all); }
  // Each word is a level for all parts, or PART=LEVEL; later words override earlier ones. Throws kInvalidArgument with
  // a sentence.
  static LogLevels parse(std::string_view text);

  LogLevel of(LogPart part) const noexcept { return levels_[static_cast<std::size_t>(part)]; }
  std::string text() const;  // parse(text()) gives the same
  bool operator==(const LogLevels&) const = default;

 private:
  std::array<LogLevel, kLogParts> levels_{};
};

}  // namespace aiacc
