// A SyncBN layer, forward and backward, beside the same layer with a bare allreduce in each direction (parts.h), in turns, so that what else
// runs here costs both the same, and each finds the caches as the other left them. Run by aiaccrun with the arguments TYPE CALLS
// CHANNELS..., where TYPE, that of the elements, is fp32, fp16 or bf16; rank 0 prints medians in microseconds, and of the parts also those of
// every second call and of the calls between these, to see by how much equal things differ, and then the forward and backward pass of each:
// `layer CHANNELS LAYOUT LAYER PARTS EVEN_PARTS ODD_PARTS FORWARD FORWARD_PARTS BACKWARD BACKWARD_PARTS`. A time is that of the slowest
// rank. Both have to have the same results.
#include <aiacc/syncbn.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "bench/syncbn/parts.h"

namespace {

void check(aiacc_status_t status) {
  if (status == AIACC_OK) return;
  std::fprintf(stderr, "%s\n", aiacc_last_error());
  std::exit(1);
}

// Microseconds of a rank's calls.
struct Times {
  std::vector<double> forward, backward, both;

  // Of passes without a wait in between: the backward pass begins on each rank when its forward pass has ended.
  template <class Forward, class Backward>
  void add(Forward&& run_forward, Backward&& run_backward) {
    using Clock = std::chrono::steady_clock;
    check(aiacc_barrier(AIACC_WORLD, nullptr, nullptr));
    const auto began = Clock::now();
    run_forward();
    const auto turned = Clock::now();
    run_backward();
    const auto ended = Clock::now();
    const auto add_to = [](std::vector<double>& times, Clock::duration time) {
      times.push_back(std::chrono::duration<double, std::micro>(time).count());
    };
    add_to(forward, turned - began);
    add_to(backward, ended - turned);
    add_to(both, ended - began);
  }
};

// `times` of a rank's calls.
double median_of_slowest(std::vector<double>& times) {
  check(aiacc_allreduce(times.data(), times.data(), times.size(), AIACC_FLOAT64, AIACC_MAX, AIACC_WORLD, nullptr,
                        nullptr));
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

// Elements of a type, of numbers that each type has exactly.
class Elements {
 public:
  Elements(std::size_t count, aiacc_dtype_t type) : type_(type), bytes_(count * (type == AIACC_FLOAT32 ? 4 : 2)) {}
  void set(std::size_t at, float number) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &number, sizeof bits);
    if (type_ == AIACC_FLOAT32) return put(at, bits);
    if (type_ == AIACC_BFLOAT16) return put(at, static_cast<std::uint16_t>(bits >> 16));
    const bool zero = (bits & 0x7fffffff) == 0;
    put(at, static_cast<std::uint16_t>(zero ? 0 : (bits >> 13 & 0x3fff) | (bits >> 16 & 0xc000)));
  }
  void* data() { return bytes_.data(); }

 private:
  template <class T>
  void put(std::size_t at, T bits) {
    std::memcpy(bytes_.data() + at * sizeof bits, &bits, sizeof bits);
  }
  aiacc_dtype_t type_;
  std::vector<unsigned char> bytes_;
};

// One memory for the layer and for its parts, so that both have the same luck with caches.
struct Layer {
  Layer(std::size_t channels, std::size_t samples, std::size_t positions, int32_t layout, aiacc_dtype_t type)
      : x(samples * channels * positions, type),
        y(samples * channels * positions, type),
        dy(samples * channels * positions, type),
        dx(samples * channels * positions, type),
        weight(channels, 1),
        bias(channels),
        running_mean(channels),
        running_variance(channels),
        dweight(channels),
        dbias(channels),
        saved(2 * channels + 1) {
    for (std::size_t i = 0; i < samples * channels * positions; ++i) {
      x.set(i, static_cast<float>(i * 7919 % 127));
      dy.set(i, static_cast<float>(i * 31 % 17) / 16);
    }
    batch.size = sizeof batch;
    batch.samples = samples;
    batch.channels = channels;
    batch.positions = positions;
    batch.dtype = type;
    batch.layout = layout;
    layer.size = sizeof layer;
    layer.weight = weight.data();
    layer.bias = bias.data();
    layer.running_mean = running_mean.data();
    layer.running_variance = running_variance.data();
    layer.epsilon = 1e-5;
    layer.momentum = 0.1;
  }
  void forward(aiacc_syncbn_t syncbn) {
    check(aiacc_syncbn_forward(syncbn, &batch, &layer, x.data(), y.data(), saved.data()));
  }
  void backward(aiacc_syncbn_t syncbn) {
    check(aiacc_syncbn_backward(syncbn, &batch, weight.data(), saved.data(), x.data(), dy.data(), dx.data(),
                                dweight.data(), dbias.data()));
  }
  void forward(aiacc::bench::Parts& parts) {
    check(parts.forward(
        {weight.data(), bias.data(), running_mean.data(), running_variance.data(), layer.epsilon, layer.momentum},
        x.data(), y.data()));
  }
  void backward(aiacc::bench::Parts& parts) {
    check(parts.backward(weight.data(), x.data(), dy.data(), dx.data(), dweight.data(), dbias.data()));
  }
  // What a pass forward and one backward have made: gradients of parameters, and with fp32 elements y and dx.
  std::vector<std::vector<float>> results() {
    std::vector<std::vector<float>> all{dweight, dbias};
    if (batch.dtype != AIACC_FLOAT32) return all;
    const std::size_t elements = batch.samples * batch.channels * batch.positions;
    for (Elements* const one : {&y, &dx}) {
      const auto* const floats = static_cast<const float*>(one->data());
      all.emplace_back(floats, floats + elements);
    }
    return all;
  }
  Elements x, y, dy, dx;
  std::vector<float> weight, bias, running_mean, running_variance, dweight, dbias;
  std::vector<double> saved;
  aiacc_syncbn_batch_t batch = {};
  aiacc_syncbn_layer_t layer = {};
};

// Of results of the same batch: within 1e-4 of the largest number of an array.
void check_equal(const std::vector<std::vector<float>>& layer, const std::vector<std::vector<float>>& parts) {
  constexpr const char* kNames[] = {"dweight", "dbias", "y", "dx"};
  for (std::size_t array = 0; array < layer.size(); ++array) {
    float largest = 0;
    for (const float number : parts[array]) largest = std::max(largest, std::abs(number));
    for (std::size_t i = 0; i < layer[array].size(); ++i) {
      if (std::abs(layer[array][i] - parts[array][i]) <= 1e-4F * largest) continue;
      std::fprintf(stderr, "%s of the layer and of its parts differ: at %zu %g and %g\n", kNames[array], i,
                   static_cast<double>(layer[array][i]), static_cast<double>(parts[array][i]));
      std::exit(1);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "fp32";
  const aiacc_dtype_t type = name == "fp16" ? AIACC_FLOAT16 : name == "bf16" ? AIACC_BFLOAT16 : AIACC_FLOAT32;
  const int calls = argc > 2 ? std::atoi(argv[2]) : 300;
  check(aiacc_init(nullptr));
  int rank = 0;
  check(aiacc_rank(AIACC_WORLD, &rank));
  aiacc_syncbn_t syncbn = AIACC_NULL;
  check(aiacc_syncbn_create(AIACC_WORLD, nullptr, &syncbn));
  for (const int32_t layout : {AIACC_CHANNELS_FIRST, AIACC_CHANNELS_LAST}) {
    for (int i = 3; i < argc; ++i) {
      const std::size_t channels = std::strtoul(argv[i], nullptr, 10), samples = 4, positions = 49;
      Layer layer(channels, samples, positions, layout, type);
      aiacc::bench::Parts parts({samples, channels, positions, static_cast<aiacc::DType>(type),
                                 layout == AIACC_CHANNELS_LAST ? aiacc::syncbn::Layout::kChannelsLast
                                                               : aiacc::syncbn::Layout::kChannelsFirst});
      Times whole, parted;
      for (int call = -calls / 10; call < calls; ++call) {
        if (call == 0) whole = parted = {};
        whole.add([&] { layer.forward(syncbn); }, [&] { layer.backward(syncbn); });
        parted.add([&] { layer.forward(parts); }, [&] { layer.backward(parts); });
      }
      std::vector<double> halves[2];
      for (std::size_t call = 0; call < parted.both.size(); ++call) halves[call % 2].push_back(parted.both[call]);
      layer.forward(syncbn);
      layer.backward(syncbn);
      const auto results = layer.results();
      layer.forward(parts);
      layer.backward(parts);
      check_equal(results, layer.results());
      std::string row = "layer " + std::to_string(channels) + (layout == AIACC_CHANNELS_FIRST ? " NCHW" : " NHWC");
      for (auto* times : {&whole.both, &parted.both, &halves[0], &halves[1], &whole.forward, &parted.forward,
                          &whole.backward, &parted.backward}) {
        row += ' ' + std::to_string(median_of_slowest(*times));
      }
      if (rank == 0) {
        std::puts(row.c_str());
        std::fflush(stdout);
      }
    }
  }
  check(aiacc_syncbn_free(syncbn));
  check(aiacc_finalize());
  return 0;
}
