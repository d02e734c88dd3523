// How bench/host measures, the same for aiacc and for each MPI: a collective of fp32 (sums), its input rewritten by its owner
// before each call, allreduce and broadcast in place, the others out of place. The size is that of the larger of a rank's two
// buffers. The time is that of the call alone, seen by each rank; of the calls of a size the median and the mean, and of
// the ranks the slowest. Calls shorter than the clock is fine are timed in batches, unless some ranks only give: those would run ahead, which is
// what `back_to_back` asks for. Where a token bucket shapes the network, a pause before each call fills it for everybody alike: slow barriers would do so for some.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

namespace bench {

// What a call does with what ranks hold. A block for each rank, or one of `count` elements.
struct Collective {
  enum class Gives { kSum, kOfRoot, kBlocks };

  const char* name;
  bool sends_blocks;
  bool receives_blocks;
  bool in_place;
  bool rooted;  // at rank 0
  bool receives_at_root_only;
  Gives gives;
};
constexpr Collective kCollectives[] = {
    {"allreduce", false, false, true, false, false, Collective::Gives::kSum},
    {"broadcast", false, false, true, true, false, Collective::Gives::kOfRoot},
    {"reduce", false, false, false, true, true, Collective::Gives::kSum},
    {"allgather", false, true, false, false, false, Collective::Gives::kBlocks},
    {"reduce_scatter", true, false, false, false, false, Collective::Gives::kSum},
    {"alltoall", true, true, false, false, false, Collective::Gives::kBlocks},
    {"gather", false, true, false, true, true, Collective::Gives::kBlocks},
    {"scatter", true, false, false, true, false, Collective::Gives::kOfRoot},
};

inline const Collective& find(const char* name) {
  for (const Collective& one : kCollectives) {
    if (std::strcmp(one.name, name) == 0) return one;
  }
  std::fprintf(stderr, "there is no collective %s here\n", name);
  std::exit(2);
}

struct Subject {
  int rank = 0;
  int size = 1;
  Collective collective = kCollectives[0];
  // `count`: elements that a rank gives or gets, of a block where there are blocks.
  std::function<void(float* send, float* recv, std::size_t count)> call;
  std::function<void()> barrier;
  std::function<float*(std::size_t)> allocate;  // elements
  std::function<double(double)> slowest;        // of all ranks' figures
  std::chrono::microseconds pause{0};           // before each call
  bool back_to_back = false;                    // all calls of at most 4 KiB in batches, without barriers
};

inline double now_us() {
  using namespace std::chrono;
  return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

inline float value_of(int rank, int call) { return static_cast<float>(rank + call % 7); }

inline void rewrite(float* data, std::size_t count, int rank, int call) {
  const float value = value_of(rank, call);
  for (std::size_t i = 0; i < count; ++i) data[i] = value;
}

inline double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// Of the result of that call: its first element, or its last.
inline float expected(const Subject& subject, int call, bool first) {
  if (subject.collective.gives == Collective::Gives::kOfRoot) return value_of(0, call);
  if (subject.collective.gives == Collective::Gives::kBlocks) return value_of(first ? 0 : subject.size - 1, call);
  float sum = 0;
  for (int rank = 0; rank < subject.size; ++rank) sum += value_of(rank, call);
  return sum;
}

// Microseconds a call. Beside a program that computes few calls wait for milliseconds: the mean counts these, the median does not.
struct Times {
  double median = 0;
  double mean = 0;
};

inline Times measure(const Subject& subject, float* send, float* recv, std::size_t count) {
  const Collective& collective = subject.collective;
  const auto ranks = static_cast<std::size_t>(subject.size);
  const std::size_t sent = collective.sends_blocks ? count * ranks : count;
  const std::size_t received = collective.receives_blocks ? count * ranks : count;
  const std::size_t bytes = std::max(sent, received) * sizeof(float);
  const bool together = subject.back_to_back ? bytes <= 4096 : bytes <= 1024 && !collective.rooted;
  const int batch = together ? 100 : 1;
  const int calls = bytes <= (64u << 10) ? 400 : bytes <= (1u << 20) ? 200 : bytes <= (8u << 20) ? 40 : 12;
  std::vector<double> times;
  subject.barrier();
  for (int call = -calls / 4 - 2; call < calls; ++call) {
    double time = 0;
    if (batch == 1) {
      rewrite(send, sent, subject.rank, call + calls);
      std::this_thread::sleep_for(subject.pause);
      subject.barrier();
      const double began = now_us();
      subject.call(send, recv, count);
      time = now_us() - began;
    } else {
      const double began = now_us();
      for (int i = 0; i < batch; ++i) {
        rewrite(send, sent, subject.rank, i);
        subject.call(send, recv, count);
      }
      time = (now_us() - began) / batch;
    }
    if (call >= 0) times.push_back(time);
  }
  const int last = batch == 1 ? 2 * calls - 1 : batch - 1;
  const bool has_result = !collective.receives_at_root_only || subject.rank == 0;
  if (has_result &&
      (recv[0] != expected(subject, last, true) || recv[received - 1] != expected(subject, last, false))) {
    std::printf("wrong result: %g and %g instead of %g and %g, %zu elements\n", static_cast<double>(recv[0]),
                static_cast<double>(recv[received - 1]), static_cast<double>(expected(subject, last, true)),
                static_cast<double>(expected(subject, last, false)), received);
  }
  const double mean = std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size());
  return {subject.slowest(median(times)), subject.slowest(mean)};
}

// One line a size: bytes, and the median and the mean in microseconds.
inline void run(const Subject& subject, const char* name, std::size_t largest_bytes) {
  const Collective& collective = subject.collective;
  const std::size_t largest = largest_bytes / sizeof(float);
  float* send = subject.allocate(largest);
  float* recv = collective.in_place ? send : subject.allocate(largest);
  rewrite(send, largest, 0, 0);
  rewrite(recv, largest, 0, 0);
  const bool blocks = collective.sends_blocks || collective.receives_blocks;
  for (std::size_t bytes = 8; bytes <= largest_bytes; bytes *= bytes < 1024 ? 8 : 4) {
    const std::size_t count = bytes / sizeof(float) / (blocks ? static_cast<std::size_t>(subject.size) : 1);
    if (count == 0) continue;
    const Times time = measure(subject, send, recv, count);
    if (subject.rank == 0) std::printf("%s %d %zu %.3f %.3f\n", name, subject.size, bytes, time.median, time.mean);
    std::fflush(stdout);
  }
}

}  // namespace bench
