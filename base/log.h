// Log messages: lines on standard error with the time, level, source (rank and host) and part of the library.
// A Logger belongs to a context or a process of the launcher; there is no global one.
//
//   AIACC_LOG(logger, kNet, kDebug, "connected to {} after {} ms", peer, elapsed_ms);
//
// costs a load and a branch if that part is not logged at that level; the arguments are not evaluated then. It is still
// not used on the path of a small call (docs/architecture.md).
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
  // `who` is part of each line: "rank 3 on node-7". `clock` provides the wall time and must outlive the logger. Each
  // line is one write(2) to `descriptor`, which the caller keeps, so lines of several processes do not mix. A full pipe
  // blocks the writer, as in any program; if it is non-blocking or broken, the line is dropped and counted.
  Logger(const LogLevels& levels, std::string who, io::Clock& clock, int descriptor = 2);
  ~Logger();
  Logger(const Logger&) = delete;
  Logger& operator=(const Logger&) = delete;

  bool logs(LogPart part, LogLevel level) const noexcept { return level >= levels_.of(part); }
  // Any thread. Unprintable bytes of `text` become \xNN (base/printable.h), so text from a peer cannot forge lines.
  void write(LogPart part, LogLevel level, std::string_view text) noexcept;
  std::uint64_t dropped() const noexcept;

 private:
  class Output;  // spdlog's sink and logger, defined in log.cc
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
