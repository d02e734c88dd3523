// The program that bench/outstanding measures through the C ABI, compiled against the installed tree.
//   bench NAME KIND COUNTS LATE_MS ROUNDS
#include <aiacc/aiacc.h>

#include "measure.h"

namespace {

void check(aiacc_status_t status) {
  if (status == AIACC_OK) return;
  std::fprintf(stderr, "%s\n", aiacc_last_error());
  std::exit(1);
}

constexpr aiacc_dtype_t kType = AIACC_FLOAT64;
constexpr aiacc_group_t kWorld = AIACC_WORLD;
std::vector<aiacc_request_t> requests;

aiacc_request_t* request(std::size_t i) {
  if (requests.size() <= i) requests.resize(2 * i + 1);
  return &requests[i];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  check(aiacc_init(nullptr));
  bench::Subject subject;
  check(aiacc_rank(kWorld, &subject.rank));
  check(aiacc_size(kWorld, &subject.size));
  subject.allreduce = [](double* send, double* recv, std::size_t i) {
    check(aiacc_allreduce(send, recv, 1, kType, AIACC_SUM, kWorld, nullptr, request(i)));
  };
  subject.recv = [](double* recv, int from, std::size_t i) {
    check(aiacc_recv(recv, 1, kType, from, static_cast<int>(i), kWorld, nullptr, request(i)));
  };
  subject.send = [](double* send, int to, std::size_t i, std::size_t tag) {
    check(aiacc_send(send, 1, kType, to, static_cast<int>(tag), kWorld, nullptr, request(i)));
  };
  subject.wait_all = [](std::size_t count) { check(aiacc_wait_all(count, requests.data(), AIACC_FOREVER)); };
  subject.barrier = [] { check(aiacc_barrier(kWorld, nullptr, nullptr)); };
  subject.slowest = [](double mine) {
    double all = 0;
    check(aiacc_allreduce(&mine, &all, 1, kType, AIACC_MAX, kWorld, nullptr, nullptr));
    return all;
  };
  bench::run(subject, argv[1], argv[2], argv[3], std::chrono::milliseconds(std::atoi(argv[4])), std::atoi(argv[5]));
  check(aiacc_finalize());
  return 0;
}
