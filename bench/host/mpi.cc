// bench/host's subject for any MPI: compiled by the compiler wrapper of each.
#include <mpi.h>

#include <cstdlib>

#include "measure.h"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  bench::Subject subject;
  MPI_Comm_rank(MPI_COMM_WORLD, &subject.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &subject.size);
  subject.allreduce = [](float* data, std::size_t count) {
    MPI_Allreduce(MPI_IN_PLACE, data, static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  };
  subject.barrier = [] { MPI_Barrier(MPI_COMM_WORLD); };
  subject.allocate = [](std::size_t count) {
    return static_cast<float*>(std::aligned_alloc(4096, count * sizeof(float)));
  };
  subject.slowest = [](double mine) {
    double all = 0;
    MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return all;
  };
  const std::size_t largest = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : std::size_t{64} << 20;
  bench::run(subject, argc > 1 ? argv[1] : "mpi", largest);
  MPI_Finalize();
  return 0;
}
