#include "groupcomm/syncbn/sync_batch_norm.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "groupcomm/syncbn/kernels.h"

namespace aiacc::syncbn {
namespace {

// An array of numbers of statistics_type().
class Numbers {
 public:
  Numbers(const void* array, DType type) noexcept : array_(const_cast<void*>(array)), wide_(type == DType::kFloat64) {}
  explicit operator bool() const noexcept { return array_ != nullptr; }
  double get(std::size_t at) const noexcept {
    return wide_ ? static_cast<const double*>(array_)[at] : static_cast<double>(static_cast<const float*>(array_)[at]);
  }
  void set(std::size_t at, double number) const noexcept {
    if (wide_) {
      static_cast<double*>(array_)[at] = number;
    } else {
      static_cast<float*>(array_)[at] = static_cast<float>(number);
    }
  }

 private:
  void* array_;
  bool wide_;
};

void follow(const Numbers& running, std::size_t channel, double now, double share) noexcept {
  running.set(channel, running.get(channel) * (1.0 - share) + now * share);
}

void follow(const Layer& layer, DType type, const Moments& moments) noexcept {
  const Numbers mean(layer.running_mean, type), variance(layer.running_variance, type);
  const bool torch = layer.convention == Convention::kTorch;
  const double share = torch ? layer.momentum : 1.0 - layer.momentum;
  const double divisor = static_cast<double>(moments.count) - (torch ? 1.0 : 0.0);
  for (std::size_t channel = 0; channel < moments.mean.size(); ++channel) {
    if (mean) follow(mean, channel, moments.mean[channel], share);
    if (variance) follow(variance, channel, moments.square[channel] / divisor, share);
  }
}

}  // namespace

SyncBatchNorm::SyncBatchNorm(RealContext& context, Group& group, std::string name)
    : context_(context), group_(group), name_(std::move(name)) {}

SyncBatchNorm::~SyncBatchNorm() {
  try {
    if (message_.data != nullptr) context_.free(message_);
  } catch (...) {  // the host's memory ends with the job
  }
}

void SyncBatchNorm::forward(const Batch& batch, const Layer& layer, const void* x, void* y, double* saved) {
  const std::lock_guard lock(mutex_);
  const std::size_t channels = batch.channels;
  moments_of(batch, x, moments_);
  exchange_moments(channels);
  // All ranks have the same count, so all of them refuse.
  if (moments_.count == 0) {
    throw Error(Code::kInvalidArgument, fmt::format("SyncBN '{}': the batches of all ranks are empty", name_));
  }
  if (moments_.count == 1 && layer.convention == Convention::kTorch) {
    throw Error(
        Code::kInvalidArgument,
        fmt::format("SyncBN '{}': all ranks together have 1 value of a channel, which has no unbiased variance: "
                    "training needs 2 or more",
                    name_));
  }
  const Saved keeps(saved, channels);
  *keeps.count = static_cast<double>(moments_.count);
  second_.resize(channels);
  third_.resize(channels);
  const Numbers weight(layer.weight, statistics_type(batch.type)), bias(layer.bias, statistics_type(batch.type));
  for (std::size_t channel = 0; channel < channels; ++channel) {
    keeps.mean[channel] = moments_.mean[channel];
    keeps.scale[channel] = 1.0 / std::sqrt(moments_.square[channel] / *keeps.count + layer.epsilon);
    second_[channel] = weight ? keeps.scale[channel] * weight.get(channel) : keeps.scale[channel];
    third_[channel] = bias ? bias.get(channel) : 0.0;
  }
  follow(layer, statistics_type(batch.type), moments_);
  kernels::best().normalize(batch, x, y, keeps.mean, second_.data(), third_.data());
}

void SyncBatchNorm::backward(const Batch& batch, const void* weight, const double* saved, const void* x, const void* dy,
                             void* dx, void* dweight, void* dbias) {
  const std::lock_guard lock(mutex_);
  const std::size_t channels = batch.channels;
  const Saved kept(const_cast<double*>(saved), channels);
  const DType type = statistics_type(batch.type);
  for (auto* array : {&first_, &second_, &third_, &fourth_}) array->resize(channels);
  kernels::best().gradient_sums(batch, x, dy, kept.mean, first_.data(), second_.data());
  const Numbers own_weight(dweight, type), own_bias(dbias, type);
  for (std::size_t channel = 0; channel < channels; ++channel) {
    second_[channel] *= kept.scale[channel];  // now of the normalised elements
    if (own_weight) own_weight.set(channel, second_[channel]);
    if (own_bias) own_bias.set(channel, first_[channel]);
  }
  exchange_sums(batch);
  if (dx == nullptr) return;
  const Numbers of_layer(weight, type);
  for (std::size_t channel = 0; channel < channels; ++channel) {
    const double scale = kept.scale[channel];
    const double factor = of_layer ? scale * of_layer.get(channel) : scale;
    third_[channel] = factor;
    fourth_[channel] = -factor * scale * (second_[channel] / *kept.count);
    first_[channel] = -factor * (first_[channel] / *kept.count);
  }
  kernels::best().input_gradient(batch, x, dy, dx, kept.mean, third_.data(), fourth_.data(), first_.data());
}

void SyncBatchNorm::exchange_moments(std::size_t channels) {
  if (group_.size() == 1) return;
  const Records records(channels);
  records.write(moments_, message(records.bytes()));
  const UserOp merging = records.merging();
  Call call;
  call.kind = Collective::kAllreduce;
  call.count = records.count();
  call.reduction.type = DType::kRecord;
  call.reduction.user = &merging;
  exchange("forward", channels, call, records.bytes());
  records.read(message_.data, moments_);
}

// first_ and second_ become their sums over the ranks.
void SyncBatchNorm::exchange_sums(const Batch& batch) {
  if (group_.size() == 1) return;
  Call call;
  call.kind = Collective::kAllreduce;
  call.count = 2 * batch.channels;
  call.reduction.type = statistics_type(batch.type);
  const std::size_t bytes = call.bytes();
  const Numbers sums(message(bytes), call.reduction.type);
  for (std::size_t channel = 0; channel < batch.channels; ++channel) {
    sums.set(channel, first_[channel]);
    sums.set(batch.channels + channel, second_[channel]);
  }
  exchange("backward", batch.channels, call, bytes);
  for (std::size_t channel = 0; channel < batch.channels; ++channel) {
    first_[channel] = sums.get(channel);
    second_[channel] = sums.get(batch.channels + channel);
  }
}

void SyncBatchNorm::exchange(const char* pass, std::size_t channels, const Call& call, std::size_t bytes) {
  Buffer buffer;
  buffer.data = message_.data;
  buffer.bytes = bytes;
  try {
    group_.run(call, buffer, buffer, nullptr);
  } catch (const Error& error) {
    if (error.code() != Code::kMismatch) throw;
    throw Error(Code::kMismatch,
                fmt::format("SyncBN '{}', {} over {} channels here: {}", name_, pass, channels, error.message()),
                error.peer());
  }
}

// Memory for a message. Where there is none, the others, which wait for this rank, are told.
std::byte* SyncBatchNorm::message(std::size_t bytes) {
  if (bytes <= message_.bytes) return message_.data;
  try {
    if (message_.data != nullptr) context_.free(std::exchange(message_, {}));
    message_ = context_.allocate(std::bit_ceil(bytes));
  } catch (const Error& error) {
    context_.abort_group(group_, fmt::format("SyncBN '{}' has no memory for its message: {}", name_, error.message()));
    throw;
  }
  return message_.data;
}

}  // namespace aiacc::syncbn
