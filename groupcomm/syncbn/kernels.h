// The passes of batch normalisation over a batch, and the loops over the channels of its moments: a table of functions for
// each instruction set, all compiled from kernels_body.h and kernels_records.h, and the choice for this processor. Every table
// gives the same bits: elements are converted to fp64, and sums have eight partial sums on every processor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "base/data/reduction.h"
#include "groupcomm/syncbn/batch.h"

namespace aiacc::syncbn::kernels {

// How the moments of some channels are laid out in a record: a count, and behind it the means and variances of `channels` channels.
// Records have no alignment. merge() and merge_all() are those of an operator (base/data/reduction.h) whose `arg` is the length of a
// record.
struct RecordForm {
  std::size_t channel_bytes = 0;
  // Of `own` of the channels; the others are 0. `square` is M2.
  void (*write)(std::uint64_t count, const double* mean, const double* square, std::size_t own, std::size_t channels,
                std::byte* record) = nullptr;
  void (*read)(const std::byte* record, std::size_t channels, std::size_t own, double* mean, double* square) = nullptr;
  UserOp::Function merge = nullptr;
  UserOp::OfAll merge_all = nullptr;
};

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
  RecordForm wide;    // means and variances are fp64
  RecordForm narrow;  // a mean's first 24 bits as fp32, and the 16 bits behind these; a variance as fp32
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
