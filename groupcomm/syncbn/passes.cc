#include "groupcomm/syncbn/passes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "groupcomm/syncbn/kernels.h"

namespace aiacc::syncbn {
namespace {

// Calls use(number), whose type is that of statistics_type().
template <class Use>
void as_numbers(DType type, Use&& use) {
  if (type == DType::kFloat64) return use(double());
  use(float());
}

// Numbers of each channel, one kind after the other, so that a loop has no branch and the compiler can vectorise it.
template <class Number>
void narrow(const std::vector<double>& from, void* to) noexcept {
  const double* const numbers = from.data();
  for (std::size_t i = 0, n = from.size(); i < n; ++i) static_cast<Number*>(to)[i] = static_cast<Number>(numbers[i]);
}
template <class Number>
void widen(const void* from, std::vector<double>& to) noexcept {
  double* const numbers = to.data();
  for (std::size_t i = 0, n = to.size(); i < n; ++i)
    numbers[i] = static_cast<double>(static_cast<const Number*>(from)[i]);
}
// product[i] = by[i] * numbers[i], and by[i] where there are none.
template <class Number>
void multiply(const double* by, const void* numbers, std::vector<double>& product) noexcept {
  double* const to = product.data();
  for (std::size_t i = 0, n = product.size(); i < n; ++i)
    to[i] = numbers == nullptr ? by[i] : by[i] * static_cast<double>(static_cast<const Number*>(numbers)[i]);
}
// The running statistic becomes (1 - share) of itself and `share_of_now` of what is now.
template <class Number>
void follow(void* running, double share, const std::vector<double>& now, double share_of_now) noexcept {
  auto* const numbers = static_cast<Number*>(running);
  const double* const own = now.data();
  for (std::size_t i = 0, n = now.size(); i < n; ++i)
    numbers[i] = static_cast<Number>(static_cast<double>(numbers[i]) * (1.0 - share) + own[i] * share_of_now);
}

template <class Number>
void follow(const Layer& layer, const Moments& moments) noexcept {
  const bool torch = layer.convention == Convention::kTorch;
  const double share = torch ? layer.momentum : 1.0 - layer.momentum;
  const double divisor = static_cast<double>(moments.count) - (torch ? 1.0 : 0.0);
  if (layer.running_mean != nullptr) follow<Number>(layer.running_mean, share, moments.mean, share);
  if (layer.running_variance != nullptr) follow<Number>(layer.running_variance, share, moments.square, share / divisor);
}

}  // namespace

Passes::Passes(std::string name) : name_(std::move(name)) {}

void Passes::begin_forward(const Batch& batch, const void* x) {
  pass_ = Pass::kForward;
  channels_ = batch.channels;
  type_ = statistics_type(batch.type);
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
  std::copy_n(moments_.mean.data(), channels_, keeps.mean);
  const double share = 1.0 / *keeps.count;
  for (std::size_t channel = 0; channel < channels_; ++channel)
    keeps.scale[channel] = 1.0 / std::sqrt(moments_.square[channel] * share + layer.epsilon);
  as_numbers(statistics_type(batch.type), [&]<class Number>(Number) {
    multiply<Number>(keeps.scale, layer.weight, second_);
    layer.bias != nullptr ? widen<Number>(layer.bias, third_) : third_.assign(channels_, 0.0);
    follow<Number>(layer, moments_);
  });
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
  for (std::size_t channel = 0; channel < channels_; ++channel)
    second_[channel] *= kept.scale[channel];  // now of the normalised elements
  as_numbers(type_, [&]<class Number>(Number) {
    if (dweight != nullptr) narrow<Number>(second_, dweight);
    if (dbias != nullptr) narrow<Number>(first_, dbias);
  });
}

void Passes::end_backward(const Batch& batch, const void* weight, const double* saved, const void* x, const void* dy,
                          void* dx) {
  if (dx == nullptr) return;
  const Saved kept(const_cast<double*>(saved), channels_);
  for (auto* array : {&third_, &fourth_}) array->resize(channels_);
  as_numbers(type_, [&]<class Number>(Number) { multiply<Number>(kept.scale, weight, third_); });
  const double share = 1.0 / *kept.count;
  for (std::size_t channel = 0; channel < channels_; ++channel) {
    const double factor = -third_[channel] * share;
    fourth_[channel] = factor * kept.scale[channel] * second_[channel];
    first_[channel] *= factor;
  }
  kernels::best().input_gradient(batch, x, dy, dx, kept.mean, third_.data(), fourth_.data(), first_.data());
}

std::size_t Passes::message_bytes() const noexcept {
  return pass_ == Pass::kForward ? Records(channels_, type_).bytes() : 2 * channels_ * size_of(type_);
}

Call Passes::write(std::byte* message) {
  Call call;
  call.kind = Collective::kAllreduce;
  if (pass_ == Pass::kForward) {
    const Records records(channels_, type_);
    records.write(moments_, message);
    if (const std::pair now(channels_, type_); std::exchange(merging_of_, now) != now) merging_ = records.merging();
    call.count = records.count();
    call.reduction.type = DType::kRecord;
    call.reduction.user = &merging_;
    return call;
  }
  call.count = 2 * channels_;
  call.reduction.type = type_;
  as_numbers(type_, [&]<class Number>(Number) {
    narrow<Number>(first_, message);
    narrow<Number>(second_, message + channels_ * sizeof(Number));
  });
  return call;
}

void Passes::read(const std::byte* message) {
  if (pass_ == Pass::kForward) return Records(channels_, type_).read(message, moments_);
  as_numbers(type_, [&]<class Number>(Number) {
    widen<Number>(message, first_);
    widen<Number>(message + channels_ * sizeof(Number), second_);
  });
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
