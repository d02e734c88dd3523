// How bench/host measures, the same for aiacc and for each MPI: allreduce of fp32 in place, sum, the buffer rewritten by its
// owner before each call. The time is that of the call alone, seen by each rank; of the calls of a size the median, and of
// the ranks the slowest. Calls shorter than the clock is fine are timed in batches.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <vector>

namespace bench {

struct Subject {
  int rank = 0;
  int size = 1;
  std::function<void(float*, std::size_t)> allreduce;  // in place
  std::function<void()> barrier;
  std::function<float*(std::size_t)> allocate;  // elements
  std::function<double(double)> slowest;        // of all ranks' figures
};

inline double now_us() {
  using namespace std::chrono;
  return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

inline void rewrite(float* data, std::size_t count, int rank, int call) {
  const float value = static_cast<float>(rank + call % 7);
  for (std::size_t i = 0; i < count; ++i) data[i] = value;
}

inline double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// Microseconds a call.
inline double measure(const Subject& subject, float* data, std::size_t count) {
  const std::size_t bytes = count * sizeof(float);
  const int batch = bytes <= 1024 ? 100 : 1;
  const int calls = bytes <= (64u << 10) ? 400 : bytes <= (1u << 20) ? 200 : bytes <= (8u << 20) ? 40 : 12;
  std::vector<double> times;
  subject.barrier();
  for (int call = -calls / 4 - 2; call < calls; ++call) {
    double time = 0;
    if (batch == 1) {
      rewrite(data, count, subject.rank, call + calls);
      subject.barrier();
      const double began = now_us();
      subject.allreduce(data, count);
      time = now_us() - began;
    } else {
      const double began = now_us();
      for (int i = 0; i < batch; ++i) {
        rewrite(data, count, subject.rank, i);
        subject.allreduce(data, count);
      }
      time = (now_us() - began) / batch;
    }
    if (call >= 0) times.push_back(time);
  }
  float sum = 0;
  const int last = batch == 1 ? 2 * calls - 1 : batch - 1;
  for (int rank = 0; rank < subject.size; ++rank) sum += static_cast<float>(rank + last % 7);
  if (data[0] != sum || data[count - 1] != sum) {
    std::printf("wrong result: %g and %g instead of %g, %zu elements\n", static_cast<double>(data[0]),
                static_cast<double>(data[count - 1]), static_cast<double>(sum), count);
  }
  return subject.slowest(median(times));
}

// One line a size: bytes and microseconds.
inline void run(const Subject& subject, const char* name, std::size_t largest_bytes) {
  float* data = subject.allocate(largest_bytes / sizeof(float));
  rewrite(data, largest_bytes / sizeof(float), 0, 0);
  for (std::size_t bytes = 8; bytes <= largest_bytes; bytes *= bytes < 1024 ? 8 : bytes < 65536 ? 4 : 4) {
    const double time = measure(subject, data, bytes / sizeof(float));
    if (subject.rank == 0) std::printf("%s %d %zu %.3f\n", name, subject.size, bytes, time);
    std::fflush(stdout);
  }
}

}  // namespace bench
