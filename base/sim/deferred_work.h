// DeferredWork: a copy or reduction that a Compute performs later, with the CPU's kernels.
#pragma once

#include <algorithm>
#include <vector>

#include "base/data/cpu_compute.h"

namespace aiacc::sim {

struct DeferredWork {
  std::vector<Buffer> destinations;
  std::vector<Buffer> operands;
  std::size_t count = 0;  // elements of a reduction; 0 for a copy
  Reduction reduction;
  Compute::Step step;
  bool copies = false;

  void set_copy(Buffer destination, Buffer source) {
    destinations.assign(1, destination);
    operands.assign(1, source);
    copies = true;
  }
  void set_reduction(std::span<const Buffer> to, std::span<const Buffer> from, std::size_t elements,
                     const Reduction& how, Compute::Step which) {
    destinations.assign(to.begin(), to.end());
    operands.assign(from.begin(), from.end());
    count = elements;
    reduction = how;
    step = which;
    copies = false;
  }
  // False in byte-free simulation.
  bool has_bytes() const noexcept {
    const auto there = [](const Buffer& buffer) { return buffer.data != nullptr; };
    return std::all_of(destinations.begin(), destinations.end(), there) &&
           std::all_of(operands.begin(), operands.end(), there);
  }
  void perform(const CpuCompute& cpu) const {
    if (copies) return cpu.copy_now(destinations[0], operands[0]);
    cpu.reduce_now(destinations, operands, count, reduction, step);
  }
};

}  // namespace aiacc::sim
