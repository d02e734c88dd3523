// CpuCompute: copies and reductions on host memory, inline, with the widest instructions that this processor has.
#pragma once

#include "base/data/compute.h"
#include "base/data/kernels.h"

namespace aiacc {

class CpuCompute final : public Compute {
 public:
  CpuCompute() noexcept : CpuCompute(*kernels::tables().back()) {}
  // For tests, which compare the results of all tables.
  explicit CpuCompute(const kernels::Table& kernels) noexcept : Compute(true), kernels_(kernels) {}

  Done copy(Buffer destination, Buffer source, Stop& stop) override;
  Done reduce(std::span<const Buffer> destinations, std::span<const Buffer> operands, std::size_t count,
              const Reduction& reduction, Step step, Stop& stop) override;
  Done encode(Buffer message, Buffer elements, std::size_t count, Codec codec, Stop& stop) override;
  Done decode(Buffer elements, Buffer message, std::size_t count, Codec codec, Decoding how, Stop& stop) override;

  // The same without a Stop or an awaiter: for other Computes, whose threads and timers do this work.
  void copy_now(Buffer destination, Buffer source) const;
  void reduce_now(std::span<const Buffer> destinations, std::span<const Buffer> operands, std::size_t count,
                  const Reduction& reduction, Step step) const;
  void encode_now(Buffer message, Buffer elements, std::size_t count, Codec codec) const;
  void decode_now(Buffer elements, Buffer message, std::size_t count, Codec codec, Decoding how) const;

  // The same without a Buffer, for the paths without a coroutine.
  static void copy_now(std::byte* destination, const std::byte* source, std::size_t bytes) noexcept {
    if (bytes == 8) {
      __builtin_memcpy(destination, source, 8);
    } else if (bytes > 0) {
      __builtin_memcpy(destination, source, bytes);
    }
  }
  void reduce_now(std::span<std::byte* const> destinations, std::span<const std::byte* const> operands,
                  std::size_t count, const Reduction& reduction, int ranks) const noexcept;

 private:
  void reduce_mixed(std::span<const Buffer> destinations, std::span<const Buffer> operands, std::size_t count,
                    const Reduction& reduction, Step step) const;

  const kernels::Table& kernels_;
};

}  // namespace aiacc
