// CpuCompute: copies and reductions on host memory, inline, with the widest instructions that this processor has.
#pragma once

#include "base/data/compute.h"
#include "base/data/kernels.h"

namespace aiacc {

class CpuCompute final : public Compute {
 public:
  CpuCompute() noexcept : kernels_(*kernels::tables().back()) {}
  // For tests, which compare what all of them give.
  explicit CpuCompute(const kernels::Table& kernels) noexcept : kernels_(kernels) {}

  Done copy(Buffer destination, Buffer source) override;
  Done copy_for_others(Buffer destination, Buffer source) override;
  Done reduce(std::span<const Buffer> destinations, std::span<const Buffer> operands, std::size_t count,
              const Reduction& reduction, Step step) override;

  // The same without a Buffer or an awaiter, for the path that has no coroutine. `divisor` is the number of ranks.
  void reduce_now(std::span<std::byte* const> destinations, std::span<const std::byte* const> operands,
                  std::size_t count, const Reduction& reduction, int ranks) const noexcept;

 private:
  const kernels::Table& kernels_;
};

}  // namespace aiacc
