// A SyncBN layer, forward and backward, beside what it cannot do without: its passes over the batch, as of a rank that is alone, with a
// bare allreduce of 2C+1 floats in the middle and one of 2C behind. Run by aiaccrun with the arguments CALLS CHANNELS...; rank 0 prints
// its medians in microseconds: `layer CHANNELS LAYOUT LAYER PASSES_AND_ALLREDUCES`.
#include <aiacc/syncbn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

void check(aiacc_status_t status) {
  if (status == AIACC_OK) return;
  std::fprintf(stderr, "%s\n", aiacc_last_error());
  std::exit(1);
}

template <class Body>
double median_us(int calls, Body&& body) {
  std::vector<double> times;
  for (int i = 0; i < calls + calls / 10; ++i) {
    check(aiacc_barrier(AIACC_WORLD, nullptr, nullptr));
    const auto begin = std::chrono::steady_clock::now();
    body();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    if (i >= calls / 10) times.push_back(took.count());
  }
  std::nth_element(times.begin(), times.begin() + calls / 2, times.end());
  return times[static_cast<std::size_t>(calls) / 2];
}

struct Layer {
  Layer(aiacc_group_t group, std::size_t channels, std::size_t samples, std::size_t positions, int32_t layout)
      : x(samples * channels * positions),
        y(x.size()),
        dy(x.size(), 0.5F),
        dx(x.size()),
        weight(channels, 1),
        bias(channels),
        running_mean(channels),
        running_variance(channels),
        dweight(channels),
        dbias(channels),
        saved(2 * channels + 1) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 7919 % 1009);
    batch.size = sizeof batch;
    batch.samples = samples;
    batch.channels = channels;
    batch.positions = positions;
    batch.dtype = AIACC_FLOAT32;
    batch.layout = layout;
    layer.size = sizeof layer;
    layer.weight = weight.data();
    layer.bias = bias.data();
    layer.running_mean = running_mean.data();
    layer.running_variance = running_variance.data();
    layer.epsilon = 1e-5;
    layer.momentum = 0.1;
    check(aiacc_syncbn_create(group, nullptr, &syncbn));
  }
  ~Layer() { check(aiacc_syncbn_free(syncbn)); }
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;
  void forward() { check(aiacc_syncbn_forward(syncbn, &batch, &layer, x.data(), y.data(), saved.data())); }
  void backward() {
    check(aiacc_syncbn_backward(syncbn, &batch, weight.data(), saved.data(), x.data(), dy.data(), dx.data(),
                                dweight.data(), dbias.data()));
  }
  std::vector<float> x, y, dy, dx, weight, bias, running_mean, running_variance, dweight, dbias;
  std::vector<double> saved;
  aiacc_syncbn_batch_t batch = {};
  aiacc_syncbn_layer_t layer = {};
  aiacc_syncbn_t syncbn = AIACC_NULL;
};

}  // namespace

int main(int argc, char** argv) {
  const int calls = argc > 1 ? std::atoi(argv[1]) : 300;
  check(aiacc_init(nullptr));
  int rank = 0;
  check(aiacc_rank(AIACC_WORLD, &rank));
  aiacc_group_t alone = AIACC_NULL;
  check(aiacc_group_create(AIACC_WORLD, 1, &rank, nullptr, &alone));
  for (const int32_t layout : {AIACC_CHANNELS_FIRST, AIACC_CHANNELS_LAST}) {
    for (int i = 2; i < argc; ++i) {
      const std::size_t channels = std::strtoul(argv[i], nullptr, 10), positions = 49;
      Layer synced(AIACC_WORLD, channels, 4, positions, layout), own(alone, channels, 4, positions, layout);
      void* memory = nullptr;
      check(aiacc_mem_alloc(AIACC_NULL, (2 * channels + 1) * sizeof(float), &memory));
      const auto exchange = [&](std::size_t n) {
        check(aiacc_allreduce(memory, memory, n, AIACC_FLOAT32, AIACC_SUM, AIACC_WORLD, nullptr, nullptr));
      };
      const double whole = median_us(calls, [&] {
        synced.forward();
        synced.backward();
      });
      const double parts = median_us(calls, [&] {
        own.forward();
        exchange(2 * channels + 1);
        own.backward();
        exchange(2 * channels);
      });
      check(aiacc_mem_free(memory));
      if (rank == 0) {
        std::printf("layer %zu %s %.2f %.2f\n", channels, layout == AIACC_CHANNELS_FIRST ? "NCHW" : "NHWC", whole,
                    parts);
        std::fflush(stdout);
      }
    }
  }
  check(aiacc_finalize());
  return 0;
}
