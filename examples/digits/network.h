// A fully connected network with one hidden layer (ReLU) and a softmax at its end, trained by minibatch gradient descent
// with momentum. All parameters lie in one array, and so do all gradients: that is what one allreduce sums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "images.h"

namespace digits {

class Network {
 public:
  explicit Network(std::size_t hidden) : hidden_(hidden) {}

  std::size_t parameters() const { return hidden_ * (kPixels + 1) + kClasses * (hidden_ + 1); }

  // He initialisation (He et al., ICCV 2015) from `seed`; the same on every machine.
  void initialise(std::span<double> parameters, std::uint64_t seed) const;

  struct Score {
    double loss = 0;  // cross entropy, natural logarithm
    bool correct = false;
  };
  Score forward(std::span<const double> parameters, const Image& image) const;
  // Also adds the gradient of the loss to `gradient`.
  Score backward(std::span<const double> parameters, const Image& image, std::span<double> gradient) const;

 private:
  struct Activations;
  Score evaluate(std::span<const double> parameters, const Image& image, Activations& activations) const;
  // Where each part begins in the parameter array.
  std::size_t hidden_bias() const { return hidden_ * kPixels; }
  std::size_t output_weights() const { return hidden_bias() + hidden_; }
  std::size_t output_bias() const { return output_weights() + kClasses * hidden_; }

  std::size_t hidden_;
};

// A random number generator with the same sequence everywhere: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014). The standard
// library's distributions differ between implementations.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(uniform() * static_cast<double>(bound)); }
  double normal();  // mean 0, deviation 1 (Box–Muller)

  template <class T>
  void shuffle(std::span<T> items) {  // Fisher–Yates
    for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
  }

 private:
  std::uint64_t state_;
};

}  // namespace digits
