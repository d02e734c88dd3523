// bench/host's subject for any MPI: compiled by the compiler wrapper of each.
//   bench NAME [LARGEST_BYTES [COLLECTIVE]]
#include <mpi.h>

#include <cstdlib>
#include <string>

#include "measure.h"

namespace {

void call(const std::string& what, float* send, float* recv, std::size_t elements) {
  const int count = static_cast<int>(elements);
  const MPI_Comm world = MPI_COMM_WORLD;
  if (what == "allreduce") MPI_Allreduce(MPI_IN_PLACE, recv, count, MPI_FLOAT, MPI_SUM, world);
  if (what == "broadcast") MPI_Bcast(recv, count, MPI_FLOAT, 0, world);
  if (what == "allgather") MPI_Allgather(send, count, MPI_FLOAT, recv, count, MPI_FLOAT, world);
  if (what == "reduce_scatter") MPI_Reduce_scatter_block(send, recv, count, MPI_FLOAT, MPI_SUM, world);
  if (what == "alltoall") MPI_Alltoall(send, count, MPI_FLOAT, recv, count, MPI_FLOAT, world);
  if (what == "gather") MPI_Gather(send, count, MPI_FLOAT, recv, count, MPI_FLOAT, 0, world);
  if (what == "scatter") MPI_Scatter(send, count, MPI_FLOAT, recv, count, MPI_FLOAT, 0, world);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const std::string what = argc > 3 ? argv[3] : "allreduce";
  bench::Subject subject;
  subject.collective = bench::find(what.c_str());
  MPI_Comm_rank(MPI_COMM_WORLD, &subject.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &subject.size);
  subject.call = [&what](float* send, float* recv, std::size_t count) { call(what, send, recv, count); };
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
