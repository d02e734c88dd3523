// The passes of batch normalisation over a batch, and the loops over the channels of its moments: a table of functions for
// each instruction set, all compiled from kernels_body.h and kernels_records.h, and the choice for this processor. Every table
// gives the same bits: elements are converted to fp64, and on every processor eight of them are added at a time: to
// eight partial sums of a channel, or to the sums of eight channels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "base/data/reduction.h"
#include "groupcomm/syncbn/batch.h"

namespace aiacc::syncbn::kernels {

// In place of the count of records that have not all the same.
constexpr std::uint64_t kCountsDiffer = ~std::uint64_t{0};

// Sums of deviations from a shift give a variance if count x (mean - shift)^2 is at most so many times M2 (moments.h).
constexpr double kFar = 1024;
// The channels that are taken again if one of them is, because passes over a batch have them in one vector.
constexpr std::size_t kTakenTogether = 8;

// How the moments of some channels are laid out in a record: a count, and behind it the means and variances of `channels` channels.
// Records have no alignment. merge() and merge_all() are those of an operator (base/data/reduction.h) whose `arg` is the length of a
// record.
struct RecordForm {
  std::size_t channel_bytes = 0;
  // Of `own` of the channels; the others are 0. `square` is M2.
  void (*write)(std::uint64_t count, const double* mean, const double* square, std::size_t own, std::size_t channels,
                std::byte* record) = nullptr;
  // The same of sums of elements and of their squares; of one element at least.
  void (*write_sums)(std::uint64_t count, const double* first, const double* second, std::size_t own,
                     std::size_t channels, std::byte* record) = nullptr;
  void (*read)(const std::byte* record, std::size_t channels, std::size_t own, double* mean, double* square) = nullptr;
  UserOp::Function merge = nullptr;
  UserOp::OfAll merge_all = nullptr;
  // merge_all() of at most 64 operands, and read() of its records of `of_record` channels, which have `channels` in all. Returns the count,
  // or kCountsDiffer.
  std::uint64_t (*merge_and_read)(const std::byte* const* operands, std::size_t operand_count, std::size_t of_record,
                                  std::size_t channels, double* mean, double* square) = nullptr;
};

// Arrays of one number for each channel, of the type of the statistics where none is said.

// From moments to what normalises: scale = 1 / sqrt(square * share + epsilon). Each array without a type may be null.
struct Scaling {
  std::size_t channels = 0;
  DType type = DType::kFloat32;  // of statistics
  const double* mean = nullptr;
  const double* square = nullptr;
  double share = 1;  // 1 / count
  double epsilon = 0;
  const void* weight = nullptr;  // null: 1
  const void* bias = nullptr;    // null: 0
  // running = running * kept + mean * of_mean, or square * of_square
  void* running_mean = nullptr;
  void* running_variance = nullptr;
  double kept = 0, of_mean = 0, of_square = 0;
  double* saved_mean = nullptr;
  double* scale = nullptr;
  double* factor = nullptr;    // scale * weight
  double* constant = nullptr;  // bias
};

// From a rank's sums, of dy and dy * (x - mean), to its gradients and to what ranks sum up: `second` is multiplied by `scale`.
struct GradientSums {
  std::size_t channels = 0;
  DType type = DType::kFloat32;      // of statistics
  DType sum_type = DType::kFloat32;  // of sum and product_sum, which may be first and second if it is kFloat64
  const double* first = nullptr;
  const double* second = nullptr;
  const double* scale = nullptr;
  void* sum = nullptr;
  void* product_sum = nullptr;
  void* dbias = nullptr;  // may be null, as the next
  void* dweight = nullptr;
};

// From these sums to the numbers of input_gradient().
struct GradientScaling {
  std::size_t channels = 0;
  DType type = DType::kFloat32;  // of statistics
  DType sum_type = DType::kFloat32;
  double share = 1;              // 1 / count
  const void* weight = nullptr;  // null: 1
  const double* scale = nullptr;
  const void* sum = nullptr;  // of sum_type, as the next; the arrays below may be these if it is kFloat64
  const void* product_sum = nullptr;
  double* of_gradient = nullptr;
  double* of_deviation = nullptr;
  double* constant = nullptr;
};

// x, y, dx and dy have the batch's elements; the other arrays have one number for each channel. A batch without
// elements has sums of 0.
struct Table {
  const char* name = "";
  // first[c] = sum of x, second[c] = sum of x^2
  void (*sums)(const Batch& batch, const void* x, double* first, double* second) = nullptr;
  // first[c] = sum of x - shift[c], second[c] = sum of (x - shift[c])^2, of the channels that are taken: taken[c / kTakenTogether].
  void (*sums_from)(const Batch& batch, const void* x, const std::uint8_t* taken, const double* shift, double* first,
                    double* second) = nullptr;
  // The same with shift[c] = the channel's first element, which a batch without elements has not.
  void (*sums_from_first)(const Batch& batch, const void* x, const std::uint8_t* taken, double* shift, double* first,
                          double* second) = nullptr;
  // Of sums() of one element at least: whether one of them does not give a variance (moments.h).
  bool (*any_far)(std::uint64_t count, const double* first, const double* second, std::size_t channels) = nullptr;
  // y = (x - mean[c]) * scale[c] + bias[c]
  void (*normalize)(const Batch& batch, const void* x, void* y, const double* mean, const double* scale,
                    const double* bias) = nullptr;
  // first[c] = sum of dy, second[c] = sum of dy * (x - mean[c])
  void (*gradient_sums)(const Batch& batch, const void* x, const void* dy, const double* mean, double* first,
                        double* second) = nullptr;
  // dx = dy * of_gradient[c] + (x - mean[c]) * of_deviation[c] + constant[c]
  void (*input_gradient)(const Batch& batch, const void* x, const void* dy, void* dx, const double* mean,
                         const double* of_gradient, const double* of_deviation, const double* constant) = nullptr;
  void (*scales)(const Scaling& of) = nullptr;
  void (*give_gradients)(const GradientSums& of) = nullptr;
  void (*gradient_scales)(const GradientScaling& of) = nullptr;
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
