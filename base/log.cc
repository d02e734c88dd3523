// The only unit that includes spdlog: header-only, so that processes that load libaiacc do not load Debian's shared
// library. Its registry and its global logger are not used; a logger here has one sink of its own.
#define SPDLOG_HEADER_ONLY
#define SPDLOG_NO_TLS
#ifndef SPDLOG_FMT_EXTERNAL
#define SPDLOG_FMT_EXTERNAL
#endif
#include "base/log.h"

#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>

#include <cerrno>
#include <chrono>
#include <mutex>

#include "base/io/quiet_write.h"
#include "base/printable.h"

namespace aiacc {
namespace {

spdlog::level::level_enum spdlog_level(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::kTrace: return spdlog::level::trace;
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarn: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
    case LogLevel::kOff: break;
  }
  return spdlog::level::off;
}

class OneWriteSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit OneWriteSink(int descriptor) : descriptor_(descriptor) {}
  std::uint64_t dropped() const noexcept { return dropped_.load(std::memory_order_relaxed); }

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    ssize_t written = 0;
    do {
      written = io::write_without_sigpipe(descriptor_, line.data(), line.size());
    } while (written < 0 && errno == EINTR);
    if (written != static_cast<ssize_t>(line.size())) dropped_.fetch_add(1, std::memory_order_relaxed);
  }
  void flush_() override {}

  int descriptor_;
  std::atomic<std::uint64_t> dropped_{0};
};

}  // namespace

class Logger::Output {
 public:
  explicit Output(int descriptor) : sink(std::make_shared<OneWriteSink>(descriptor)), logger("aiacc", sink) {
    logger.set_level(spdlog::level::trace);  // write() has checked the level of the part
    logger.set_pattern("%Y-%m-%dT%H:%M:%S.%f %v", spdlog::pattern_time_type::utc);
  }
  std::shared_ptr<OneWriteSink> sink;
  spdlog::logger logger;
};

Logger::Logger(const LogLevels& levels, std::string who, io::Clock& clock, int descriptor)
    : levels_(levels), who_(printable(who)), clock_(clock), output_(std::make_unique<Output>(descriptor)) {}

Logger::~Logger() = default;

void Logger::write(LogPart part, LogLevel level, std::string_view text) noexcept {
  try {
    const std::chrono::nanoseconds wall(clock_.wall_ns());
    const spdlog::log_clock::time_point when(std::chrono::duration_cast<spdlog::log_clock::duration>(wall));
    const std::string line = fmt::format("aiacc {} [{}] {}: {}", name_of(level), who_, name_of(part), printable(text));
    output_->logger.log(when, spdlog::source_loc{}, spdlog_level(level), spdlog::string_view_t(line));
  } catch (...) {  // no memory for a line: it is dropped
  }
}

std::uint64_t Logger::dropped() const noexcept { return output_->sink->dropped(); }

}  // namespace aiacc
