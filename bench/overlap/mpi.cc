// bench/overlap's subject for any MPI: compiled by the compiler wrapper of each.
//   bench NAME SIZES ROUNDS SECONDS
#include <mpi.h>

#include "measure.h"

namespace {

const MPI_Comm kWorld = MPI_COMM_WORLD;
MPI_Request request = MPI_REQUEST_NULL;

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc != 5) return 2;
  bench::Subject subject;
  MPI_Comm_rank(kWorld, &subject.rank);
  MPI_Comm_size(kWorld, &subject.size);
  subject.allreduce = [](float* send, float* recv, std::size_t count) {
    MPI_Allreduce(send, recv, static_cast<int>(count), MPI_FLOAT, MPI_SUM, kWorld);
  };
  subject.start = [](float* send, float* recv, std::size_t count) {
    MPI_Iallreduce(send, recv, static_cast<int>(count), MPI_FLOAT, MPI_SUM, kWorld, &request);
  };
  subject.wait = [] { MPI_Wait(&request, MPI_STATUS_IGNORE); };
  subject.test = [] {
    int done = 0;
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    return done != 0;
  };
  subject.barrier = [] { MPI_Barrier(kWorld); };
  subject.slowest = [](double mine) {
    double all = 0;
    MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, kWorld);
    return all;
  };
  bench::run(subject, argv[1], argv[2], std::atoi(argv[3]), std::atof(argv[4]));
  MPI_Finalize();
  return 0;
}
