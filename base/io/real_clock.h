// The machine's clocks and random bytes. CLOCK_MONOTONIC: all processes of a host have the same timeline.
#pragma once

#include "base/io/clock.h"

namespace aiacc::io {

class RealClock final : public Clock {
 public:
  Instant now() noexcept override;
  Instant about_now() noexcept;  // the time of the kernel's last tick, without reading a hardware clock
  std::int64_t wall_ns() noexcept override;
};

class RealEntropy final : public Entropy {
 public:
  void fill(std::span<std::byte> bytes) override;  // getrandom(2); throws kSystem if the kernel has none
};

}  // namespace aiacc::io
