// The program that bench/windows measures through the C ABI, compiled against the installed tree.
//   bench NAME KINDS SIZES MESSAGES LATE_MS ROUNDS MEMORY
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
  if (argc != 8) return 2;
  const bool shared = std::string(argv[7]) == "shared";
  check(aiacc_init(nullptr));
  bench::Subject subject;
  check(aiacc_rank(kWorld, &subject.rank));
  other = 1 - subject.rank;
  subject.recv = [](unsigned char* into, std::size_t bytes, std::size_t i) {
    check(aiacc_recv(into, bytes, AIACC_UINT8, other, 0, kWorld, nullptr, request(i)));
  };
  subject.send = [](const unsigned char* from, std::size_t bytes, std::size_t i) {
    check(aiacc_send(from, bytes, AIACC_UINT8, other, 0, kWorld, nullptr, request(i)));
  };
  subject.recv_now = [](unsigned char* into, std::size_t bytes) {
    check(aiacc_recv(into, bytes, AIACC_UINT8, other, 0, kWorld, nullptr, nullptr));
  };
  subject.send_now = [](const unsigned char* from, std::size_t bytes) {
    check(aiacc_send(from, bytes, AIACC_UINT8, other, 0, kWorld, nullptr, nullptr));
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
    return static_cast<unsigned char*>(memory);
  };
  bench::run(subject, argv[1], argv[2], argv[3], std::strtoull(argv[4], nullptr, 10),
             std::chrono::milliseconds(std::atoi(argv[5])), std::atoi(argv[6]));
  check(aiacc_finalize());
  return 0;
}
