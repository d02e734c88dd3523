#include "groupcomm/syncbn/moments.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "groupcomm/syncbn/kernels.h"

namespace aiacc::syncbn {
namespace {

constexpr std::size_t kMostChannels = (UserOp::kMostRecordBytes / sizeof(double) - 1) / 2;

// Records have no alignment of their own, and the compiler makes plain loads of these.
double number_at(const std::byte* record, std::size_t index) noexcept {
  double number;
  std::memcpy(&number, record + index * sizeof number, sizeof number);
  return number;
}
void put(std::byte* record, std::size_t index, double number) noexcept {
  std::memcpy(record + index * sizeof number, &number, sizeof number);
}

// The channels of `Lanes` numbers that follow `mean` and `square`: positions in both records.
template <class Lanes>
void merge_at(std::byte* into, const std::byte* from, std::size_t mean, std::size_t square, double share,
              double weight) noexcept {
  const auto numbers_at = [](const std::byte* record, std::size_t index) {
    Lanes numbers;
    std::memcpy(&numbers, record + index * sizeof(double), sizeof numbers);
    return numbers;
  };
  const Lanes own_mean = numbers_at(into, mean), apart = numbers_at(from, mean) - own_mean;
  const Lanes new_mean = own_mean + apart * share;
  const Lanes new_square = numbers_at(into, square) + numbers_at(from, square) + apart * apart * weight;
  std::memcpy(into + mean * sizeof(double), &new_mean, sizeof new_mean);
  std::memcpy(into + square * sizeof(double), &new_square, sizeof new_square);
}

// An empty batch is the identity: the mean that it has is never looked at.
void merge(std::byte* into, const std::byte* from, std::size_t channels) noexcept {
  const auto count = std::bit_cast<std::uint64_t>(number_at(into, 0));
  const auto other = std::bit_cast<std::uint64_t>(number_at(from, 0));
  if (other == 0) return;
  if (count == 0) {
    std::memcpy(into, from, sizeof(double) * (1 + 2 * channels));
    return;
  }
  const std::uint64_t total = count + other;
  put(into, 0, std::bit_cast<double>(total));
  const double share = static_cast<double>(other) / static_cast<double>(total);
  const double weight = static_cast<double>(count) * share;
  typedef double Pair __attribute__((vector_size(2 * sizeof(double))));
  std::size_t mean = 1, square = 1 + channels;
  for (; mean + 2 <= 1 + channels; mean += 2, square += 2) merge_at<Pair>(into, from, mean, square, share, weight);
  if (mean < 1 + channels) merge_at<double>(into, from, mean, square, share, weight);
}

void merge_records(void* inout, const void* in, std::size_t records, void* record_bytes) {
  const auto bytes = reinterpret_cast<std::uintptr_t>(record_bytes);
  auto* into = static_cast<std::byte*>(inout);
  const auto* from = static_cast<const std::byte*>(in);
  for (; records > 0; --records, into += bytes, from += bytes) merge(into, from, (bytes / sizeof(double) - 1) / 2);
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

Records::Records(std::size_t channels) noexcept
    : channels_(channels),
      count_((channels + kMostChannels - 1) / kMostChannels),
      of_record_((channels + count_ - 1) / count_) {}

void Records::write(const Moments& moments, std::byte* message) const noexcept {
  for (std::size_t first = 0; first < count_ * of_record_; first += of_record_, message += record_bytes()) {
    put(message, 0, std::bit_cast<double>(moments.count));
    const std::size_t own = part_of_record(first);
    std::byte* const means = message + sizeof(double);
    std::byte* const squares = means + of_record_ * sizeof(double);
    if (own < of_record_) std::memset(means, 0, record_bytes() - sizeof(double));
    if (own == 0) continue;
    std::memcpy(means, moments.mean.data() + first, own * sizeof(double));
    std::memcpy(squares, moments.square.data() + first, own * sizeof(double));
  }
}

void Records::read(const std::byte* message, Moments& moments) const {
  moments.count = std::bit_cast<std::uint64_t>(number_at(message, 0));
  moments.mean.resize(channels_);
  moments.square.resize(channels_);
  for (std::size_t first = 0; first < channels_; first += of_record_, message += record_bytes()) {
    const std::size_t own = part_of_record(first);
    const std::byte* const means = message + sizeof(double);
    std::memcpy(moments.mean.data() + first, means, own * sizeof(double));
    std::memcpy(moments.square.data() + first, means + of_record_ * sizeof(double), own * sizeof(double));
  }
}

std::size_t Records::part_of_record(std::size_t first) const noexcept {
  return first < channels_ ? std::min(of_record_, channels_ - first) : 0;
}

UserOp Records::merging() const {
  UserOp op;
  op.function = merge_records;
  op.arg = reinterpret_cast<void*>(record_bytes());
  op.record_bytes = record_bytes();
  op.name = fmt::format("{} channels", channels_);
  return op;
}

}  // namespace aiacc::syncbn
