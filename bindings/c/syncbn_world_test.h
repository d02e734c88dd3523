// For tests of SyncBN: a case, what one process has for it in long double, and the comparison of a rank with that.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "include/aiacc/syncbn.h"
#include "tests/abi_world.h"

namespace aiacc::syncbn_test {

inline constexpr double kEpsilon = 1e-5;

// What ranks give and get. Elements are drawn in the precision of the type, so that the reference has the same.
struct Case {
  std::vector<std::size_t> samples;  // of each rank
  std::size_t channels = 3;
  std::size_t positions = 5;
  aiacc_dtype_t dtype = AIACC_FLOAT32;
  int32_t layout = AIACC_CHANNELS_FIRST;
  double mean = 0.5;
  double deviation = 2;
  int32_t convention = AIACC_SYNCBN_TORCH;
  double momentum = 0.1;
  bool affine = true;
  double tolerance = 1e-6;

  std::size_t all_samples() const {
    std::size_t sum = 0;
    for (const std::size_t n : samples) sum += n;
    return sum;
  }
  std::size_t count() const { return all_samples() * positions; }
  std::size_t elements() const { return count() * channels; }
  std::size_t first(int rank) const {  // element of a rank
    std::size_t before = 0;
    for (int r = 0; r < rank; ++r) before += samples[static_cast<std::size_t>(r)];
    return before * channels * positions;
  }
  std::size_t of(int rank) const { return samples[static_cast<std::size_t>(rank)] * channels * positions; }
  // Samples follow each other in both layouts.
  std::size_t channel(std::size_t element) const {
    return layout == AIACC_CHANNELS_LAST ? element % channels : element / positions % channels;
  }
};

inline std::size_t bytes_of(aiacc_dtype_t dtype) { return aiacc_dtype_size(dtype); }
inline bool is_wide(aiacc_dtype_t dtype) { return dtype == AIACC_FLOAT64; }
inline aiacc_dtype_t statistics_of(aiacc_dtype_t dtype) { return is_wide(dtype) ? AIACC_FLOAT64 : AIACC_FLOAT32; }

inline double get(const std::byte* array, std::size_t at, aiacc_dtype_t dtype) {
  if (dtype == AIACC_FLOAT64) {
    double value;
    std::memcpy(&value, array + at * 8, 8);
    return value;
  }
  if (dtype == AIACC_FLOAT32) {
    float value;
    std::memcpy(&value, array + at * 4, 4);
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, array + at * 2, 2);
  if (dtype == AIACC_BFLOAT16) {
    const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &wide, 4);
    return value;
  }
  const int exponent = bits >> 10 & 31;
  const double fraction = bits & 1023;
  const double magnitude = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return (bits >> 15) != 0 ? -magnitude : magnitude;
}

// 16-bit elements are cut off, not rounded: any element will do.
inline void put(std::byte* array, std::size_t at, aiacc_dtype_t dtype, double value) {
  const auto single = static_cast<float>(value);
  std::uint32_t bits32;
  std::memcpy(&bits32, &single, 4);
  if (dtype == AIACC_FLOAT64) {
    std::memcpy(array + at * 8, &value, 8);
  } else if (dtype == AIACC_FLOAT32) {
    std::memcpy(array + at * 4, &single, 4);
  } else if (dtype == AIACC_BFLOAT16) {
    const auto bits = static_cast<std::uint16_t>(bits32 >> 16);
    std::memcpy(array + at * 2, &bits, 2);
  } else {
    const int exponent = static_cast<int>(bits32 >> 23 & 255) - 112;
    std::uint32_t magnitude = 0;
    if (exponent > 0) magnitude = static_cast<std::uint32_t>(exponent) << 10 | (bits32 >> 13 & 1023);
    const auto bits = static_cast<std::uint16_t>((bits32 >> 16 & 0x8000) | magnitude);
    std::memcpy(array + at * 2, &bits, 2);
  }
}

using Bytes = std::vector<std::byte>;

inline Bytes array_of(const std::vector<double>& values, aiacc_dtype_t dtype) {
  Bytes array(values.size() * bytes_of(dtype) + 1);  // an empty one has an address too
  for (std::size_t i = 0; i < values.size(); ++i) put(array.data(), i, dtype, values[i]);
  return array;
}
inline std::vector<long double> values_of(const Bytes& array, aiacc_dtype_t dtype) {
  std::vector<long double> values(array.size() / bytes_of(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = get(array.data(), i, dtype);
  return values;
}

inline std::vector<double> drawn(std::size_t n, double mean, double deviation, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> draw(mean, deviation);
  std::vector<double> values(n);
  for (double& value : values) value = draw(random);
  return values;
}

struct Inputs {
  explicit Inputs(const Case& of)
      : x(array_of(drawn(of.elements(), of.mean, of.deviation, 1), of.dtype)),
        dy(array_of(drawn(of.elements(), 0.1, 1, 2), of.dtype)),
        weight(array_of(drawn(of.channels, 1, 0.3, 3), statistics_of(of.dtype))),
        bias(array_of(drawn(of.channels, 0, 0.3, 4), statistics_of(of.dtype))),
        running_mean(array_of(drawn(of.channels, of.mean, 1, 5), statistics_of(of.dtype))),
        running_variance(array_of(std::vector<double>(of.channels, 2.0), statistics_of(of.dtype))) {}

  Bytes x, dy, weight, bias, running_mean, running_variance;
};

// The joined batch in one process.
struct Reference {
  std::vector<long double> y, dx, running_mean, running_variance, mean, scale;
  std::vector<std::vector<long double>> dweight, dbias;  // of each rank
  long double largest_term = 0;                          // of those whose sum dx is

  Reference(const Case& of, const Inputs& in) {
    const auto x = values_of(in.x, of.dtype), dy = values_of(in.dy, of.dtype);
    const auto weight = values_of(in.weight, statistics_of(of.dtype)),
               bias = values_of(in.bias, statistics_of(of.dtype));
    const auto n = static_cast<long double>(of.count());
    std::vector<long double> variance(of.channels), sum(of.channels), product(of.channels);
    mean.resize(of.channels);
    scale.resize(of.channels);
    const auto each = [&](auto&& use) {
      for (std::size_t i = 0; i < of.elements(); ++i) use(i, of.channel(i));
    };
    each([&](std::size_t i, std::size_t c) { mean[c] += x[i] / n; });
    each([&](std::size_t i, std::size_t c) { variance[c] += (x[i] - mean[c]) * (x[i] - mean[c]) / n; });
    for (std::size_t c = 0; c < of.channels; ++c) scale[c] = 1 / std::sqrt(variance[c] + kEpsilon);
    each([&](std::size_t i, std::size_t c) {
      sum[c] += dy[i];
      product[c] += dy[i] * (x[i] - mean[c]) * scale[c];
    });
    each([&](std::size_t i, std::size_t c) {
      const long double normal = (x[i] - mean[c]) * scale[c];
      const long double w = of.affine ? weight[c] : 1, b = of.affine ? bias[c] : 0;
      y.push_back(normal * w + b);
      largest_term = std::max(largest_term, std::abs(w * scale[c] * dy[i]));
      dx.push_back(w * scale[c] * (dy[i] - sum[c] / n - normal * product[c] / n));
    });
    for (std::size_t rank = 0; rank < of.samples.size(); ++rank) {
      dweight.emplace_back(of.channels);
      dbias.emplace_back(of.channels);
      const std::size_t first = of.first(static_cast<int>(rank));
      for (std::size_t i = first; i < first + of.of(static_cast<int>(rank)); ++i) {
        const std::size_t c = of.channel(i);
        dweight.back()[c] += dy[i] * (x[i] - mean[c]) * scale[c];
        dbias.back()[c] += dy[i];
      }
    }
    running_mean = values_of(in.running_mean, statistics_of(of.dtype));
    running_variance = values_of(in.running_variance, statistics_of(of.dtype));
    const bool torch = of.convention == AIACC_SYNCBN_TORCH;
    const long double share = torch ? of.momentum : 1 - of.momentum;
    for (std::size_t c = 0; c < of.channels; ++c) {
      const long double now = torch ? variance[c] * n / (n - 1) : variance[c];
      running_mean[c] = running_mean[c] * (1 - share) + mean[c] * share;
      running_variance[c] = running_variance[c] * (1 - share) + now * share;
    }
  }
};

// Relative to the largest of `want`, or to `largest`: what is near 0 is a difference of larger numbers.
inline void expect_near(const char* what, const Bytes& have, aiacc_dtype_t dtype, const std::vector<long double>& want,
                        std::size_t first, std::size_t n, double tolerance, long double largest = 1e-9L) {
  for (const long double value : want) largest = std::max(largest, std::abs(value));
  long double worst = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const long double off = std::abs(get(have.data(), i, dtype) - want[first + i]);
    worst = std::isnan(off) ? INFINITY : std::max(worst, off);
  }
  EXPECT_LE(static_cast<double>(worst), tolerance * static_cast<double>(largest)) << what;
}

inline aiacc_syncbn_t syncbn_of(aiacc_group_t group, const char* name = "layers") {
  aiacc_syncbn_attr_t attr = {};
  attr.size = sizeof attr;
  attr.name = name;
  attr.timeout_ms = 20'000;
  aiacc_syncbn_t syncbn = AIACC_NULL;
  EXPECT_AIACC(aiacc_syncbn_create(group, &attr, &syncbn));
  return syncbn;
}

inline aiacc_syncbn_batch_t batch_of(const Case& of, std::size_t samples) {
  aiacc_syncbn_batch_t batch = {};
  batch.size = sizeof batch;
  batch.samples = samples;
  batch.channels = of.channels;
  batch.positions = of.positions;
  batch.dtype = of.dtype;
  batch.layout = of.layout;
  return batch;
}

inline aiacc_syncbn_layer_t layer_of(const Case& of) {
  aiacc_syncbn_layer_t layer = {};
  layer.size = sizeof layer;
  layer.epsilon = kEpsilon;
  layer.momentum = of.momentum;
  layer.convention = of.convention;
  return layer;
}

// One rank's part: forward and backward, compared with the reference. Returns what is equal on all ranks.
inline std::vector<double> compare(const Case& of, const Inputs& in, const Reference& want, int rank,
                                   aiacc_syncbn_t syncbn) {
  const std::size_t n = of.of(rank), size = bytes_of(of.dtype), first = of.first(rank);
  const aiacc_dtype_t type = statistics_of(of.dtype);
  Bytes y(n * size + 1), dx(y.size()), dweight(of.channels * bytes_of(type)), dbias(dweight.size());
  Bytes running_mean = in.running_mean, running_variance = in.running_variance;
  std::vector<double> saved(2 * of.channels + 1);
  aiacc_syncbn_layer_t layer = layer_of(of);
  if (of.affine) {
    layer.weight = in.weight.data();
    layer.bias = in.bias.data();
  }
  layer.running_mean = running_mean.data();
  layer.running_variance = running_variance.data();
  const aiacc_syncbn_batch_t batch = batch_of(of, of.samples[static_cast<std::size_t>(rank)]);
  const std::byte* const x = in.x.data() + first * size;
  EXPECT_AIACC(aiacc_syncbn_forward(syncbn, &batch, &layer, x, y.data(), saved.data()));
  EXPECT_AIACC(aiacc_syncbn_backward(syncbn, &batch, layer.weight, saved.data(), x, in.dy.data() + first * size,
                                     dx.data(), dweight.data(), dbias.data()));
  // Results of 16 bits are rounded once.
  const double rounding = of.dtype == AIACC_FLOAT16 ? 0x1p-11 : of.dtype == AIACC_BFLOAT16 ? 0x1p-8 : 0;
  expect_near("y", y, of.dtype, want.y, first, n, of.tolerance + rounding);
  expect_near("dx", dx, of.dtype, want.dx, first, n, of.tolerance + rounding, want.largest_term);
  const auto at = static_cast<std::size_t>(rank);
  expect_near("dweight", dweight, type, want.dweight[at], 0, of.channels, of.tolerance);
  expect_near("dbias", dbias, type, want.dbias[at], 0, of.channels, of.tolerance);
  expect_near("running mean", running_mean, type, want.running_mean, 0, of.channels, of.tolerance);
  expect_near("running variance", running_variance, type, want.running_variance, 0, of.channels, of.tolerance);
  for (std::size_t c = 0; c < of.channels; ++c) {
    EXPECT_NEAR(saved[of.channels + c] / static_cast<double>(want.scale[c]), 1, is_wide(of.dtype) ? 1e-9 : 1e-7);
  }
  EXPECT_EQ(saved[2 * of.channels], static_cast<double>(of.count()));
  return saved;
}

inline void check(const Case& of) {
  SCOPED_TRACE(testing::Message() << of.samples.size() << " ranks, " << of.channels << " channels, " << of.positions
                                  << " positions, dtype " << of.dtype << ", layout " << of.layout);
  const test::World world(of.samples.size());
  const Inputs in(of);
  const Reference want(of, in);
  std::vector<std::vector<double>> saved(of.samples.size());
  world.run([&](int rank, aiacc_group_t group) {
    const aiacc_syncbn_t syncbn = syncbn_of(group);
    saved[static_cast<std::size_t>(rank)] = compare(of, in, want, rank, syncbn);
    EXPECT_AIACC(aiacc_syncbn_free(syncbn));
  });
  for (const auto& of_rank : saved) EXPECT_EQ(of_rank, saved[0]);  // bit by bit
}

}  // namespace aiacc::syncbn_test
