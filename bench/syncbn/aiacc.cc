// A SyncBN layer, forward and backward, beside what it cannot do without: its passes over the batch, as of a rank that is alone, with a
// bare allreduce of 2C+1 floats in the middle and one of 2C behind, whose floats come from an array and go back there. Run by aiaccrun
// with the arguments TYPE CALLS CHANNELS..., where TYPE, that of the elements, is fp32, fp16 or bf16; rank 0 prints medians in
// microseconds: `layer CHANNELS LAYOUT LAYER PASSES_AND_ALLREDUCES`. A time is that of the slowest rank, because the parts end with an
// exchange, before which all ranks have done all passes, and the layer with a pass that each rank does by itself.
#include <aiacc/syncbn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

void check(aiacc_status_t status) {
  if (status == AIACC_OK) return;
  std::fprintf(stderr, "%s\n", aiacc_last_error());
  std::exit(1);
}

template <class Body>
double microseconds(Body&& body) {
  check(aiacc_barrier(AIACC_WORLD, nullptr, nullptr));
  const auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
}

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
      dy.set(i, 0.5F);
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
  Elements x, y, dy, dx;
  std::vector<float> weight, bias, running_mean, running_variance, dweight, dbias;
  std::vector<double> saved;
  aiacc_syncbn_batch_t batch = {};
  aiacc_syncbn_layer_t layer = {};
};

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "fp32";
  const aiacc_dtype_t type = name == "fp16" ? AIACC_FLOAT16 : name == "bf16" ? AIACC_BFLOAT16 : AIACC_FLOAT32;
  const int calls = argc > 2 ? std::atoi(argv[2]) : 300;
  check(aiacc_init(nullptr));
  int rank = 0;
  check(aiacc_rank(AIACC_WORLD, &rank));
  aiacc_group_t alone = AIACC_NULL;
  check(aiacc_group_create(AIACC_WORLD, 1, &rank, nullptr, &alone));
  aiacc_syncbn_t synced = AIACC_NULL, own = AIACC_NULL;
  check(aiacc_syncbn_create(AIACC_WORLD, nullptr, &synced));
  check(aiacc_syncbn_create(alone, nullptr, &own));
  for (const int32_t layout : {AIACC_CHANNELS_FIRST, AIACC_CHANNELS_LAST}) {
    for (int i = 3; i < argc; ++i) {
      const std::size_t channels = std::strtoul(argv[i], nullptr, 10), positions = 49;
      Layer layer(channels, 4, positions, layout, type);
      void* memory = nullptr;
      check(aiacc_mem_alloc(AIACC_NULL, (2 * channels + 1) * sizeof(float), &memory));
      std::vector<float> numbers(2 * channels + 1);
      const auto exchange = [&](std::size_t n) {
        std::memcpy(memory, numbers.data(), n * sizeof(float));
        check(aiacc_allreduce(memory, memory, n, AIACC_FLOAT32, AIACC_SUM, AIACC_WORLD, nullptr, nullptr));
        std::memcpy(numbers.data(), memory, n * sizeof(float));
      };
      std::vector<double> whole, parts;  // in turns, so that what else runs here costs both the same
      for (int call = -calls / 10; call < calls; ++call) {
        const double one = microseconds([&] {
          layer.forward(synced);
          layer.backward(synced);
        });
        const double other = microseconds([&] {
          layer.forward(own);
          exchange(2 * channels + 1);
          layer.backward(own);
          exchange(2 * channels);
        });
        if (call < 0) continue;
        whole.push_back(one);
        parts.push_back(other);
      }
      check(aiacc_mem_free(memory));
      const double of_layer = median_of_slowest(whole), of_parts = median_of_slowest(parts);
      if (rank == 0) {
        std::printf("layer %zu %s %.2f %.2f\n", channels, layout == AIACC_CHANNELS_FIRST ? "NCHW" : "NHWC", of_layer,
                    of_parts);
        std::fflush(stdout);
      }
    }
  }
  for (const aiacc_syncbn_t each : {synced, own}) check(aiacc_syncbn_free(each));
  check(aiacc_finalize());
  return 0;
}
