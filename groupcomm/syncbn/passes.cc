#include "groupcomm/syncbn/passes.h"

#include <fmt/format.h>

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

// Numbers of a type to an array, and from it.
template <class Number>
void narrow(const std::vector<double>& from, std::byte* to) noexcept {
  for (std::size_t i = 0; i < from.size(); ++i) reinterpret_cast<Number*>(to)[i] = static_cast<Number>(from[i]);
}
template <class Number>
void widen(const std::byte* from, std::vector<double>& to) noexcept {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = static_cast<double>(reinterpret_cast<const Number*>(from)[i]);
}

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

Passes::Passes(std::string name) : name_(std::move(name)) {}

void Passes::begin_forward(const Batch& batch, const void* x) {
  pass_ = Pass::kForward;
  channels_ = batch.channels;
  moments_of(batch, x, moments_);
}

void Passes::end_forward(const Batch& batch, const Layer& layer, const void* x, void* y, double* saved) {
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
  const Saved keeps(saved, channels_);
  *keeps.count = static_cast<double>(moments_.count);
  second_.resize(channels_);
  third_.resize(channels_);
  const Numbers weight(layer.weight, statistics_type(batch.type)), bias(layer.bias, statistics_type(batch.type));
  for (std::size_t channel = 0; channel < channels_; ++channel) {
    keeps.mean[channel] = moments_.mean[channel];
    keeps.scale[channel] = 1.0 / std::sqrt(moments_.square[channel] / *keeps.count + layer.epsilon);
    second_[channel] = weight ? keeps.scale[channel] * weight.get(channel) : keeps.scale[channel];
    third_[channel] = bias ? bias.get(channel) : 0.0;
  }
  follow(layer, statistics_type(batch.type), moments_);
  kernels::best().normalize(batch, x, y, keeps.mean, second_.data(), third_.data());
}

void Passes::begin_backward(const Batch& batch, const double* saved, const void* x, const void* dy, void* dweight,
                            void* dbias) {
  pass_ = Pass::kBackward;
  channels_ = batch.channels;
  type_ = statistics_type(batch.type);
  const Saved kept(const_cast<double*>(saved), channels_);
  for (auto* array : {&first_, &second_}) array->resize(channels_);
  kernels::best().gradient_sums(batch, x, dy, kept.mean, first_.data(), second_.data());
  const Numbers own_weight(dweight, type_), own_bias(dbias, type_);
  for (std::size_t channel = 0; channel < channels_; ++channel) {
    second_[channel] *= kept.scale[channel];  // now of the normalised elements
    if (own_weight) own_weight.set(channel, second_[channel]);
    if (own_bias) own_bias.set(channel, first_[channel]);
  }
}

void Passes::end_backward(const Batch& batch, const void* weight, const double* saved, const void* x, const void* dy,
                          void* dx) {
  if (dx == nullptr) return;
  const Saved kept(const_cast<double*>(saved), channels_);
  for (auto* array : {&third_, &fourth_}) array->resize(channels_);
  const Numbers of_layer(weight, type_);
  for (std::size_t channel = 0; channel < channels_; ++channel) {
    const double scale = kept.scale[channel];
    const double factor = of_layer ? scale * of_layer.get(channel) : scale;
    third_[channel] = factor;
    fourth_[channel] = -factor * scale * (second_[channel] / *kept.count);
    first_[channel] = -factor * (first_[channel] / *kept.count);
  }
  kernels::best().input_gradient(batch, x, dy, dx, kept.mean, third_.data(), fourth_.data(), first_.data());
}

std::size_t Passes::message_bytes() const noexcept {
  return pass_ == Pass::kForward ? Records(channels_).bytes() : 2 * channels_ * size_of(type_);
}

Call Passes::write(std::byte* message) {
  Call call;
  call.kind = Collective::kAllreduce;
  if (pass_ == Pass::kForward) {
    const Records records(channels_);
    records.write(moments_, message);
    if (std::exchange(merging_of_, channels_) != channels_) merging_ = records.merging();
    call.count = records.count();
    call.reduction.type = DType::kRecord;
    call.reduction.user = &merging_;
    return call;
  }
  call.count = 2 * channels_;
  call.reduction.type = type_;
  const auto put = type_ == DType::kFloat64 ? narrow<double> : narrow<float>;
  put(first_, message);
  put(second_, message + channels_ * size_of(type_));
  return call;
}

void Passes::read(const std::byte* message) {
  if (pass_ == Pass::kForward) return Records(channels_).read(message, moments_);
  const auto take = type_ == DType::kFloat64 ? widen<double> : widen<float>;
  take(message, first_);
  take(message + channels_ * size_of(type_), second_);
}

Error Passes::explained(const Error& error) const {
  if (error.code() != Code::kMismatch) return error;
  return Error(Code::kMismatch,
               fmt::format("SyncBN '{}', {} over {} channels here: {}{}", name_,
                           pass_ == Pass::kForward ? "forward" : "backward", channels_, error.message(),
                           error.message().find("barrier") == std::string::npos ? "" : " (a barrier: out of batches)"),
               error.peer());
}

}  // namespace aiacc::syncbn
