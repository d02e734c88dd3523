// The program that bench/windows measures for any MPI, compiled by its compiler wrapper.
//   bench PLAN...    (bench::Plan)
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
  if (argc != 1 + bench::Plan::kWords) return 2;
  bench::Subject subject;
  MPI_Comm_rank(kWorld, &subject.rank);
  other = 1 - subject.rank;
  subject.recv = [](bench::Bytes into, std::size_t bytes, std::size_t i) {
    MPI_Irecv(into, static_cast<int>(bytes), MPI_BYTE, other, 0, kWorld, request(i));
  };
  subject.send = [](bench::Bytes from, std::size_t bytes, std::size_t i) {
    MPI_Isend(from, static_cast<int>(bytes), MPI_BYTE, other, 0, kWorld, request(i));
  };
  subject.recv_now = [](bench::Bytes into, std::size_t bytes) {
    MPI_Recv(into, static_cast<int>(bytes), MPI_BYTE, other, 0, kWorld, MPI_STATUS_IGNORE);
  };
  subject.send_now = [](bench::Bytes from, std::size_t bytes) {
    MPI_Send(from, static_cast<int>(bytes), MPI_BYTE, other, 0, kWorld);
  };
  subject.sendrecv = [](bench::Bytes from, bench::Bytes into, std::size_t bytes) {
    MPI_Sendrecv(from, static_cast<int>(bytes), MPI_BYTE, other, 0, into, static_cast<int>(bytes), MPI_BYTE, other, 0,
                 kWorld, MPI_STATUS_IGNORE);
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
    return static_cast<bench::Bytes>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096));
  };
  bench::run(subject, bench::Plan(argv + 1));
  MPI_Finalize();
  return 0;
}
