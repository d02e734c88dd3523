// The program that bench/host measures through the C ABI, started by aiaccrun and compiled against the installed tree.
//   bench shared|private [LARGEST_BYTES [COLLECTIVE [PAUSE_US]]]
#include <aiacc/aiacc.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "measure.h"

namespace {

void check(aiacc_status_t status) {
  if (status == AIACC_OK) return;
  std::fprintf(stderr, "%s\n", aiacc_last_error());
  std::exit(1);
}

float* allocate(bool shared, std::size_t count) {
  if (!shared) return static_cast<float*>(std::aligned_alloc(4096, count * sizeof(float)));
  void* memory = nullptr;
  check(aiacc_mem_alloc(AIACC_NULL, count * sizeof(float), &memory));
  return static_cast<float*>(memory);
}

constexpr aiacc_dtype_t kType = AIACC_FLOAT32;
constexpr aiacc_group_t kWorld = AIACC_WORLD;

using Call = void (*)(float* send, float* recv, std::size_t count);

// Chosen once, because a call of 8 bytes takes less time than a comparison of their names.
Call call_of(const std::string& what) {
  if (what == "broadcast")
    return [](float*, float* recv, std::size_t count) {
      check(aiacc_broadcast(recv, count, kType, 0, kWorld, nullptr, nullptr));
    };
  if (what == "reduce")
    return [](float* send, float* recv, std::size_t count) {
      check(aiacc_reduce(send, recv, count, kType, AIACC_SUM, 0, kWorld, nullptr, nullptr));
    };
  if (what == "allgather")
    return [](float* send, float* recv, std::size_t count) {
      check(aiacc_allgather(send, recv, count, kType, kWorld, nullptr, nullptr));
    };
  if (what == "reduce_scatter")
    return [](float* send, float* recv, std::size_t count) {
      check(aiacc_reduce_scatter(send, recv, count, kType, AIACC_SUM, kWorld, nullptr, nullptr));
    };
  if (what == "alltoall")
    return [](float* send, float* recv, std::size_t count) {
      check(aiacc_alltoall(send, recv, count, kType, kWorld, nullptr, nullptr));
    };
  if (what == "gather")
    return [](float* send, float* recv, std::size_t count) {
      check(aiacc_gather(send, recv, count, kType, 0, kWorld, nullptr, nullptr));
    };
  if (what == "scatter")
    return [](float* send, float* recv, std::size_t count) {
      check(aiacc_scatter(send, recv, count, kType, 0, kWorld, nullptr, nullptr));
    };
  return [](float* send, float* recv, std::size_t count) {
    check(aiacc_allreduce(send, recv, count, kType, AIACC_SUM, kWorld, nullptr, nullptr));
  };
}

}  // namespace

int main(int argc, char** argv) {
  const bool shared = argc < 2 || std::strcmp(argv[1], "shared") == 0;
  const std::size_t largest = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : std::size_t{64} << 20;
  const std::string what = argc > 3 ? argv[3] : "allreduce";
  check(aiacc_init(nullptr));
  bench::Subject subject;
  subject.collective = bench::find(what.c_str());
  check(aiacc_rank(AIACC_WORLD, &subject.rank));
  check(aiacc_size(AIACC_WORLD, &subject.size));
  subject.call = call_of(what);
  subject.barrier = [] { check(aiacc_barrier(AIACC_WORLD, nullptr, nullptr)); };
  subject.allocate = [shared](std::size_t count) { return allocate(shared, count); };
  subject.slowest = [](double mine) {
    double all = 0;
    check(aiacc_allreduce(&mine, &all, 1, AIACC_FLOAT64, AIACC_MAX, AIACC_WORLD, nullptr, nullptr));
    return all;
  };
  subject.back_to_back = argc > 5;
  if (argc > 4) subject.pause = std::chrono::microseconds(std::strtoull(argv[4], nullptr, 10));
  bench::run(subject, shared ? "shared" : "private", largest);
  check(aiacc_finalize());
  return 0;
}
