// What both subjects of bench/windows measure: messages of a length between two ranks. What is said is the median over the rounds of
// the time of one message, on the slower rank. A round is a number of loops over n messages:
//
//   stream    n receives are posted on rank 1, n sends are started on rank 0, both wait for all of theirs, and rank 1 answers with a
//             byte (osu_bw, osu_mbw_mr)
//   both      n receives are posted and n sends are started on each rank, which waits for all (osu_bibw)
//   pingpong  a blocking send and the recv of its answer: half of the time of both (osu_latency, Intel's PingPong)
//   sendrecv  one call that sends and receives (Intel's Sendrecv)
//   exchange  two sends are started, two blocking receives, and the wait for the sends: half of the time of all, because each rank
//             sends to either neighbour, and both are the other rank (Intel's Exchange)
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace bench {

using Bytes = unsigned char*;

struct Subject {
  int rank = 0;
  std::function<void(Bytes into, std::size_t bytes, std::size_t i)> recv;  // from the other rank, as request i
  std::function<void(Bytes from, std::size_t bytes, std::size_t i)> send;
  std::function<void(std::size_t n)> wait_all;  // for requests 0 .. n - 1
  std::function<void(Bytes into, std::size_t bytes)> recv_now;
  std::function<void(Bytes from, std::size_t bytes)> send_now;
  std::function<void(Bytes from, Bytes into, std::size_t bytes)> sendrecv;
  std::function<void()> barrier;
  std::function<double(double)> slowest;
  std::function<Bytes(std::size_t bytes)> allocate;
};

// What to measure, from the command line: NAME KINDS SIZES MESSAGES LOOPS BUFFERS LATE_MS ROUNDS
struct Plan {
  static constexpr int kWords = 8;
  explicit Plan(char** words)
      : name(words[0]),
        kinds(split(words[1])),
        messages(std::strtoull(words[3], nullptr, 10)),
        loops(std::strtoull(words[4], nullptr, 10)),
        one_buffer(std::string(words[5]) == "one"),
        late(std::atoi(words[6])),
        rounds(std::atoi(words[7])) {
    for (const std::string& size : split(words[2])) sizes.push_back(std::strtoull(size.c_str(), nullptr, 10));
  }
  static std::vector<std::string> split(const char* list) {
    std::vector<std::string> items;
    std::stringstream all(list);
    for (std::string item; std::getline(all, item, ',');) items.push_back(item);
    return items;
  }
  // Long messages are as many as take some tenths of a second.
  std::size_t loops_of(std::size_t bytes) const {
    constexpr std::size_t kMostBytes = 256 << 20;
    return std::max<std::size_t>(1, std::min(loops, kMostBytes / (messages * bytes)));
  }

  std::string name;
  std::vector<std::string> kinds;
  std::vector<std::size_t> sizes;
  std::size_t messages, loops;
  bool one_buffer;  // for all messages, as those benchmarks have it; else each message of a loop has memory of its own
  std::chrono::milliseconds late;
  int rounds;
};

// The messages' memory, whose pages are there.
struct Memory {
  Memory(Subject& subject, const Plan& plan) : one_buffer(plan.one_buffer) {
    const std::size_t longest = *std::max_element(plan.sizes.begin(), plan.sizes.end());
    const std::size_t whole = (one_buffer ? 1 : plan.messages) * (longest + kApart);
    out = subject.allocate(whole);
    in = subject.allocate(whole);
    std::memset(in, 0, whole);
    for (std::size_t i = 0; i < whole; ++i) out[i] = static_cast<unsigned char>(i % 251 + 1);
  }
  void set_length(std::size_t length) {
    bytes = length;
    step = one_buffer ? 0 : length + kApart;
  }
  Bytes from(std::size_t i) const { return out + i * step; }
  Bytes into(std::size_t i) const { return in + i * step; }

  static constexpr std::size_t kApart = 64;
  bool one_buffer;
  Bytes out, in;
  std::size_t bytes = 0, step = 0;
};

using Loop = void (*)(Subject& subject, const Memory& memory, std::size_t n);

inline void stream(Subject& subject, const Memory& memory, std::size_t n) {
  unsigned char answer = 0;
  if (subject.rank == 0) {
    for (std::size_t i = 0; i < n; ++i) subject.send(memory.from(i), memory.bytes, i);
    subject.wait_all(n);
    subject.recv_now(&answer, 1);
  } else {
    for (std::size_t i = 0; i < n; ++i) subject.recv(memory.into(i), memory.bytes, i);
    subject.wait_all(n);
    subject.send_now(&answer, 1);
  }
}

inline void both(Subject& subject, const Memory& memory, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) subject.recv(memory.into(i), memory.bytes, i);
  for (std::size_t i = 0; i < n; ++i) subject.send(memory.from(i), memory.bytes, n + i);
  subject.wait_all(2 * n);
}

inline void pingpong(Subject& subject, const Memory& memory, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    if (subject.rank == 0) subject.send_now(memory.from(i), memory.bytes);
    subject.recv_now(memory.into(i), memory.bytes);
    if (subject.rank == 1) subject.send_now(memory.from(i), memory.bytes);
  }
}

inline void sendrecv(Subject& subject, const Memory& memory, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) subject.sendrecv(memory.from(i), memory.into(i), memory.bytes);
}

inline void exchange(Subject& subject, const Memory& memory, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t neighbour = 0; neighbour < 2; ++neighbour) subject.send(memory.from(i), memory.bytes, neighbour);
    for (std::size_t neighbour = 0; neighbour < 2; ++neighbour) subject.recv_now(memory.into(i), memory.bytes);
    subject.wait_all(2);
  }
}

struct Kind {
  Loop loop;
  double messages;  // of a rank, for each of the n
  bool one_way;     // from rank 0 to rank 1
};

inline const Kind& kind_of(const std::string& name) {
  static const std::map<std::string, Kind> kinds = {{"stream", {stream, 1, true}},
                                                    {"both", {both, 1, false}},
                                                    {"pingpong", {pingpong, 2, false}},
                                                    {"sendrecv", {sendrecv, 1, false}},
                                                    {"exchange", {exchange, 2, false}}};
  const auto found = kinds.find(name);
  if (found != kinds.end()) return found->second;
  std::fprintf(stderr, "there is no kind %s\n", name.c_str());
  std::exit(2);
}

// Whether what came is what was sent: the first and last byte of a message, which are marked with the round.
inline void check(const Subject& subject, const unsigned char* in, std::size_t bytes, unsigned char mark) {
  if (in[0] == mark && in[bytes - 1] == mark) return;
  std::fprintf(stderr, "rank %d: wrong bytes %d and %d, not %d\n", subject.rank, in[0], in[bytes - 1], mark);
  std::exit(1);
}

// Seconds for a round.
inline double once(Subject& subject, const Kind& kind, const Plan& plan, const Memory& memory, unsigned char mark) {
  for (std::size_t i = 0; i < plan.messages; ++i) memory.from(i)[0] = memory.from(i)[memory.bytes - 1] = mark;
  subject.barrier();
  const auto began = std::chrono::steady_clock::now();
  if (subject.rank == 1 && plan.late.count() > 0) std::this_thread::sleep_for(plan.late);
  for (std::size_t loops = plan.loops_of(memory.bytes); loops > 0; --loops) kind.loop(subject, memory, plan.messages);
  const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - began - plan.late).count();
  const bool received = subject.rank == 1 || !kind.one_way;
  for (std::size_t i = 0; received && i < plan.messages; ++i) check(subject, memory.into(i), memory.bytes, mark);
  return subject.slowest(took);
}

inline double median_microseconds(Subject& subject, const Kind& kind, const Plan& plan, const Memory& memory) {
  std::vector<double> times;
  for (int round = -2; round < plan.rounds; ++round) {  // the first two make connections and buffers
    const double took = once(subject, kind, plan, memory, static_cast<unsigned char>(round + 3));
    if (round >= 0) times.push_back(took);
  }
  std::nth_element(times.begin(), times.begin() + static_cast<long>(times.size() / 2), times.end());
  const auto calls = static_cast<double>(plan.messages * plan.loops_of(memory.bytes));
  return times[times.size() / 2] * 1e6 / calls / kind.messages;
}

// Lines "NAME KIND BYTES MICROSECONDS".
inline void run(Subject& subject, const Plan& plan) {
  Memory memory(subject, plan);
  for (const std::string& kind : plan.kinds) {
    for (const std::size_t bytes : plan.sizes) {
      memory.set_length(bytes);
      const double time = median_microseconds(subject, kind_of(kind), plan, memory);
      if (subject.rank != 0) continue;
      std::printf("%s %s %zu %.3f\n", plan.name.c_str(), kind.c_str(), bytes, time);
      std::fflush(stdout);
    }
  }
}

}  // namespace bench
