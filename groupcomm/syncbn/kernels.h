// The passes of batch normalisation over a batch: a table of functions for each instruction set, all compiled from
// kernels_body.h, and the choice for this processor. Every table gives the same bits: elements are converted to fp64, and
// sums have eight partial sums on every processor.
#pragma once

#include <cstddef>
#include <span>

#include "groupcomm/syncbn/batch.h"

namespace aiacc::syncbn::kernels {

// x, y, dx and dy have the batch's elements; the other arrays have one number for each channel. A batch without
// elements has sums of 0, and no first elements.
struct Table {
  const char* name = "";
  // first[c] = the channel's first element
  void (*first_elements)(const Batch& batch, const void* x, double* first) = nullptr;
  // first[c] = sum of x - shift[c], second[c] = sum of (x - shift[c])^2
  void (*sums)(const Batch& batch, const void* x, const double* shift, double* first, double* second) = nullptr;
  // y = (x - mean[c]) * scale[c] + bias[c]
  void (*normalize)(const Batch& batch, const void* x, void* y, const double* mean, const double* scale,
                    const double* bias) = nullptr;
  // first[c] = sum of dy, second[c] = sum of dy * (x - mean[c])
  void (*gradient_sums)(const Batch& batch, const void* x, const void* dy, const double* mean, double* first,
                        double* second) = nullptr;
  // dx = dy * of_gradient[c] + (x - mean[c]) * of_deviation[c] + constant[c]
  void (*input_gradient)(const Batch& batch, const void* x, const void* dy, void* dx, const double* mean,
                         const double* of_gradient, const double* of_deviation, const double* constant) = nullptr;
};

// All tables that this processor can run, the best one last.
std::span<const Table* const> tables() noexcept;
inline const Table& best() noexcept { return *tables().back(); }

namespace baseline {
const Table& table() noexcept;
}
namespace avx2 {
const Table& table() noexcept;
}
namespace avx512 {
const Table& table() noexcept;
}

}  // namespace aiacc::syncbn::kernels
