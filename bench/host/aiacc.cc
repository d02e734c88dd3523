// bench/host's subject through the C ABI, started by aiaccrun: compiled against the installed tree.
//   bench shared|private [LARGEST_BYTES [COLLECTIVE]]
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

void call(const std::string& what, float* send, float* recv, std::size_t count) {
  const aiacc_dtype_t type = AIACC_FLOAT32;
  const aiacc_group_t world = AIACC_WORLD;
  if (what == "allreduce") check(aiacc_allreduce(send, recv, count, type, AIACC_SUM, world, nullptr, nullptr));
  if (what == "broadcast") check(aiacc_broadcast(recv, count, type, 0, world, nullptr, nullptr));
  if (what == "allgather") check(aiacc_allgather(send, recv, count, type, world, nullptr, nullptr));
  if (what == "reduce_scatter")
    check(aiacc_reduce_scatter(send, recv, count, type, AIACC_SUM, world, nullptr, nullptr));
  if (what == "alltoall") check(aiacc_alltoall(send, recv, count, type, world, nullptr, nullptr));
  if (what == "gather") check(aiacc_gather(send, recv, count, type, 0, world, nullptr, nullptr));
  if (what == "scatter") check(aiacc_scatter(send, recv, count, type, 0, world, nullptr, nullptr));
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
  subject.call = [&what](float* send, float* recv, std::size_t count) { call(what, send, recv, count); };
  subject.barrier = [] { check(aiacc_barrier(AIACC_WORLD, nullptr, nullptr)); };
  subject.allocate = [shared](std::size_t count) { return allocate(shared, count); };
  subject.slowest = [](double mine) {
    double all = 0;
    check(aiacc_allreduce(&mine, &all, 1, AIACC_FLOAT64, AIACC_MAX, AIACC_WORLD, nullptr, nullptr));
    return all;
  };
  bench::run(subject, shared ? "shared" : "private", largest);
  check(aiacc_finalize());
  return 0;
}
