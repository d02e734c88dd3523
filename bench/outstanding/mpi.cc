// The program that bench/outstanding measures for any MPI, compiled by its compiler wrapper.
//   bench NAME KIND COUNTS LATE_MS ROUNDS
#include <mpi.h>

#include "measure.h"

namespace {

const MPI_Comm kWorld = MPI_COMM_WORLD;
std::vector<MPI_Request> requests;

MPI_Request* request(std::size_t i) {
  if (requests.size() <= i) requests.resize(2 * i + 1, MPI_REQUEST_NULL);
  return &requests[i];
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc != 6) return 2;
  bench::Subject subject;
  MPI_Comm_rank(kWorld, &subject.rank);
  MPI_Comm_size(kWorld, &subject.size);
  subject.allreduce = [](double* send, double* recv, std::size_t i) {
    MPI_Iallreduce(send, recv, 1, MPI_DOUBLE, MPI_SUM, kWorld, request(i));
  };
  subject.recv = [](double* recv, int from, std::size_t i) {
    MPI_Irecv(recv, 1, MPI_DOUBLE, from, static_cast<int>(i), kWorld, request(i));
  };
  subject.send = [](double* send, int to, std::size_t i, std::size_t tag) {
    MPI_Isend(send, 1, MPI_DOUBLE, to, static_cast<int>(tag), kWorld, request(i));
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
  bench::run(subject, argv[1], argv[2], argv[3], std::chrono::milliseconds(std::atoi(argv[4])), std::atoi(argv[5]));
  MPI_Finalize();
  return 0;
}
