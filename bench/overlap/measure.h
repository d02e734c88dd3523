// What both subjects of bench/overlap measure: an asynchronous allreduce with computation of equal length between its start and its
// end. Of each size first the blocking call is timed, and start and wait with nothing between; then rounds of
//
//   wait   start, compute for as long as the blocking call took, wait
//   test   start, compute as long in 16 pieces with a test after each, then test until it is done
//
// and, for what the machine does to anything that takes as long,
//
//   sum    compute as long, then the blocking call
//   alone  compute for as long as both take, without a call
//
// A round's time is that of the slowest rank, so what one rank's computation costs another shows. The computation is a fixed number
// of steps, measured once: a rank that loses its core computes longer, as real ones do.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

namespace bench {

struct Subject {
  int rank = 0;
  int size = 1;
  std::function<void(float* send, float* recv, std::size_t count)> allreduce;
  std::function<void(float* send, float* recv, std::size_t count)> start;
  std::function<void()> wait;
  std::function<bool()> test;
  std::function<void()> barrier;
  std::function<double(double)> slowest;
};

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point began) {
  return std::chrono::duration<double>(Clock::now() - began).count();
}

// Work that depends on itself, and on nothing in memory.
inline std::uint64_t compute(std::uint64_t steps) {
  std::uint64_t state = steps;
  for (std::uint64_t i = 0; i < steps; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    asm volatile("" : "+r"(state));
  }
  return state;
}

// Steps a second of one core that nobody else uses: the best of many short tries.
inline double speed() {
  constexpr std::uint64_t kSteps = 200'000;
  double best = 1e9;
  for (int i = 0; i < 200; ++i) {
    const Clock::time_point began = Clock::now();
    compute(kSteps);
    best = std::min(best, seconds_since(began));
  }
  return static_cast<double>(kSteps) / best;
}

inline double quantile(std::vector<double> times, double share) {
  std::sort(times.begin(), times.end());
  return times[std::min(times.size() - 1, static_cast<std::size_t>(share * static_cast<double>(times.size())))];
}

// Lines "NAME BYTES BLOCKING SUBMIT_WAIT SUM SUM_P99 WAIT WAIT_P99 TEST TEST_P99 ALONE ALONE_P99", in microseconds, medians but for the
// P99. With more ranks than cores the computation alone takes longer than it is.
inline void run(Subject& subject, const char* name, const std::string& sizes, int most_rounds, double budget) {
  std::vector<std::size_t> each;
  std::stringstream words(sizes);
  for (std::string word; std::getline(words, word, ',');) each.push_back(std::strtoull(word.c_str(), nullptr, 10));
  const std::size_t most = *std::max_element(each.begin(), each.end()) / sizeof(float);
  std::vector<float> send(most + 1, 1.0f), recv(most + 1);
  const double steps_a_second = speed();
  for (const std::size_t bytes : each) {
    const std::size_t count = bytes / sizeof(float);
    const auto timed = [&](int rounds, auto&& body) {
      std::vector<double> times;
      for (int round = 0; round < rounds; ++round) {
        subject.barrier();
        const Clock::time_point began = Clock::now();
        body();
        times.push_back(subject.slowest(seconds_since(began)) * 1e6);
      }
      return times;
    };
    const auto blocking = [&] { subject.allreduce(send.data(), recv.data(), count); };
    const auto start = [&] { subject.start(send.data(), recv.data(), count); };
    timed(10, blocking);
    const double once = subject.slowest(quantile(timed(50, blocking), 0.5)) / 1e6;
    const int rounds = std::clamp(static_cast<int>(budget / (10 * once * subject.size)), 30, most_rounds);
    const double call = subject.slowest(quantile(timed(rounds, blocking), 0.5));
    const double submit_wait = quantile(timed(rounds, [&] { start(), subject.wait(); }), 0.5);
    const auto steps = static_cast<std::uint64_t>(call / 1e6 * steps_a_second);
    const auto sums = timed(rounds, [&] { compute(steps), blocking(); });
    const auto waits = timed(rounds, [&] {
      start();
      compute(steps);
      subject.wait();
    });
    const auto tests = timed(rounds, [&] {
      start();
      bool done = false;
      for (int piece = 0; piece < 16; ++piece) {
        compute(steps / 16);
        done = done || subject.test();
      }
      while (!done) done = subject.test();
    });
    const auto alone = timed(rounds, [&] { compute(2 * steps); });
    for (std::size_t i = 0; i < count; ++i) {
      if (recv[i] == static_cast<float>(subject.size)) continue;
      std::fprintf(stderr, "rank %d: wrong result at %zu: %g\n", subject.rank, i, static_cast<double>(recv[i]));
      std::exit(1);
    }
    if (subject.rank != 0) continue;
    std::printf("%s %zu %.2f %.2f", name, bytes, call, submit_wait);
    for (const auto* times : {&sums, &waits, &tests, &alone})
      std::printf(" %.2f %.2f", quantile(*times, 0.5), quantile(*times, 0.99));
    std::printf("\n");
    std::fflush(stdout);
  }
}

}  // namespace bench
