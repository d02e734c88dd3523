// The reduction kernels of the CPU: a table of functions for each instruction set, all compiled from kernels_body.h,
// and the choice of the best table for this processor.
#pragma once

#include <cstddef>
#include <span>

#include "base/data/dtype.h"

namespace aiacc::kernels {

// One reduction: destination[d][i] = finish(op over k of prescale * operand[k][i]), in order of k. Any alignment.
struct Job {
  std::byte* const* destinations = nullptr;
  std::size_t destination_count = 0;
  const std::byte* const* operands = nullptr;
  std::size_t operand_count = 0;  // at least 1
  std::size_t count = 0;          // elements
  double prescale = 1.0;
  double divisor = 1.0;  // AVG's division
  double postscale = 1.0;

  // Always inline: otherwise the linker might give all units a copy that was compiled with wide instructions.
  [[gnu::always_inline]] bool scaled() const noexcept { return prescale != 1.0 || divisor != 1.0 || postscale != 1.0; }
};

using Function = void (*)(const Job& job);

struct Table {
  const char* name = "";
  Function reduce[kDTypes][kReduceOps] = {};  // null where supports() is false
  // For SUM, AVG and PROD of 16-bit floats: `widen` has fp32 results, `narrow` fp32 operands. Destinations must not be
  // operands.
  Function widen[kDTypes][kReduceOps] = {};
  Function narrow[kDTypes][kReduceOps] = {};

  Function of(DType type, ReduceOp op) const noexcept { return at(reduce, type, op); }
  Function widening(DType type, ReduceOp op) const noexcept { return at(widen, type, op); }
  Function narrowing(DType type, ReduceOp op) const noexcept { return at(narrow, type, op); }

 private:
  using Functions = Function[kDTypes][kReduceOps];
  static Function at(const Functions& functions, DType type, ReduceOp op) noexcept {
    return functions[static_cast<std::size_t>(type)][static_cast<std::size_t>(op)];
  }
};

// All tables that this processor can run, the best one last. The first one runs on every processor of the architecture.
std::span<const Table* const> tables() noexcept;

namespace baseline {
const Table& table() noexcept;
}
namespace avx2 {
const Table& table() noexcept;
}
namespace avx512 {
const Table& table() noexcept;
}

}  // namespace aiacc::kernels
