// What both subjects of bench/windows measure: messages of a length between two ranks. What is said is the median over the rounds of
// the time of one message, on the slower rank.
//
//   stream    n receives are posted on rank 1, n sends are started on rank 0, and both wait for all of theirs
//   both      the same, from each rank to the other at once
//   pingpong  a blocking send and the recv of its answer: half of the time of both
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace bench {

struct Subject {
  int rank = 0;
  std::function<void(unsigned char* into, std::size_t bytes, std::size_t i)> recv;  // from the other rank, as request i
  std::function<void(const unsigned char* from, std::size_t bytes, std::size_t i)> send;
  std::function<void(std::size_t n)> wait_all;  // for requests 0 .. n - 1
  std::function<void(unsigned char* into, std::size_t bytes)> recv_now;
  std::function<void(const unsigned char* from, std::size_t bytes)> send_now;
  std::function<void()> barrier;
  std::function<double(double)> slowest;
  std::function<unsigned char*(std::size_t bytes)> allocate;
};

using Clock = std::chrono::steady_clock;

// Each message has memory of its own, whose pages are there.
struct Memory {
  Memory(Subject& subject, std::size_t messages, std::size_t longest) {
    const std::size_t whole = messages * (longest + kApart);
    out = subject.allocate(whole);
    in = subject.allocate(whole);
    std::memset(in, 0, whole);
    for (std::size_t i = 0; i < whole; ++i) out[i] = static_cast<unsigned char>(i % 251 + 1);
  }
  static constexpr std::size_t kApart = 64;
  std::size_t step = 0;
  unsigned char *out, *in;
};

// Whether what came is what was sent: the first and last byte of each message, which are marked with the round.
inline void check(const Subject& subject, const unsigned char* in, std::size_t bytes, unsigned char mark) {
  if (in[0] == mark && in[bytes - 1] == mark) return;
  std::fprintf(stderr, "rank %d: wrong bytes %d and %d, not %d\n", subject.rank, in[0], in[bytes - 1], mark);
  std::exit(1);
}

// Seconds for a round.
inline double once(Subject& subject, const std::string& kind, Memory& memory, std::size_t n, std::size_t bytes,
                   std::chrono::milliseconds late, unsigned char mark) {
  const bool both = kind == "both", pingpong = kind == "pingpong";
  const bool sends = both || pingpong || subject.rank == 0, receives = both || pingpong || subject.rank == 1;
  for (std::size_t i = 0; i < n; ++i) {
    unsigned char* const message = memory.out + i * memory.step;
    message[0] = message[bytes - 1] = mark;
  }
  subject.barrier();
  const Clock::time_point began = Clock::now();
  if (subject.rank == 1 && late.count() > 0) std::this_thread::sleep_for(late);
  if (pingpong) {
    for (std::size_t i = 0; i < n; ++i) {
      if (subject.rank == 0) subject.send_now(memory.out + i * memory.step, bytes);
      subject.recv_now(memory.in + i * memory.step, bytes);
      if (subject.rank == 1) subject.send_now(memory.out + i * memory.step, bytes);
    }
  } else {
    std::size_t requests = 0;
    for (std::size_t i = 0; receives && i < n; ++i) subject.recv(memory.in + i * memory.step, bytes, requests++);
    for (std::size_t i = 0; sends && i < n; ++i) subject.send(memory.out + i * memory.step, bytes, requests++);
    subject.wait_all(requests);
  }
  const double took = std::chrono::duration<double>(Clock::now() - began - late).count();
  for (std::size_t i = 0; receives && i < n; ++i) check(subject, memory.in + i * memory.step, bytes, mark);
  return subject.slowest(took);
}

// Lines "NAME KIND BYTES MICROSECONDS".
inline void run(Subject& subject, const char* name, const std::string& kinds, const std::string& sizes, std::size_t n,
                std::chrono::milliseconds late, int rounds) {
  std::vector<std::size_t> lengths;
  std::stringstream all_sizes(sizes);
  for (std::string size; std::getline(all_sizes, size, ',');) {
    lengths.push_back(std::strtoull(size.c_str(), nullptr, 10));
  }
  Memory memory(subject, n, *std::max_element(lengths.begin(), lengths.end()));
  std::stringstream all_kinds(kinds);
  for (std::string kind; std::getline(all_kinds, kind, ',');) {
    for (const std::size_t bytes : lengths) {
      memory.step = bytes + Memory::kApart;
      std::vector<double> times;
      for (int round = -2; round < rounds; ++round) {  // the first two make connections and buffers
        const double took = once(subject, kind, memory, n, bytes, late, static_cast<unsigned char>(round + 3));
        if (round >= 0) times.push_back(took);
      }
      std::nth_element(times.begin(), times.begin() + static_cast<long>(times.size() / 2), times.end());
      if (subject.rank != 0) continue;
      std::printf("%s %s %zu %.3f\n", name, kind.c_str(), bytes,
                  times[times.size() / 2] * 1e6 / static_cast<double>(n) / (kind == "pingpong" ? 2 : 1));
      std::fflush(stdout);
    }
  }
}

}  // namespace bench
