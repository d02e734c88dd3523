// Sources of time and randomness; deterministic in the simulator. Code that runs on a Loop takes the time from it;
// Clock is for code without a loop, and for wall time, which only log lines and recorded traces may show.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/time.h"

namespace aiacc::io {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Instant now() noexcept = 0;
  virtual std::int64_t wall_ns() noexcept = 0;  // since 1970-01-01 UTC; may jump
};

class Entropy {
 public:
  virtual ~Entropy() = default;
  // Unpredictable bytes (secrets, nonces); in the simulator they follow from its seed.
  virtual void fill(std::span<std::byte> bytes) = 0;
};

}  // namespace aiacc::io
