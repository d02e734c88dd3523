// bench/host's subject through the C ABI, started by aiaccrun: compiled against the installed tree.
//   bench shared|private [LARGEST_BYTES]
#include <aiacc/aiacc.h>

#include <cstdlib>
#include <cstring>

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

}  // namespace

int main(int argc, char** argv) {
  const bool shared = argc < 2 || std::strcmp(argv[1], "shared") == 0;
  const std::size_t largest = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : std::size_t{64} << 20;
  check(aiacc_init(nullptr));
  bench::Subject subject;
  check(aiacc_rank(AIACC_WORLD, &subject.rank));
  check(aiacc_size(AIACC_WORLD, &subject.size));
  subject.allreduce = [](float* data, std::size_t count) {
    check(aiacc_allreduce(data, data, count, AIACC_FLOAT32, AIACC_SUM, AIACC_WORLD, nullptr, nullptr));
  };
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
