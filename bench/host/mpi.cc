// The program that bench/host measures for any MPI, compiled by its compiler wrapper.
//   bench NAME [LARGEST_BYTES [COLLECTIVE [PAUSE_US]]]
#include <mpi.h>

#include <cstdlib>
#include <string>

#include "measure.h"

namespace {

const MPI_Comm kWorld = MPI_COMM_WORLD;

using Call = void (*)(float* send, float* recv, std::size_t elements);

// Chosen once, because a call of 8 bytes takes less time than a comparison of their names.
Call call_of(const std::string& what) {
  if (what == "broadcast")
    return [](float*, float* recv, std::size_t elements) {
      MPI_Bcast(recv, static_cast<int>(elements), MPI_FLOAT, 0, kWorld);
    };
  if (what == "reduce")
    return [](float* send, float* recv, std::size_t elements) {
      MPI_Reduce(send, recv, static_cast<int>(elements), MPI_FLOAT, MPI_SUM, 0, kWorld);
    };
  if (what == "allgather")
    return [](float* send, float* recv, std::size_t elements) {
      const int count = static_cast<int>(elements);
      MPI_Allgather(send, count, MPI_FLOAT, recv, count, MPI_FLOAT, kWorld);
    };
  if (what == "reduce_scatter")
    return [](float* send, float* recv, std::size_t elements) {
      MPI_Reduce_scatter_block(send, recv, static_cast<int>(elements), MPI_FLOAT, MPI_SUM, kWorld);
    };
  if (what == "alltoall")
    return [](float* send, float* recv, std::size_t elements) {
      const int count = static_cast<int>(elements);
      MPI_Alltoall(send, count, MPI_FLOAT, recv, count, MPI_FLOAT, kWorld);
    };
  if (what == "gather")
    return [](float* send, float* recv, std::size_t elements) {
      const int count = static_cast<int>(elements);
      MPI_Gather(send, count, MPI_FLOAT, recv, count, MPI_FLOAT, 0, kWorld);
    };
  if (what == "scatter")
    return [](float* send, float* recv, std::size_t elements) {
      const int count = static_cast<int>(elements);
      MPI_Scatter(send, count, MPI_FLOAT, recv, count, MPI_FLOAT, 0, kWorld);
    };
  return [](float*, float* recv, std::size_t elements) {
    MPI_Allreduce(MPI_IN_PLACE, recv, static_cast<int>(elements), MPI_FLOAT, MPI_SUM, kWorld);
  };
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const std::string what = argc > 3 ? argv[3] : "allreduce";
  bench::Subject subject;
  subject.collective = bench::find(what.c_str());
  MPI_Comm_rank(MPI_COMM_WORLD, &subject.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &subject.size);
  subject.call = call_of(what);
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
  subject.back_to_back = argc > 5;
  if (argc > 4) subject.pause = std::chrono::microseconds(std::strtoull(argv[4], nullptr, 10));
  bench::run(subject, argc > 1 ? argv[1] : "mpi", largest);
  MPI_Finalize();
  return 0;
}
