#include "groupcomm/syncbn/moments.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "groupcomm/syncbn/kernels.h"

namespace aiacc::syncbn {
namespace {

// Makes moments of sums of deviations from shifts, which are in the place of means. Returns whether a shift was too far from its mean.
bool from_shifts(Moments& moments) noexcept {
  const double share = 1.0 / static_cast<double>(moments.count);
  const std::size_t channels = moments.mean.size();
  double *const mean = moments.mean.data(), *const square = moments.square.data();
  const double* const sum = moments.sum.data();
  std::uint64_t far = 0;
  for (std::size_t channel = 0; channel < channels; ++channel) {
    constexpr double kFar = 1024;
    const double from_shift = sum[channel] * share, of_shift = sum[channel] * from_shift;
    const double own = square[channel] - of_shift;
    mean[channel] += from_shift;
    square[channel] = own < 0 ? 0 : own;  // a NaN stays one
    far |= of_shift > kFar * own ? 1 : 0;
  }
  return far != 0;
}

}  // namespace

void moments_of(const Batch& batch, const void* x, Moments& moments) {
  const std::size_t channels = batch.channels;
  moments.count = batch.count();
  if (moments.count == 0) {
    moments.mean.assign(channels, 0.0);
    moments.square.assign(channels, 0.0);
    return;
  }
  for (auto* array : {&moments.mean, &moments.square, &moments.sum}) array->resize(channels);
  const kernels::Table& passes = kernels::best();
  passes.first_elements(batch, x, moments.mean.data());
  for (int pass = 0; pass < 2; ++pass) {
    passes.sums(batch, x, moments.mean.data(), moments.sum.data(), moments.square.data());
    if (!from_shifts(moments)) return;
  }
}

Records::Records(std::size_t channels, DType statistics) noexcept
    : channels_(channels),
      wide_(statistics == DType::kFloat64),
      form_(wide_ ? kernels::best().wide : kernels::best().narrow) {
  const std::size_t most = (UserOp::kMostRecordBytes - sizeof(std::uint64_t)) / form_.channel_bytes;
  count_ = (channels + most - 1) / most;
  of_record_ = (channels + count_ - 1) / count_;
}

void Records::write(const Moments& moments, std::byte* message) const noexcept {
  for (std::size_t first = 0; first < count_ * of_record_; first += of_record_, message += record_bytes()) {
    form_.write(moments.count, moments.mean.data() + first, moments.square.data() + first, part_of_record(first),
                of_record_, message);
  }
}

void Records::read(const std::byte* message, Moments& moments) const {
  std::memcpy(&moments.count, message, sizeof moments.count);
  moments.mean.resize(channels_);
  moments.square.resize(channels_);
  for (std::size_t first = 0; first < channels_; first += of_record_, message += record_bytes())
    form_.read(message, of_record_, part_of_record(first), moments.mean.data() + first, moments.square.data() + first);
}

std::size_t Records::part_of_record(std::size_t first) const noexcept {
  return first < channels_ ? std::min(of_record_, channels_ - first) : 0;
}

UserOp Records::merging() const {
  UserOp op;
  op.function = form_.merge;
  op.of_all = form_.merge_all;
  op.arg = reinterpret_cast<void*>(record_bytes());
  op.record_bytes = record_bytes();
  op.name = fmt::format("{}{} channels", channels_, wide_ ? " fp64" : "");
  return op;
}

}  // namespace aiacc::syncbn
