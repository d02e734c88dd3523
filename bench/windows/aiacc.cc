// The program that bench/windows measures through the C ABI, compiled against the installed tree.
//   bench PLAN... MEMORY    (bench::Plan)
#include <aiacc/aiacc.h>

#include "measure.h"

namespace {

void check(aiacc_status_t status) {
  if (status == AIACC_OK) return;
  std::fprintf(stderr, "%s\n", aiacc_last_error());
  std::exit(1);
}

constexpr aiacc_group_t kWorld = AIACC_WORLD;
std::vector<aiacc_request_t> requests;
int other = 0;

aiacc_request_t* request(std::size_t i) {
  if (requests.size() <= i) requests.resize(2 * i + 1);
  return &requests[i];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 1 + bench::Plan::kWords + 1) return 2;
  const bool shared = std::string(argv[1 + bench::Plan::kWords]) == "shared";
  check(aiacc_init(nullptr));
  bench::Subject subject;
  check(aiacc_rank(kWorld, &subject.rank));
  other = 1 - subject.rank;
  subject.recv = [](bench::Bytes into, std::size_t bytes, std::size_t i) {
    check(aiacc_recv(into, bytes, AIACC_UINT8, other, 0, kWorld, nullptr, request(i)));
  };
  subject.send = [](bench::Bytes from, std::size_t bytes, std::size_t i) {
    check(aiacc_send(from, bytes, AIACC_UINT8, other, 0, kWorld, nullptr, request(i)));
  };
  subject.recv_now = [](bench::Bytes into, std::size_t bytes) {
    check(aiacc_recv(into, bytes, AIACC_UINT8, other, 0, kWorld, nullptr, nullptr));
  };
  subject.send_now = [](bench::Bytes from, std::size_t bytes) {
    check(aiacc_send(from, bytes, AIACC_UINT8, other, 0, kWorld, nullptr, nullptr));
  };
  subject.sendrecv = [](bench::Bytes from, bench::Bytes into, std::size_t bytes) {
    check(aiacc_sendrecv(from, bytes, other, 0, into, bytes, other, 0, AIACC_UINT8, kWorld, nullptr, nullptr));
  };
  subject.wait_all = [](std::size_t count) { check(aiacc_wait_all(count, requests.data(), AIACC_FOREVER)); };
  subject.barrier = [] { check(aiacc_barrier(kWorld, nullptr, nullptr)); };
  subject.slowest = [](double mine) {
    double all = 0;
    check(aiacc_allreduce(&mine, &all, 1, AIACC_FLOAT64, AIACC_MAX, kWorld, nullptr, nullptr));
    return all;
  };
  subject.allocate = [shared](std::size_t bytes) {
    void* memory = nullptr;
    if (shared) {
      check(aiacc_mem_alloc(AIACC_NULL, bytes, &memory));
    } else {
      memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    }
    return static_cast<bench::Bytes>(memory);
  };
  bench::run(subject, bench::Plan(argv + 1));
  check(aiacc_finalize());
  return 0;
}
