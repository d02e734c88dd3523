// The program that bench/networks measures through the C ABI, on two ranks, each on a host of its own.
//   pair latency BYTES COUNT    COUNT messages to the peer and COUNT back: prints the microseconds of one, one way
//   pair stream BYTES COUNT     COUNT messages one way, kWindow of them under way: prints the microseconds of one
// As the peers' programs do, it sends and receives with the same memory each time, which it does not touch itself.
#include <aiacc/aiacc.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr std::size_t kWindow = 32;  // ucx_perftest's

void check(aiacc_status_t status) {
  if (status == AIACC_OK) return;
  std::fprintf(stderr, "%s\n", aiacc_last_error());
  std::exit(1);
}

double now_us() {
  using namespace std::chrono;
  return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

struct Pair {
  int rank = 0;
  std::vector<char> memory;

  void send(aiacc_request_t* request = nullptr) {
    check(aiacc_send(memory.data(), memory.size(), AIACC_UINT8, 1 - rank, 0, AIACC_WORLD, nullptr, request));
  }
  void receive(aiacc_request_t* request = nullptr) {
    check(aiacc_recv(memory.data(), memory.size(), AIACC_UINT8, 1 - rank, 0, AIACC_WORLD, nullptr, request));
  }

  void exchange(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      if (rank == 0) send();
      receive();
      if (rank == 1) send();
    }
  }

  void stream(std::size_t count) {
    std::vector<aiacc_request_t> requests(kWindow, AIACC_NULL);
    for (std::size_t i = 0; i < count + kWindow; ++i) {
      aiacc_request_t& request = requests[i % kWindow];
      if (i >= kWindow && request != AIACC_NULL) check(aiacc_wait(request));
      request = AIACC_NULL;
      if (i < count) rank == 0 ? send(&request) : receive(&request);
    }
    check(aiacc_barrier(AIACC_WORLD, nullptr, nullptr));  // the last has come
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: pair latency|stream BYTES COUNT\n");
    return 2;
  }
  const bool streams = std::strcmp(argv[1], "stream") == 0;
  const std::size_t bytes = std::strtoull(argv[2], nullptr, 10), count = std::strtoull(argv[3], nullptr, 10);
  check(aiacc_init(nullptr));
  Pair pair;
  check(aiacc_rank(AIACC_WORLD, &pair.rank));
  pair.memory.resize(bytes, 1);
  const auto run = [&](std::size_t times) { streams ? pair.stream(times) : pair.exchange(times); };
  run(count / 10 + 1);
  check(aiacc_barrier(AIACC_WORLD, nullptr, nullptr));
  const double began = now_us();
  run(count);
  const double each = (now_us() - began) / static_cast<double>(count) / (streams ? 1 : 2);
  if (pair.rank == 0) std::printf("%.3f\n", each);
  check(aiacc_finalize());
  return 0;
}
