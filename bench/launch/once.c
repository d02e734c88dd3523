/* What bench/launch times: initialise, meet a barrier, exit. One source for aiacc and, with -DMPI, for its peers. */
#ifdef MPI
#include <mpi.h>
int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Barrier(MPI_COMM_WORLD);
  return MPI_Finalize();
}
#else
#include <aiacc/aiacc.h>
#include <stdio.h>
int main(void) {
  if (aiacc_init(NULL) == AIACC_OK && aiacc_barrier(AIACC_WORLD, NULL, NULL) == AIACC_OK &&
      aiacc_finalize() == AIACC_OK)
    return 0;
  fprintf(stderr, "%s\n", aiacc_last_error());
  return 3;
}
#endif
