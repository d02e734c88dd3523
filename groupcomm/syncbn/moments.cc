#include "groupcomm/syncbn/moments.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "groupcomm/syncbn/kernels.h"

namespace aiacc::syncbn {
namespace {

constexpr std::size_t kCountBytes = sizeof(std::uint64_t);

// Records have no alignment of their own, and the compiler makes plain loads and stores of these.
template <class Number>
Number number_at(const std::byte* array, std::size_t index) noexcept {
  Number number;
  std::memcpy(&number, array + index * sizeof number, sizeof number);
  return number;
}
template <class Number>
void put(std::byte* array, std::size_t index, Number number) noexcept {
  std::memcpy(array + index * sizeof number, &number, sizeof number);
}
std::uint64_t count_of(const std::byte* record) noexcept { return number_at<std::uint64_t>(record, 0); }

// The means and variances of the `channels` of a record: what follows its count. Not M2, which exceeds fp32 where a variance does not.
struct Wide {
  static constexpr std::size_t kBytes = 2 * sizeof(double);  // of a channel
  static double mean(const std::byte* numbers, std::size_t, std::size_t channel) noexcept {
    return number_at<double>(numbers, channel);
  }
  static double variance(const std::byte* numbers, std::size_t channels, std::size_t channel) noexcept {
    return number_at<double>(numbers, channels + channel);
  }
  static void put_both(std::byte* numbers, std::size_t channels, std::size_t channel, double mean,
                       double variance) noexcept {
    put(numbers, channel, mean);
    put(numbers, channels + channel, variance);
  }
};
// A mean's first 24 bits as fp32, and the 16 bits behind these.
struct Narrow {
  static constexpr std::size_t kBytes = sizeof(float) + sizeof(std::uint16_t) + sizeof(float);
  static constexpr int kDropped = 13;  // of the 29 bits that fp64 has more
  static double mean(const std::byte* numbers, std::size_t channels, std::size_t channel) noexcept {
    const auto first = static_cast<double>(number_at<float>(numbers, channel));
    const std::uint64_t next = number_at<std::uint16_t>(numbers + channels * sizeof(float), channel);
    return std::bit_cast<double>(std::bit_cast<std::uint64_t>(first) | next << kDropped);
  }
  static double variance(const std::byte* numbers, std::size_t channels, std::size_t channel) noexcept {
    return static_cast<double>(number_at<float>(numbers + channels * (kBytes - sizeof(float)), channel));
  }
  static void put_both(std::byte* numbers, std::size_t channels, std::size_t channel, double mean,
                       double variance) noexcept {
    // A carry goes into the exponent.
    const std::uint64_t rounded = std::bit_cast<std::uint64_t>(mean) + (std::uint64_t{1} << (kDropped - 1));
    put(numbers, channel, static_cast<float>(std::bit_cast<double>(rounded & ~((std::uint64_t{1} << 29) - 1))));
    put(numbers + channels * sizeof(float), channel, static_cast<std::uint16_t>(rounded >> kDropped));
    put(numbers + channels * (kBytes - sizeof(float)), channel, static_cast<float>(variance));
  }
};

// An empty batch is the identity: the mean that it has is never looked at.
template <class Form>
void merge(std::byte* __restrict into, const std::byte* __restrict from, std::size_t record_bytes) noexcept {
  const std::uint64_t count = count_of(into), other = count_of(from);
  if (other == 0) return;
  if (count == 0) {
    std::memcpy(into, from, record_bytes);
    return;
  }
  const std::uint64_t total = count + other;
  put(into, 0, total);
  const double own = static_cast<double>(count) / static_cast<double>(total);
  const double share = static_cast<double>(other) / static_cast<double>(total);
  const std::size_t channels = (record_bytes - kCountBytes) / Form::kBytes;
  into += kCountBytes;
  from += kCountBytes;
  for (std::size_t channel = 0; channel < channels; ++channel) {
    const double mean = Form::mean(into, channels, channel);
    const double apart = Form::mean(from, channels, channel) - mean;
    const double within =
        Form::variance(into, channels, channel) * own + Form::variance(from, channels, channel) * share;
    Form::put_both(into, channels, channel, mean + apart * share, within + apart * own * apart * share);
  }
}

template <class Form>
void merge_records(void* inout, const void* in, std::size_t records, void* record_bytes) {
  const auto bytes = reinterpret_cast<std::uintptr_t>(record_bytes);
  auto* into = static_cast<std::byte*>(inout);
  const auto* from = static_cast<const std::byte*>(in);
  for (; records > 0; --records, into += bytes, from += bytes) merge<Form>(into, from, bytes);
}

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
    : channels_(channels), wide_(statistics == DType::kFloat64) {
  const std::size_t most = (UserOp::kMostRecordBytes - kCountBytes) / channel_bytes();
  count_ = (channels + most - 1) / most;
  of_record_ = (channels + count_ - 1) / count_;
}

std::size_t Records::channel_bytes() const noexcept { return wide_ ? Wide::kBytes : Narrow::kBytes; }

template <class Form>
void Records::write_as(const Moments& moments, std::byte* message) const noexcept {
  for (std::size_t first = 0; first < count_ * of_record_; first += of_record_, message += record_bytes()) {
    put(message, 0, moments.count);
    std::byte* const numbers = message + kCountBytes;
    const std::size_t own = part_of_record(first), of_record = of_record_;
    const double *const mean = moments.mean.data() + first, *const square = moments.square.data() + first;
    if (own < of_record) std::memset(numbers, 0, of_record * Form::kBytes);
    const double share = moments.count > 0 ? 1 / static_cast<double>(moments.count) : 0;
    for (std::size_t channel = 0; channel < own; ++channel)
      Form::put_both(numbers, of_record, channel, mean[channel], square[channel] * share);
  }
}

void Records::write(const Moments& moments, std::byte* message) const noexcept {
  wide_ ? write_as<Wide>(moments, message) : write_as<Narrow>(moments, message);
}

template <class Form>
void Records::read_as(const std::byte* message, Moments& moments) const noexcept {
  for (std::size_t first = 0; first < channels_; first += of_record_, message += record_bytes()) {
    const std::byte* const numbers = message + kCountBytes;
    const std::size_t own = part_of_record(first), of_record = of_record_;
    double *const mean = moments.mean.data() + first, *const square = moments.square.data() + first;
    for (std::size_t channel = 0; channel < own; ++channel) {
      mean[channel] = Form::mean(numbers, of_record, channel);
      square[channel] = Form::variance(numbers, of_record, channel) * static_cast<double>(moments.count);
    }
  }
}

void Records::read(const std::byte* message, Moments& moments) const {
  moments.count = count_of(message);
  moments.mean.resize(channels_);
  moments.square.resize(channels_);
  wide_ ? read_as<Wide>(message, moments) : read_as<Narrow>(message, moments);
}

std::size_t Records::part_of_record(std::size_t first) const noexcept {
  return first < channels_ ? std::min(of_record_, channels_ - first) : 0;
}

UserOp Records::merging() const {
  UserOp op;
  op.function = wide_ ? merge_records<Wide> : merge_records<Narrow>;
  op.arg = reinterpret_cast<void*>(record_bytes());
  op.record_bytes = record_bytes();
  op.name = fmt::format("{}{} channels", channels_, wide_ ? " fp64" : "");
  return op;
}

}  // namespace aiacc::syncbn
