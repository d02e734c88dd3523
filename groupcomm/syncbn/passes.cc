#include "groupcomm/syncbn/passes.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "groupcomm/syncbn/kernels.h"

namespace aiacc::syncbn {
namespace {

// How running statistics follow.
void follow(const Layer& layer, std::uint64_t count, kernels::Scaling& scaling) noexcept {
  const bool torch = layer.convention == Convention::kTorch;
  const double share = torch ? layer.momentum : 1.0 - layer.momentum;
  scaling.running_mean = layer.running_mean;
  scaling.running_variance = layer.running_variance;
  scaling.kept = 1.0 - share;
  scaling.of_mean = share;
  scaling.of_square = share / (static_cast<double>(count) - (torch ? 1.0 : 0.0));
}

}  // namespace

Passes::Passes(std::string name) : name_(std::move(name)) {}

void Passes::begin_forward(const Batch& batch, const void* x) {
  pass_ = Pass::kForward;
  batch_ = batch;
  x_ = x;
  type_ = statistics_type(batch.type);
  exchanged_ = finished_ = false;
  if (const std::pair now(batch.channels, type_); std::exchange(records_of_, now) != now) {
    records_ = Records(batch.channels, type_);
    merging_ = records_.merging();
  }
  sum_up(batch, x, moments_);
}

void Passes::end_forward(const Batch& batch, const Layer& layer, const void* x, void* y, double* saved) {
  if (!exchanged_ && !finished_) finish(batch, x, moments_);
  // All ranks have the same counts, so all of them refuse.
  if (moments_.count == kernels::kCountsDiffer) {
    throw Error(Code::kProtocol,
                fmt::format("SyncBN '{}': records of one batch's moments have different counts: a rank "
                            "has sent something else, or it was altered on its way",
                            name_));
  }
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
  const std::size_t channels = batch.channels;
  const Saved keeps(saved, channels);
  *keeps.count = static_cast<double>(moments_.count);
  first_.resize(channels);
  second_.resize(channels);
  kernels::Scaling scaling;
  scaling.channels = channels;
  scaling.type = type_;
  scaling.mean = moments_.mean.data();
  scaling.square = moments_.square.data();
  scaling.share = 1.0 / *keeps.count;
  scaling.epsilon = layer.epsilon;
  scaling.weight = layer.weight;
  scaling.bias = layer.bias;
  follow(layer, moments_.count, scaling);
  scaling.saved_mean = keeps.mean;
  scaling.scale = keeps.scale;
  scaling.factor = first_.data();
  scaling.constant = second_.data();
  kernels::best().scales(scaling);
  kernels::best().normalize(batch, x, y, keeps.mean, first_.data(), second_.data());
}

void Passes::begin_backward(const Batch& batch, const double* saved, const void* x, const void* dy, void* dweight,
                            void* dbias) {
  pass_ = Pass::kBackward;
  batch_ = batch;
  type_ = statistics_type(batch.type);
  exchanged_ = false;
  const Saved kept(const_cast<double*>(saved), batch.channels);
  for (auto* array : {&first_, &second_}) array->resize(batch.channels);
  sums_.resize(message_bytes());
  kernels::best().gradient_sums(batch, x, dy, kept.mean, first_.data(), second_.data());
  gradients_.channels = batch.channels;
  gradients_.type = type_;
  gradients_.first = first_.data();
  gradients_.second = second_.data();
  gradients_.scale = kept.scale;
  gradients_.dbias = dbias;
  gradients_.dweight = dweight;
}

void Passes::end_backward(const Batch& batch, const void* weight, const double* saved, const void* x, const void* dy,
                          void* dx) {
  if (!exchanged_) give_gradients(DType::kFloat64, first_.data(), second_.data());
  if (dx == nullptr) return;
  const Saved kept(const_cast<double*>(saved), batch.channels);
  third_.resize(batch.channels);
  kernels::GradientScaling scaling;
  scaling.channels = batch.channels;
  scaling.type = type_;
  scaling.sum_type = gradients_.sum_type;
  scaling.share = 1.0 / *kept.count;
  scaling.weight = weight;
  scaling.scale = kept.scale;
  scaling.sum = gradients_.sum;
  scaling.product_sum = gradients_.product_sum;
  scaling.of_gradient = third_.data();
  scaling.of_deviation = second_.data();
  scaling.constant = first_.data();
  kernels::best().gradient_scales(scaling);
  kernels::best().input_gradient(batch, x, dy, dx, kept.mean, third_.data(), second_.data(), first_.data());
}

void Passes::give_gradients(DType type, void* sum, void* product_sum) noexcept {
  gradients_.sum_type = type;
  gradients_.sum = sum;
  gradients_.product_sum = product_sum;
  kernels::best().give_gradients(gradients_);
}

std::size_t Passes::message_bytes() const noexcept {
  return pass_ == Pass::kForward ? records_.bytes() : 2 * batch_.channels * size_of(type_);
}

Call Passes::call() noexcept {
  Call call;
  call.kind = Collective::kAllreduce;
  const std::size_t channels = batch_.channels;
  if (pass_ == Pass::kForward) {
    if (!finished_ && has_far(moments_)) {
      finish(batch_, x_, moments_);
      finished_ = true;
    }
    call.count = records_.count();
    call.reduction.type = DType::kRecord;
    call.reduction.user = &merging_;
    return call;
  }
  call.count = 2 * channels;
  call.reduction.type = type_;
  return call;
}

void Passes::write(std::byte* message) noexcept {
  if (pass_ == Pass::kBackward) return give_gradients(type_, message, message + batch_.channels * size_of(type_));
  finished_ ? records_.write(moments_, message) : records_.write_sums(moments_, message);
}

void Passes::read(const std::byte* message) {
  exchanged_ = true;
  if (pass_ == Pass::kBackward) return read_sums(message);
  records_.read(message, moments_);
}

void Passes::read(std::span<const std::byte* const> messages) noexcept {
  exchanged_ = true;
  if (pass_ == Pass::kForward) return records_.merge(messages, moments_);
  std::byte* const sums = sums_.data();
  Reduction reduction;
  reduction.type = type_;
  cpu_.reduce_now({&sums, 1}, messages, 2 * batch_.channels, reduction, static_cast<int>(messages.size()));
  read_sums(sums);
}

void Passes::read_sums(const std::byte* sums) noexcept {
  gradients_.sum = const_cast<std::byte*>(sums);
  gradients_.product_sum = const_cast<std::byte*>(sums) + batch_.channels * size_of(type_);
}

Error Passes::explained(const Error& error) const {
  if (error.code() != Code::kMismatch) return error;
  return Error(Code::kMismatch,
               fmt::format("SyncBN '{}', {} over {} channels here: {}{}", name_,
                           pass_ == Pass::kForward ? "forward" : "backward", batch_.channels, error.message(),
                           error.message().find("barrier") == std::string::npos ? "" : " (a barrier: out of batches)"),
               error.peer());
}

}  // namespace aiacc::syncbn
