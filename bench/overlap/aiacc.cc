// bench/overlap's subject through the C ABI: compiled against the installed tree.
//   bench NAME SIZES ROUNDS SECONDS
#include <aiacc/aiacc.h>

#include "measure.h"

namespace {

void check(aiacc_status_t status) {
  if (status == AIACC_OK) return;
  std::fprintf(stderr, "%s\n", aiacc_last_error());
  std::exit(1);
}

constexpr aiacc_group_t kWorld = AIACC_WORLD;
aiacc_request_t request = AIACC_NULL;

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  check(aiacc_init(nullptr));
  bench::Subject subject;
  check(aiacc_rank(kWorld, &subject.rank));
  check(aiacc_size(kWorld, &subject.size));
  subject.allreduce = [](float* send, float* recv, std::size_t count) {
    check(aiacc_allreduce(send, recv, count, AIACC_FLOAT32, AIACC_SUM, kWorld, nullptr, nullptr));
  };
  subject.start = [](float* send, float* recv, std::size_t count) {
    check(aiacc_allreduce(send, recv, count, AIACC_FLOAT32, AIACC_SUM, kWorld, nullptr, &request));
  };
  subject.wait = [] { check(aiacc_wait(request)); };
  subject.test = [] {
    const aiacc_status_t status = aiacc_test(request);
    if (status != AIACC_PENDING) check(status);
    return status != AIACC_PENDING;
  };
  subject.barrier = [] { check(aiacc_barrier(kWorld, nullptr, nullptr)); };
  subject.slowest = [](double mine) {
    double all = 0;
    check(aiacc_allreduce(&mine, &all, 1, AIACC_FLOAT64, AIACC_MAX, kWorld, nullptr, nullptr));
    return all;
  };
  bench::run(subject, argv[1], argv[2], std::atoi(argv[3]), std::atof(argv[4]));
  check(aiacc_finalize());
  return 0;
}
