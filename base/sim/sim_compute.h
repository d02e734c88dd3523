// SimCompute: the work of one simulated core. It charges virtual time for every byte that passes through it, one piece of
// work after another, and does the work with the real kernels unless the bytes are elided.
#pragma once

#include "base/data/cpu_compute.h"
#include "base/sim/sim_loop.h"

namespace aiacc::sim {

class SimCompute final : public Compute {
 public:
  // A core that reads and writes 10 GB/s in all: what one core of a server streams from memory.
  static constexpr std::uint64_t kBytesPerSecond = 10'000'000'000;

  explicit SimCompute(SimLoop& loop, std::uint64_t bytes_per_second = kBytesPerSecond) noexcept
      : loop_(loop), bytes_per_second_(bytes_per_second) {}

  Done copy(Buffer destination, Buffer source) override;
  Done reduce(std::span<const Buffer> destinations, std::span<const Buffer> operands, std::size_t count,
              const Reduction& reduction, Step step) override;

 private:
  Done charge(std::uint64_t bytes) noexcept;

  SimLoop& loop_;
  std::uint64_t bytes_per_second_;
  Instant free_at_{};
  CpuCompute kernels_;
};

}  // namespace aiacc::sim
