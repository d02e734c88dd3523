#include "network.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

namespace digits {

struct Network::Activations {
  explicit Activations(std::size_t hidden_units) : hidden(hidden_units) {}
  std::vector<double> hidden;
  double probability[kClasses] = {};
};

double Random::normal() {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
  return radius * std::cos(2.0 * std::numbers::pi * uniform());
}

void Network::initialise(std::span<double> parameters, std::uint64_t seed) const {
  Random random(seed);
  std::fill(parameters.begin(), parameters.end(), 0.0);
  for (std::size_t i = 0; i < hidden_bias(); ++i) parameters[i] = random.normal() * std::sqrt(2.0 / kPixels);
  for (std::size_t i = output_weights(); i < output_bias(); ++i) {
    parameters[i] = random.normal() * std::sqrt(2.0 / static_cast<double>(hidden_));
  }
}

Network::Score Network::evaluate(std::span<const double> parameters, const Image& image, Activations& a) const {
  for (std::size_t h = 0; h < hidden_; ++h) {
    double sum = parameters[hidden_bias() + h];
    for (std::size_t p = 0; p < kPixels; ++p) sum += parameters[h * kPixels + p] * image.pixels[p];
    a.hidden[h] = std::max(sum, 0.0);
  }
  double logit[kClasses];
  for (std::size_t c = 0; c < kClasses; ++c) {
    logit[c] = parameters[output_bias() + c];
    for (std::size_t h = 0; h < hidden_; ++h) logit[c] += parameters[output_weights() + c * hidden_ + h] * a.hidden[h];
  }
  const std::size_t best = static_cast<std::size_t>(std::max_element(logit, logit + kClasses) - logit);
  double total = 0;
  for (std::size_t c = 0; c < kClasses; ++c) total += a.probability[c] = std::exp(logit[c] - logit[best]);
  for (double& probability : a.probability) probability /= total;
  return {std::log(total) + logit[best] - logit[image.digit], best == image.digit};
}

Network::Score Network::forward(std::span<const double> parameters, const Image& image) const {
  Activations a(hidden_);
  return evaluate(parameters, image, a);
}

Network::Score Network::backward(std::span<const double> parameters, const Image& image,
                                 std::span<double> gradient) const {
  Activations a(hidden_);
  const Score score = evaluate(parameters, image, a);
  std::vector<double> hidden_delta(hidden_, 0.0);
  for (std::size_t c = 0; c < kClasses; ++c) {
    const double delta = a.probability[c] - (c == image.digit ? 1.0 : 0.0);
    gradient[output_bias() + c] += delta;
    for (std::size_t h = 0; h < hidden_; ++h) {
      gradient[output_weights() + c * hidden_ + h] += delta * a.hidden[h];
      hidden_delta[h] += delta * parameters[output_weights() + c * hidden_ + h];
    }
  }
  for (std::size_t h = 0; h < hidden_; ++h) {
    if (a.hidden[h] == 0.0) continue;
    gradient[hidden_bias() + h] += hidden_delta[h];
    for (std::size_t p = 0; p < kPixels; ++p) gradient[h * kPixels + p] += hidden_delta[h] * image.pixels[p];
  }
  return score;
}

}  // namespace digits
