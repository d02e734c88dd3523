#include "groupcomm/syncbn/moments.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "groupcomm/syncbn/kernels.h"

namespace aiacc::syncbn {
namespace {

// Makes moments of sums of deviations from shifts, which are in the place of means, in the groups that are taken. Of these, those
// stay taken whose sums do not give a variance. Returns whether there are any.
bool from_shifts(Moments& moments, bool (*is_far)(double of_shift, double square)) noexcept {
  constexpr std::size_t kGroup = kernels::kTakenTogether;
  const double share = 1.0 / static_cast<double>(moments.count);
  const std::size_t channels = moments.mean.size();
  double *const mean = moments.mean.data(), *const square = moments.square.data();
  const double* const sum = moments.sum.data();
  bool any = false;
  for (std::size_t group = 0; group < moments.taken.size(); ++group) {
    if (moments.taken[group] == 0) continue;
    bool far = false;
    const std::size_t end = std::min(channels, (group + 1) * kGroup);
    for (std::size_t channel = group * kGroup; channel < end; ++channel) {
      const double from_shift = sum[channel] * share, of_shift = sum[channel] * from_shift;
      const double own = square[channel] - of_shift;
      mean[channel] += from_shift;
      square[channel] = own < 0 ? 0 : own;  // a NaN stays one
      far |= is_far(of_shift, own);
    }
    moments.taken[group] = far ? 1 : 0;
    any |= far;
  }
  return any;
}

}  // namespace

void sum_up(const Batch& batch, const void* x, Moments& sums) {
  const std::size_t channels = batch.channels;
  sums.count = batch.count();
  for (auto* array : {&sums.square, &sums.sum}) array->resize(channels);
  if (sums.count == 0) {
    for (auto* array : {&sums.mean, &sums.square}) array->assign(channels, 0.0);
    return;
  }
  kernels::best().sums(batch, x, sums.sum.data(), sums.square.data());
}

// The deviation of a channel's only element is 0. What is not finite is passed again, also where that changes nothing, as
// of a NaN.
bool has_far(const Moments& sums) noexcept {
  const auto is_finite = [](double square) { return std::isfinite(square); };
  if (sums.count == 1 && std::all_of(sums.square.begin(), sums.square.end(), is_finite)) return false;
  return sums.count > 0 && kernels::best().any_far(sums.count, sums.sum.data(), sums.square.data(), sums.sum.size());
}

void finish(const Batch& batch, const void* x, Moments& sums) {
  if (sums.count == 0) return;
  const auto from_0 = [](double of_mean, double square) {
    const double much = square * kernels::kFar;
    return !(of_mean <= much && much <= std::numeric_limits<double>::max());
  };
  const auto from_given = [](double of_shift, double square) { return of_shift > kernels::kFar * square; };
  sums.mean.assign(batch.channels, 0.0);
  sums.taken.assign((batch.channels + kernels::kTakenTogether - 1) / kernels::kTakenTogether, 1);
  if (!from_shifts(sums, from_0)) return;
  double *const shift = sums.mean.data(), *const first = sums.sum.data(), *const second = sums.square.data();
  kernels::best().sums_from_first(batch, x, sums.taken.data(), shift, first, second);
  if (!from_shifts(sums, from_given)) return;
  kernels::best().sums_from(batch, x, sums.taken.data(), shift, first, second);
  from_shifts(sums, from_given);
}

void moments_of(const Batch& batch, const void* x, Moments& moments) {
  sum_up(batch, x, moments);
  finish(batch, x, moments);
}

Records::Records(std::size_t channels, DType statistics) noexcept
    : channels_(channels),
      wide_(statistics == DType::kFloat64),
      form_(wide_ ? &kernels::best().wide : &kernels::best().narrow) {
  const std::size_t most = (UserOp::kMostRecordBytes - sizeof(std::uint64_t)) / form_->channel_bytes;
  // Whole vectors of kernels: eight channels or several times as many, of which as few as possible are too many.
  constexpr std::size_t kLanes = 8;
  std::size_t least = ~std::size_t{0};
  const auto take = [&](std::size_t size, double much) {
    const std::size_t count = (channels + size - 1) / size,
                      bytes = count * (sizeof(std::uint64_t) + size * form_->channel_bytes);
    if (static_cast<double>(bytes) > much * static_cast<double>(least)) return;
    least = bytes;
    count_ = count;
    of_record_ = size;
  };
  for (std::size_t size = std::min(channels, kLanes); size <= most; size += kLanes) take(size, 1);
  // Or even parts in as few records as possible, if that is much shorter.
  const std::size_t fewest = (channels + most - 1) / most;
  take((channels + fewest - 1) / fewest, 15.0 / 16);
}

void Records::write(const Moments& moments, std::byte* message) const noexcept {
  for (std::size_t first = 0; first < count_ * of_record_; first += of_record_, message += record_bytes()) {
    form_->write(moments.count, moments.mean.data() + first, moments.square.data() + first, part_of_record(first),
                 of_record_, message);
  }
}

void Records::write_sums(const Moments& sums, std::byte* message) const noexcept {
  if (sums.count == 0) return write(sums, message);
  for (std::size_t first = 0; first < count_ * of_record_; first += of_record_, message += record_bytes()) {
    form_->write_sums(sums.count, sums.sum.data() + first, sums.square.data() + first, part_of_record(first),
                      of_record_, message);
  }
}

void Records::read(const std::byte* message, Moments& moments) const {
  std::memcpy(&moments.count, message, sizeof moments.count);
  moments.mean.resize(channels_);
  moments.square.resize(channels_);
  for (std::size_t first = 0; first < channels_; first += of_record_, message += record_bytes()) {
    std::uint64_t count = 0;
    std::memcpy(&count, message, sizeof count);
    if (count != moments.count) moments.count = kernels::kCountsDiffer;
    form_->read(message, of_record_, part_of_record(first), moments.mean.data() + first, moments.square.data() + first);
  }
}

void Records::merge(std::span<const std::byte* const> messages, Moments& moments) const noexcept {
  moments.mean.resize(channels_);
  moments.square.resize(channels_);
  moments.count = form_->merge_and_read(messages.data(), messages.size(), of_record_, channels_, moments.mean.data(),
                                        moments.square.data());
}

std::size_t Records::part_of_record(std::size_t first) const noexcept {
  return first < channels_ ? std::min(of_record_, channels_ - first) : 0;
}

UserOp Records::merging() const {
  UserOp op;
  op.function = form_->merge;
  op.of_all = form_->merge_all;
  op.arg = reinterpret_cast<void*>(record_bytes());
  op.record_bytes = record_bytes();
  op.name = fmt::format("{}{} channels", channels_, wide_ ? " fp64" : "");
  op.known_identity = op.identity();
  return op;
}

}  // namespace aiacc::syncbn
