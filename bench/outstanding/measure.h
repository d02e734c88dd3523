// What both subjects of bench/outstanding measure: n operations are started, each with a request of its own, and then waited for
// together; what is said is the time of one of them, on the slowest rank. With a late rank its delay is taken off: what is left is
// what the wait cost.
//
//   allreduce   n allreduces of one fp64
//   messages    n receives from the rank before, posted at once, each with a tag of its own; then n sends to the rank after
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace bench {

struct Subject {
  int rank = 0;
  int size = 1;
  std::function<void(double* send, double* recv, std::size_t i)> allreduce;
  std::function<void(double* recv, int from, std::size_t i)> recv;
  std::function<void(double* send, int to, std::size_t i, std::size_t tag)> send;
  std::function<void(std::size_t n)> wait_all;  // for requests 0 .. n - 1
  std::function<void()> barrier;
  std::function<double(double)> slowest;
};

using Clock = std::chrono::steady_clock;

inline std::size_t resident_bytes() {
  std::size_t total = 0, resident = 0;
  if (std::FILE* file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%zu %zu", &total, &resident) != 2) resident = 0;
    std::fclose(file);
  }
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

// What is sent and received.
inline std::pair<std::vector<double>, std::vector<double>>& memory_of(std::size_t n) {
  static std::pair<std::vector<double>, std::vector<double>> memory;
  if (memory.first.size() < n) memory = {std::vector<double>(n), std::vector<double>(n)};
  return memory;
}

// Seconds for all. With `resident` the memory of this rank is looked at when all has been started and nothing can end.
inline double once(Subject& subject, bool messages, std::size_t n, std::chrono::milliseconds late,
                   std::size_t* resident) {
  auto& [out, in] = memory_of(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<double>(i), in[i] = -1;
  const bool is_late = late.count() > 0 && subject.rank == subject.size - 1;
  const int next = (subject.rank + 1) % subject.size, last = (subject.rank + subject.size - 1) % subject.size;
  subject.barrier();
  const Clock::time_point began = Clock::now();
  if (messages) {
    for (std::size_t i = 0; i < n; ++i) subject.recv(&in[i], last, i);
  }
  if (is_late) std::this_thread::sleep_for(late);
  for (std::size_t i = 0; i < n; ++i) {
    messages ? subject.send(&out[i], next, n + i, i) : subject.allreduce(&out[i], &in[i], i);
  }
  if (resident != nullptr && late.count() > 0 && !is_late) {
    std::this_thread::sleep_for(late / 2);
    *resident = resident_bytes();
  }
  subject.wait_all(messages ? 2 * n : n);
  const double took = std::chrono::duration<double>(Clock::now() - began - late).count();
  const double factor = messages ? 1 : subject.size;
  for (std::size_t i = 0; i < n; ++i) {
    if (in[i] == factor * static_cast<double>(i)) continue;
    std::fprintf(stderr, "rank %d: wrong result %zu of %zu: %g\n", subject.rank, i, n, in[i]);
    std::exit(1);
  }
  return subject.slowest(took);
}

// Lines "NAME KIND LATE_MS N MICROSECONDS BYTES": of one operation. The bytes are those by which rank 0 had grown since its
// beginning when all were outstanding: a process measures one kind, the late rounds first and the small counts before the large.
inline void run(Subject& subject, const char* name, const std::string& kind, const std::string& counts,
                std::chrono::milliseconds late, int rounds) {
  const bool messages = kind == "messages";
  std::vector<std::size_t> each;
  std::stringstream words(counts);
  for (std::string word; std::getline(words, word, ',');) each.push_back(std::strtoull(word.c_str(), nullptr, 10));
  const std::size_t most = *std::max_element(each.begin(), each.end());
  memory_of(most);
  once(subject, messages, 1, {}, nullptr);  // connections and buffers are made
  const std::size_t base = resident_bytes();
  for (const std::chrono::milliseconds delay : {late, std::chrono::milliseconds(0)}) {
    for (const std::size_t n : each) {
      std::size_t resident = base;
      double best = once(subject, messages, n, delay, &resident);
      for (int round = 1; round < rounds * (delay.count() == 0 && n < most / 16 ? 8 : 1); ++round) {
        best = std::min(best, once(subject, messages, n, delay, nullptr));
      }
      if (subject.rank != 0) continue;
      std::printf("%s %s %lld %zu %.4f %lld\n", name, kind.c_str(), static_cast<long long>(delay.count()), n,
                  best * 1e6 / static_cast<double>(n),
                  (static_cast<long long>(resident) - static_cast<long long>(base)) / static_cast<long long>(n));
      std::fflush(stdout);
    }
  }
}

}  // namespace bench
