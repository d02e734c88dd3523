#include "base/io/real_clock.h"

#include <sys/random.h>
#include <time.h>

#include <cerrno>

#include "base/error.h"

namespace aiacc::io {
namespace {

std::int64_t read_ns(clockid_t which) noexcept {
  timespec time{};
  clock_gettime(which, &time);
  return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

Instant RealClock::now() noexcept { return Instant(Duration(read_ns(CLOCK_MONOTONIC))); }
Instant RealClock::about_now() noexcept { return Instant(Duration(read_ns(CLOCK_MONOTONIC_COARSE))); }
std::int64_t RealClock::wall_ns() noexcept { return read_ns(CLOCK_REALTIME); }

void RealEntropy::fill(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = getrandom(bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw system_error("cannot get random bytes from the kernel", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
}

}  // namespace aiacc::io
