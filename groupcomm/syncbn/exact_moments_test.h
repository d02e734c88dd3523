// For tests of SyncBN: batches, and their exact moments by two passes in long double.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <random>
#include <vector>

#include "groupcomm/syncbn/moments.h"

namespace aiacc::syncbn {

struct Exact {
  std::vector<long double> mean, square;
};

inline Batch batch_of(std::size_t samples, std::size_t channels, std::size_t positions, DType type,
                      Layout layout = Layout::kChannelsFirst) {
  Batch batch;
  batch.samples = samples;
  batch.channels = channels;
  batch.positions = positions;
  batch.type = type;
  batch.layout = layout;
  return batch;
}

inline std::size_t place(const Batch& batch, std::size_t sample, std::size_t channel, std::size_t position) {
  if (batch.layout == Layout::kChannelsLast) return (sample * batch.positions + position) * batch.channels + channel;
  return (sample * batch.channels + channel) * batch.positions + position;
}

template <class T>
Exact exact(const Batch& batch, const std::vector<T>& x) {
  Exact found;
  for (std::size_t channel = 0; channel < batch.channels; ++channel) {
    long double sum = 0, square = 0;
    const auto each = [&](auto&& use) {
      for (std::size_t s = 0; s < batch.samples; ++s) {
        for (std::size_t p = 0; p < batch.positions; ++p) use(static_cast<long double>(x[place(batch, s, channel, p)]));
      }
    };
    each([&](long double value) { sum += value; });
    const long double mean = sum / static_cast<long double>(batch.count());
    each([&](long double value) { square += (value - mean) * (value - mean); });
    found.mean.push_back(mean);
    found.square.push_back(square);
  }
  return found;
}

template <class T>
std::vector<T> normal(std::size_t elements, double mean, double deviation, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> draw(mean, deviation);
  std::vector<T> x(elements);
  for (T& value : x) value = static_cast<T>(draw(random));
  return x;
}

inline void expect_near(const Moments& have, const Exact& want, double relative) {
  for (std::size_t channel = 0; channel < want.mean.size(); ++channel) {
    const auto square = static_cast<double>(want.square[channel]);
    const double deviation = std::sqrt(square / static_cast<double>(have.count));
    EXPECT_NEAR(have.mean[channel], static_cast<double>(want.mean[channel]), relative * deviation) << channel;
    EXPECT_NEAR(have.square[channel], square, relative * square) << channel;
  }
}

}  // namespace aiacc::syncbn
