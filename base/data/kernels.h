// The reduction kernels of the CPU: one table of functions for each instruction set, all made from kernels_body.h, and the
// choice of the best table that this processor runs.
#pragma once

#include <cstddef>
#include <span>

#include "base/data/dtype.h"

namespace aiacc::kernels {

// One reduction: destination[d][i] = finish(op over k of prescale * operand[k][i]), in order of k. Alignment is not needed.
struct Job {
  std::byte* const* destinations = nullptr;
  std::size_t destination_count = 0;
  std::size_t streamed = 0;  // so many of the first destinations are written past the cache
  const std::byte* const* operands = nullptr;
  std::size_t operand_count = 0;  // at least 1
  std::size_t count = 0;          // elements
  double prescale = 1.0;
  double divisor = 1.0;  // AVG's division
  double postscale = 1.0;

  // Always inline: a copy made by a unit with wide instructions must not be the one that everybody links.
  [[gnu::always_inline]] bool scaled() const noexcept { return prescale != 1.0 || divisor != 1.0 || postscale != 1.0; }
};

using Function = void (*)(const Job& job);

struct Table {
  const char* name = "";
  Function reduce[kDTypes][kReduceOps] = {};  // null where supports() is false
  // Of 16-bit floats and SUM, AVG, PROD: results in fp32, operands in fp32. Destinations are no operands.
  Function widen[kDTypes][kReduceOps] = {};
  Function narrow[kDTypes][kReduceOps] = {};

  Function of(DType type, ReduceOp op, Partial partial = Partial::kNone) const noexcept {
    const auto& by_type = partial == Partial::kNone ? reduce : partial == Partial::kResult ? widen : narrow;
    return by_type[static_cast<std::size_t>(type)][static_cast<std::size_t>(op)];
  }
};

// All that this processor runs, the best last. The first is what any processor of the architecture runs.
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
