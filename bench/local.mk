# bench: benchmarks, never tests; each has a goal `bench-NAME'.

EXTRA_DIST += bench/contest.py bench/launch/once.c bench/launch/run

# Launch beside Open MPI and MPICH: `make bench-launch [BENCH_FLAGS="--np 2,16" or "--hosts 4x1,16x4"]'.
bench-launch: stage
	@$(srcdir)/bench/launch/run $(stage)$(prefix) $(BENCH_FLAGS)
.PHONY: bench-launch

# A collective on this host beside Open MPI and MPICH: `make bench-host [BENCH_FLAGS="--ranks 2 --collective all"]'. The program
# below the C ABI is for those who tune the algorithms: `make bench_host_core', then --core shared.
EXTRA_PROGRAMS += bench_host_core
bench_host_core_SOURCES = bench/host/core.cc bench/host/measure.h
bench_host_core_LDADD = $(floors_up_to_collectives)
EXTRA_DIST += bench/host/aiacc.cc bench/host/mpi.cc bench/host/run
bench-host: stage
	@$(srcdir)/bench/host/run $(stage)$(prefix) $(BENCH_FLAGS)
.PHONY: bench-host

# A collective between hosts, which are network namespaces, beside Open MPI, MPICH and Gloo: `make bench-hosts'.
EXTRA_DIST += bench/hosts/gloo.py bench/hosts/run
bench-hosts: stage
	@$(srcdir)/bench/hosts/run $(stage)$(prefix) $(BENCH_FLAGS)
.PHONY: bench-hosts
