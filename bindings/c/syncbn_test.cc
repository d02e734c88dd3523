// SyncBN through the C ABI: every rank against batch normalisation of the joined batch in one process, in long double.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "include/aiacc/syncbn.h"
#include "tests/abi_world.h"

namespace aiacc {
namespace {

using test::expect;
using test::says;
using test::World;

constexpr double kEpsilon = 1e-5;

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

std::size_t bytes_of(aiacc_dtype_t dtype) { return aiacc_dtype_size(dtype); }
bool is_wide(aiacc_dtype_t dtype) { return dtype == AIACC_FLOAT64; }
aiacc_dtype_t statistics_of(aiacc_dtype_t dtype) { return is_wide(dtype) ? AIACC_FLOAT64 : AIACC_FLOAT32; }

double get(const std::byte* array, std::size_t at, aiacc_dtype_t dtype) {
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
void put(std::byte* array, std::size_t at, aiacc_dtype_t dtype, double value) {
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

Bytes array_of(const std::vector<double>& values, aiacc_dtype_t dtype) {
  Bytes array(values.size() * bytes_of(dtype) + 1);  // an empty one has an address too
  for (std::size_t i = 0; i < values.size(); ++i) put(array.data(), i, dtype, values[i]);
  return array;
}
std::vector<long double> values_of(const Bytes& array, aiacc_dtype_t dtype) {
  std::vector<long double> values(array.size() / bytes_of(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = get(array.data(), i, dtype);
  return values;
}

std::vector<double> drawn(std::size_t n, double mean, double deviation, unsigned seed) {
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
void expect_near(const char* what, const Bytes& have, aiacc_dtype_t dtype, const std::vector<long double>& want,
                 std::size_t first, std::size_t n, double tolerance, long double largest = 1e-9L) {
  for (const long double value : want) largest = std::max(largest, std::abs(value));
  long double worst = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const long double off = std::abs(get(have.data(), i, dtype) - want[first + i]);
    worst = std::isnan(off) ? INFINITY : std::max(worst, off);
  }
  EXPECT_LE(static_cast<double>(worst), tolerance * static_cast<double>(largest)) << what;
}

aiacc_syncbn_t syncbn_of(aiacc_group_t group, const char* name = "layers") {
  aiacc_syncbn_attr_t attr = {};
  attr.size = sizeof attr;
  attr.name = name;
  attr.timeout_ms = 20'000;
  aiacc_syncbn_t syncbn = AIACC_NULL;
  EXPECT_AIACC(aiacc_syncbn_create(group, &attr, &syncbn));
  return syncbn;
}

aiacc_syncbn_batch_t batch_of(const Case& of, std::size_t samples) {
  aiacc_syncbn_batch_t batch = {};
  batch.size = sizeof batch;
  batch.samples = samples;
  batch.channels = of.channels;
  batch.positions = of.positions;
  batch.dtype = of.dtype;
  batch.layout = of.layout;
  return batch;
}

aiacc_syncbn_layer_t layer_of(const Case& of) {
  aiacc_syncbn_layer_t layer = {};
  layer.size = sizeof layer;
  layer.epsilon = kEpsilon;
  layer.momentum = of.momentum;
  layer.convention = of.convention;
  return layer;
}

// One rank's part: forward and backward, compared with the reference. Returns what is equal on all ranks.
std::vector<double> compare(const Case& of, const Inputs& in, const Reference& want, int rank, aiacc_syncbn_t syncbn) {
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
    EXPECT_NEAR(saved[of.channels + c] / static_cast<double>(want.scale[c]), 1, 1e-9);
  }
  EXPECT_EQ(saved[2 * of.channels], static_cast<double>(of.count()));
  return saved;
}

void check(const Case& of) {
  SCOPED_TRACE(testing::Message() << of.samples.size() << " ranks, " << of.channels << " channels, " << of.positions
                                  << " positions, dtype " << of.dtype << ", layout " << of.layout);
  const World world(of.samples.size());
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

TEST(Syncbn, EqualsOneProcessForAllTypesAndLayouts) {
  for (const aiacc_dtype_t dtype : {AIACC_FLOAT32, AIACC_FLOAT64, AIACC_FLOAT16, AIACC_BFLOAT16}) {
    for (const int32_t layout : {AIACC_CHANNELS_FIRST, AIACC_CHANNELS_LAST}) {
      Case of;
      of.samples = {4, 3, 5};
      of.channels = 11;
      of.positions = 21;
      of.dtype = dtype;
      of.layout = layout;
      if (dtype == AIACC_FLOAT64) of.tolerance = 1e-13;
      check(of);
    }
  }
}

TEST(Syncbn, EqualsOneProcessForUnevenAndEmptyBatches) {
  for (const auto& samples :
       std::vector<std::vector<std::size_t>>{{6}, {3, 3}, {1, 7}, {0, 5}, {5, 0, 0, 2}, {1, 1}, {2, 1, 4, 3, 1}}) {
    Case of;
    of.samples = samples;
    check(of);
    of.positions = 1;
    of.channels = 70;
    of.affine = false;
    check(of);
  }
}

TEST(Syncbn, KeepsRunningStatisticsAsMxnetDoes) {
  Case of;
  of.samples = {2, 3};
  of.convention = AIACC_SYNCBN_MXNET;
  of.momentum = 0.9;
  check(of);
}

TEST(Syncbn, HoldsWhereTheMeanIsTenThousandDeviations) {
  for (const aiacc_dtype_t dtype : {AIACC_FLOAT32, AIACC_FLOAT64}) {
    for (const int32_t layout : {AIACC_CHANNELS_FIRST, AIACC_CHANNELS_LAST}) {
      Case of;
      of.samples = {20, 1, 30};
      of.channels = 2;
      of.positions = 50;
      of.dtype = dtype;
      of.layout = layout;
      of.mean = 1e4;
      of.deviation = 1;
      check(of);
    }
  }
}

TEST(Syncbn, NormalisesAConstantChannelToItsBias) {
  Case of;
  of.samples = {2, 3};
  of.mean = 0.1;
  of.deviation = 0;
  check(of);
}

TEST(Syncbn, CountsBeyondTwoToThe24) {
  if (test::kSanitized) GTEST_SKIP() << "too much work under a sanitizer";
  // 2^24 + 1 elements of one channel in fp16, all 1 but for the last, which is 3. In fp32 the count would be 2^24.
  constexpr std::size_t kMany = (std::size_t{1} << 24) + 1;
  const World world(2);
  world.run([&](int rank, aiacc_group_t group) {
    const aiacc_syncbn_t syncbn = syncbn_of(group);
    Case of;
    of.channels = 1;
    of.dtype = AIACC_FLOAT16;
    of.positions = rank == 0 ? kMany - 1 : 1;
    std::vector<std::uint16_t> x(of.positions, 0x3c00);
    if (rank == 1) x[0] = 0x4200;
    const aiacc_syncbn_batch_t batch = batch_of(of, 1);
    const aiacc_syncbn_layer_t layer = layer_of(of);
    double saved[3];
    EXPECT_AIACC(aiacc_syncbn_forward(syncbn, &batch, &layer, x.data(), x.data(), saved));
    EXPECT_EQ(saved[2], static_cast<double>(kMany));
    EXPECT_NEAR(saved[0] - 1, 2.0 / static_cast<double>(kMany), 1e-15);
  });
}

// The loss is the sum of y * dy over the joined batch, with a batch of its own for each changed element.
TEST(Syncbn, GradientsAreThoseOfFiniteDifferences) {
  Case of;
  of.samples = {2, 0, 1};
  of.channels = 2;
  of.positions = 3;
  of.dtype = AIACC_FLOAT64;
  const Inputs in(of);
  const World world(3);
  constexpr double kStep = 1e-6;
  std::vector<double> parts(3);
  world.run([&](int rank, aiacc_group_t group) {
    const aiacc_syncbn_t syncbn = syncbn_of(group);
    const std::size_t n = of.of(rank), first = of.first(rank);
    const aiacc_syncbn_batch_t batch = batch_of(of, of.samples[static_cast<std::size_t>(rank)]);
    aiacc_syncbn_layer_t layer = layer_of(of);
    std::vector<double> x(of.elements()), dy(of.elements()), weight(2), bias(2), y(n + 1), dx(n + 1), saved(5);
    std::memcpy(x.data(), in.x.data(), x.size() * 8);
    std::memcpy(dy.data(), in.dy.data(), dy.size() * 8);
    std::memcpy(weight.data(), in.weight.data(), 16);
    std::memcpy(bias.data(), in.bias.data(), 16);
    layer.weight = weight.data();
    layer.bias = bias.data();
    const auto loss = [&] {
      EXPECT_AIACC(aiacc_syncbn_forward(syncbn, &batch, &layer, x.data() + first, y.data(), saved.data()));
      double own = 0, all = 0;
      for (std::size_t i = 0; i < n; ++i) own += y[i] * dy[first + i];
      EXPECT_AIACC(aiacc_allreduce(&own, &all, 1, AIACC_FLOAT64, AIACC_SUM, group, nullptr, nullptr));
      return all;
    };
    const auto slope = [&](double& number) {
      const double was = number;
      number = was + kStep;
      const double above = loss();
      number = was - kStep;
      const double below = loss();
      number = was;
      return (above - below) / (2 * kStep);
    };
    double dweight[2], dbias[2];
    loss();
    EXPECT_AIACC(aiacc_syncbn_backward(syncbn, &batch, weight.data(), saved.data(), x.data() + first, dy.data() + first,
                                       dx.data(), dweight, dbias));
    // Every rank changes the same element of its copy, of which one rank owns a part.
    for (std::size_t i = 0; i < of.elements(); ++i) {
      const double found = slope(x[i]);
      if (i < first || i >= first + n) continue;
      EXPECT_NEAR(dx[i - first], found, 1e-7) << i;
    }
    for (std::size_t c = 0; c < 2; ++c) {
      double sums[2] = {dweight[c], dbias[c]};
      EXPECT_AIACC(aiacc_allreduce(sums, sums, 2, AIACC_FLOAT64, AIACC_SUM, group, nullptr, nullptr));
      EXPECT_NEAR(sums[0], slope(weight[c]), 1e-7);
      EXPECT_NEAR(sums[1], slope(bias[c]), 1e-7);
    }
  });
}

TEST(Syncbn, ServesLayersOfAllWidthsWithOneHandle) {
  const World world(4);
  std::vector<Case> cases;
  for (const std::size_t channels : {1, 64, 3, 2048, 256}) {
    Case of;
    of.samples = {1, 2, 1, 3};
    of.channels = channels;
    cases.push_back(of);
  }
  std::vector<Inputs> inputs(cases.begin(), cases.end());
  std::vector<Reference> wants;
  for (std::size_t i = 0; i < cases.size(); ++i) wants.emplace_back(cases[i], inputs[i]);
  world.run([&](int rank, aiacc_group_t group) {
    const aiacc_syncbn_t syncbn = syncbn_of(group);
    for (int step = 0; step < 3; ++step) {
      for (std::size_t i = 0; i < cases.size(); ++i) compare(cases[i], inputs[i], wants[i], rank, syncbn);
    }
    // Freed with the context.
  });
}

TEST(Syncbn, RefusesWhatHasNoStatisticsOnEveryRank) {
  const World world(2);
  world.run([&](int rank, aiacc_group_t group) {
    const aiacc_syncbn_t syncbn = syncbn_of(group);
    Case of;
    of.channels = 1;
    of.positions = 1;
    aiacc_syncbn_layer_t layer = layer_of(of);
    float x = 3, y = 7, running = 5;
    double saved[3];
    layer.running_mean = &running;
    aiacc_syncbn_batch_t batch = batch_of(of, 0);
    expect(aiacc_syncbn_forward(syncbn, &batch, &layer, nullptr, nullptr, saved), AIACC_ERR_INVALID_ARGUMENT,
           "SyncBN 'layers': the batches of all ranks are empty");
    batch.samples = rank == 0 ? 1 : 0;
    expect(aiacc_syncbn_forward(syncbn, &batch, &layer, &x, &y, saved), AIACC_ERR_INVALID_ARGUMENT,
           "1 value of a channel");
    EXPECT_TRUE(y == 7 && running == 5);
    layer.convention = AIACC_SYNCBN_MXNET;  // whose variance of one value is 0
    EXPECT_AIACC(aiacc_syncbn_forward(syncbn, &batch, &layer, &x, &y, saved));
    EXPECT_EQ(y, rank == 0 ? 0.0F : 7.0F);
  });
}

TEST(Syncbn, ToldOfAnotherNumberOfChannels) {
  // With 41 and 42 channels messages have equal lengths.
  for (const std::size_t other : {std::size_t{64}, std::size_t{41}}) {
    const World world(3);
    world.run([&](int rank, aiacc_group_t group) {
      const aiacc_syncbn_t syncbn = syncbn_of(group);
      Case of;
      of.channels = rank == 1 ? other : std::size_t{42};
      of.positions = 1;
      std::vector<float> x(of.channels * 2, 1.0F);
      std::vector<double> saved(2 * of.channels + 1);
      const aiacc_syncbn_batch_t batch = batch_of(of, 2);
      const aiacc_syncbn_layer_t layer = layer_of(of);
      expect(aiacc_syncbn_forward(syncbn, &batch, &layer, x.data(), x.data(), saved.data()), AIACC_ERR_MISMATCH,
             ("'" + std::to_string(other) + " channels'").c_str());
      EXPECT_TRUE(says("'42 channels'")) << aiacc_last_error();
      EXPECT_TRUE(says("SyncBN 'layers', forward over ")) << aiacc_last_error();
      expect(aiacc_syncbn_forward(syncbn, &batch, &layer, x.data(), x.data(), saved.data()), AIACC_ERR_ABORTED,
             "channels'");
      EXPECT_AIACC(aiacc_barrier(group, nullptr, nullptr));  // no other group
    });
  }
}

TEST(Syncbn, RefusesBadArguments) {
  const World world(1);
  world.run([&](int, aiacc_group_t group) {
    const aiacc_syncbn_t syncbn = syncbn_of(group);
    Case of;
    of.channels = 2;
    of.positions = 2;
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, y[8];
    double saved[5];
    const aiacc_syncbn_batch_t good_batch = batch_of(of, 2);
    const aiacc_syncbn_layer_t good_layer = layer_of(of);
    aiacc_syncbn_batch_t batch = good_batch;
    aiacc_syncbn_layer_t layer = good_layer;
    const auto refused = [&](const char* word) {
      expect(aiacc_syncbn_forward(syncbn, &batch, &layer, x, y, saved), AIACC_ERR_INVALID_ARGUMENT, word);
      batch = good_batch;
      layer = good_layer;
    };
    batch.channels = 0;
    refused("channels in aiacc_syncbn_batch_t is 0");
    batch.dtype = AIACC_INT32;
    refused("dtype in aiacc_syncbn_batch_t is int32");
    batch.layout = 2;
    refused("layout in aiacc_syncbn_batch_t is 2");
    batch.samples = std::numeric_limits<std::size_t>::max() / 2;
    refused("");
    batch.size = 8;
    refused("size in aiacc_syncbn_batch_t is 8");
    layer.size = 0;
    refused("size in aiacc_syncbn_layer_t is 0");
    layer.epsilon = -1;
    refused("epsilon in aiacc_syncbn_layer_t is -1");
    layer.epsilon = std::nan("");
    refused("epsilon in aiacc_syncbn_layer_t is nan");
    layer.momentum = INFINITY;
    refused("momentum in aiacc_syncbn_layer_t is inf");
    layer.convention = 5;
    refused("convention in aiacc_syncbn_layer_t is 5");
    expect(aiacc_syncbn_forward(syncbn, nullptr, &layer, x, y, saved), AIACC_ERR_INVALID_ARGUMENT, "batch is NULL");
    expect(aiacc_syncbn_forward(syncbn, &batch, nullptr, x, y, saved), AIACC_ERR_INVALID_ARGUMENT, "layer is NULL");
    expect(aiacc_syncbn_forward(syncbn, &batch, &layer, nullptr, y, saved), AIACC_ERR_INVALID_ARGUMENT, "x is NULL");
    expect(aiacc_syncbn_forward(syncbn, &batch, &layer, x, nullptr, saved), AIACC_ERR_INVALID_ARGUMENT, "y is NULL");
    expect(aiacc_syncbn_forward(syncbn, &batch, &layer, x, y, nullptr), AIACC_ERR_INVALID_ARGUMENT, "saved is NULL");
    expect(aiacc_syncbn_forward(syncbn, &batch, &layer, x, x + 1, saved), AIACC_ERR_INVALID_ARGUMENT, "overlap");
    expect(aiacc_syncbn_forward(group, &batch, &layer, x, y, saved), AIACC_ERR_INVALID_HANDLE,
           "not a handle of aiacc_syncbn_create");
    EXPECT_AIACC(aiacc_syncbn_forward(syncbn, &batch, &layer, x, y, saved));
    saved[4] = 3;
    expect(aiacc_syncbn_backward(syncbn, &batch, nullptr, saved, x, y, y, nullptr, nullptr), AIACC_ERR_INVALID_ARGUMENT,
           "saved has 3 elements of a channel, and this batch has 4");
    saved[4] = 4;
    EXPECT_AIACC(aiacc_syncbn_backward(syncbn, &batch, nullptr, saved, x, y, y, nullptr, nullptr));
    EXPECT_AIACC(aiacc_syncbn_backward(syncbn, &batch, nullptr, saved, x, y, nullptr, nullptr, nullptr));
    EXPECT_AIACC(aiacc_syncbn_free(syncbn));
    expect(aiacc_syncbn_free(syncbn), AIACC_ERR_INVALID_HANDLE, "does not exist any more");
    expect(aiacc_syncbn_create(group, nullptr, nullptr), AIACC_ERR_INVALID_ARGUMENT, "syncbn is NULL");
  });
}

}  // namespace
}  // namespace aiacc
