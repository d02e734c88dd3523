// Log messages: lines on standard error with a time, a level, who says it (rank and host) and which part of the library.
// A Logger belongs to a context or a process of the launcher; there is none for everybody.
//
//   AIACC_LOG(logger, kNet, kDebug, "connected to {} after {} ms", peer, elapsed_ms);
//
// costs a load and a branch when that part is not logged at that level; the arguments are not evaluated then. Not for the
// fast path all the same (docs/architecture.md).
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "base/io/clock.h"
#include "base/log_levels.h"

namespace aiacc {

class Logger {
 public:
  // `who` stands in each line: "rank 3 on node-7". `clock` gives the wall time and outlives the logger. Lines go to
  // `descriptor`, each in one write(2), so that those of several processes do not mix; it stays the caller's. A full pipe
  // makes the writer wait, as any program's; if it is non-blocking or broken the line is dropped and counted.
  Logger(const LogLevels& levels, std::string who, io::Clock& clock, int descriptor = 2);
  ~Logger();
  Logger(const Logger&) = delete;
  Logger& operator=(const Logger&) = delete;

  bool logs(LogPart part, LogLevel level) const noexcept { return level >= levels_.of(part); }
  // Any thread. Control characters in `text` are written as \xNN: a peer's words cannot forge lines.
  void write(LogPart part, LogLevel level, std::string_view text) noexcept;
  std::uint64_t dropped() const noexcept;

 private:
  class Output;  // spdlog's sink and logger, in the one unit that knows them
  LogLevels levels_;
  std::string who_;
  io::Clock& clock_;
  std::unique_ptr<Output> output_;
};

#define AIACC_LOG(logger, part, level, ...)                                                         \
  do {                                                                                              \
    if ((logger).logs(::aiacc::LogPart::part, ::aiacc::LogLevel::level)) [[unlikely]]               \
      (logger).write(::aiacc::LogPart::part, ::aiacc::LogLevel::level, ::fmt::format(__VA_ARGS__)); \
  } while (0)

}  // namespace aiacc
