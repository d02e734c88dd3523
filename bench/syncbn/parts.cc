#include "bench/syncbn/parts.h"

#include <cmath>

#include "groupcomm/syncbn/kernels.h"

namespace aiacc::bench {
namespace {

aiacc_status_t sum(float* floats, std::size_t n) {
  return aiacc_allreduce(floats, floats, n, AIACC_FLOAT32, AIACC_SUM, AIACC_WORLD, nullptr, nullptr);
}

}  // namespace

Parts::Parts(const syncbn::Batch& batch)
    : batch_(batch),
      first_(batch.channels),
      second_(batch.channels),
      mean_(batch.channels),
      scale_(batch.channels),
      factor_(batch.channels),
      constant_(batch.channels) {
  void* memory = nullptr;
  if (aiacc_mem_alloc(AIACC_NULL, (2 * batch.channels + 1) * sizeof(float), &memory) == AIACC_OK)
    floats_ = static_cast<float*>(memory);
}

Parts::~Parts() { aiacc_mem_free(floats_); }

aiacc_status_t Parts::forward(const Parameters& layer, const void* x, void* y) {
  const auto& passes = syncbn::kernels::best();
  const std::size_t channels = batch_.channels;
  passes.sums(batch_, x, first_.data(), second_.data());
  for (std::size_t c = 0; c < channels; ++c) floats_[c] = static_cast<float>(first_[c]);
  for (std::size_t c = 0; c < channels; ++c) floats_[channels + c] = static_cast<float>(second_[c]);
  floats_[2 * channels] = static_cast<float>(batch_.count());
  if (const aiacc_status_t failed = sum(floats_, 2 * channels + 1); failed != AIACC_OK) return failed;
  count_ = floats_[2 * channels];
  const double share = 1 / count_, unbiased = count_ / (count_ - 1), momentum = layer.momentum;
  const float *const of_x = floats_, *const of_squares = floats_ + channels;
  double *const means = mean_.data(), *const scales = scale_.data(), *const factors = factor_.data(),
                *const constants = constant_.data();
#pragma GCC ivdep
  for (std::size_t c = 0; c < channels; ++c) {
    const double mean = of_x[c] * share, variance = of_squares[c] * share - mean * mean,
                 scale = 1 / std::sqrt(variance + layer.epsilon);
    means[c] = mean;
    scales[c] = scale;
    factors[c] = scale * layer.weight[c];
    constants[c] = layer.bias[c];
    layer.running_mean[c] = static_cast<float>(layer.running_mean[c] * (1 - momentum) + mean * momentum);
    layer.running_variance[c] =
        static_cast<float>(layer.running_variance[c] * (1 - momentum) + variance * unbiased * momentum);
  }
  passes.normalize(batch_, x, y, means, factors, constants);
  return AIACC_OK;
}

aiacc_status_t Parts::backward(const float* weight, const void* x, const void* dy, void* dx, float* dweight,
                               float* dbias) {
  const auto& passes = syncbn::kernels::best();
  const std::size_t channels = batch_.channels;
  const double *const means = mean_.data(), *const scales = scale_.data();
  double *const first = first_.data(), *const second = second_.data(), *const factors = factor_.data();
  passes.gradient_sums(batch_, x, dy, means, first, second);
#pragma GCC ivdep
  for (std::size_t c = 0; c < channels; ++c) {
    dbias[c] = floats_[c] = static_cast<float>(first[c]);
    dweight[c] = floats_[channels + c] = static_cast<float>(second[c] * scales[c]);
  }
  if (const aiacc_status_t failed = sum(floats_, 2 * channels); failed != AIACC_OK) return failed;
  const double share = 1 / count_;
  const float *const of_dy = floats_, *const of_products = floats_ + channels;
#pragma GCC ivdep
  for (std::size_t c = 0; c < channels; ++c) {
    const double factor = scales[c] * weight[c], part = -factor * share;
    factors[c] = factor;
    second[c] = part * scales[c] * of_products[c];
    first[c] = part * of_dy[c];
  }
  passes.input_gradient(batch_, x, dy, dx, means, factors, second, first);
  return AIACC_OK;
}

}  // namespace aiacc::bench
