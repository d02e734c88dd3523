// The program that bench/windows measures for any MPI, compiled by its compiler wrapper.
//   bench NAME KINDS SIZES MESSAGES LATE_MS ROUNDS
#include <mpi.h>

#include "measure.h"

namespace {

const MPI_Comm kWorld = MPI_COMM_WORLD;
std::vector<MPI_Request> requests;
int other = 0;

MPI_Request* request(std::size_t i) {
  if (requests.size() <= i) requests.resize(2 * i + 1, MPI_REQUEST_NULL);
  return &requests[i];
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc != 7) return 2;
  bench::Subject subject;
  MPI_Comm_rank(kWorld, &subject.rank);
  other = 1 - subject.rank;
  subject.recv = [](unsigned char* into, std::size_t bytes, std::size_t i) {
    MPI_Irecv(into, static_cast<int>(bytes), MPI_BYTE, other, 0, kWorld, request(i));
  };
  subject.send = [](const unsigned char* from, std::size_t bytes, std::size_t i) {
    MPI_Isend(from, static_cast<int>(bytes), MPI_BYTE, other, 0, kWorld, request(i));
  };
  subject.recv_now = [](unsigned char* into, std::size_t bytes) {
    MPI_Recv(into, static_cast<int>(bytes), MPI_BYTE, other, 0, kWorld, MPI_STATUS_IGNORE);
  };
  subject.send_now = [](const unsigned char* from, std::size_t bytes) {
    MPI_Send(from, static_cast<int>(bytes), MPI_BYTE, other, 0, kWorld);
  };
  subject.wait_all = [](std::size_t count) {
    MPI_Waitall(static_cast<int>(count), requests.data(), MPI_STATUSES_IGNORE);
  };
  subject.barrier = [] { MPI_Barrier(kWorld); };
  subject.slowest = [](double mine) {
    double all = 0;
    MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, kWorld);
    return all;
  };
  subject.allocate = [](std::size_t bytes) {
    return static_cast<unsigned char*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096));
  };
  bench::run(subject, argv[1], argv[2], argv[3], std::strtoull(argv[4], nullptr, 10),
             std::chrono::milliseconds(std::atoi(argv[5])), std::atoi(argv[6]));
  MPI_Finalize();
  return 0;
}
