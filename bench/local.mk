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
bench_host_core_CXXFLAGS = $(program_flags)
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

# Short calls of torch.distributed: a rank that aiaccrun or torchrun starts.
EXTRA_DIST += bench/torch/calls.py

# How long a fresh clone takes to build, and a change of it: `make bench-build [BENCH_FLAGS=--check]'.
EXTRA_DIST += bench/build/run
bench-build:
	@$(srcdir)/bench/build/run $(BENCH_FLAGS)
.PHONY: bench-build
# Thousands of operations under way at once, all in time and with a rank that is late, on one host and on two, beside Open MPI and
# MPICH: `make bench-outstanding [BENCH_FLAGS="--counts 64,4096 --late 1000"]'.
EXTRA_DIST += bench/outstanding/aiacc.cc bench/outstanding/measure.h bench/outstanding/mpi.cc bench/outstanding/run
bench-outstanding: stage
	@$(srcdir)/bench/outstanding/run $(stage)$(prefix) $(BENCH_FLAGS)
.PHONY: bench-outstanding
# Windows of messages on this host or, with --hosts 2, between two, and messages one by one, beside Open MPI and MPICH; with these flags
# as OSU's and Intel's benchmarks:
# `make bench-windows [BENCH_FLAGS="--kinds stream,both,pingpong,sendrecv,exchange --sizes 8,4096,1048576 --loops 100 --buffers one"]'.
EXTRA_DIST += bench/windows/aiacc.cc bench/windows/measure.h bench/windows/mpi.cc bench/windows/run
bench-windows: stage
	@$(srcdir)/bench/windows/run $(stage)$(prefix) $(BENCH_FLAGS)
.PHONY: bench-windows
# What authenticating messages between hosts costs a core, beside the plain path: `make bench-wire'. No network but loopback.
EXTRA_PROGRAMS += bench_wire_integrity
bench_wire_integrity_SOURCES = bench/wire/integrity.cc
bench_wire_integrity_LDADD = $(SODIUM_LIBS)
bench-wire: bench_wire_integrity
	@./bench_wire_integrity
.PHONY: bench-wire
# How many instructions a message of 8 bytes and one back take in user space, by callgrind: `make bench-messages'.
EXTRA_PROGRAMS += bench_wire_pair
bench_wire_pair_SOURCES = bench/wire/pair.cc
bench_wire_pair_CXXFLAGS = $(program_flags)
bench_wire_pair_LDADD = $(floors_up_to_transports)
EXTRA_DIST += bench/wire/instructions
bench-messages: bench_wire_pair
	@$(srcdir)/bench/wire/instructions ./bench_wire_pair
.PHONY: bench-messages
# An asynchronous allreduce beside computation of equal length, waiting and testing, beside Open MPI and MPICH:
# `make bench-overlap [BENCH_FLAGS="--ranks 2 --sizes 8,65536"]'.
EXTRA_DIST += bench/overlap/aiacc.cc bench/overlap/measure.h bench/overlap/mpi.cc bench/overlap/run
bench-overlap: stage
	@$(srcdir)/bench/overlap/run $(stage)$(prefix) $(BENCH_FLAGS)
.PHONY: bench-overlap
# Training steps with the gradients of a model, beside DistributedDataParallel on Gloo and Horovod, where their environments are:
# `make torch-venv horovod-venv bench-gradients [BENCH_FLAGS="--places 2x1,4x1 --rates 1gbit --compute 0.3"]'.
EXTRA_DIST += \
	bench/gradients/bound.py \
	bench/gradients/horovod-venv \
	bench/gradients/horovod_world.py \
	bench/gradients/overhead \
	bench/gradients/priorities \
	bench/gradients/run \
	bench/gradients/shapes.py \
	bench/gradients/step.py \
	bench/gradients/subjects.py
horovod_venv = $(abs_builddir)/horovod-venv
bench-gradients: stage
	@$(srcdir)/bench/gradients/run $(stage)$(prefix) --python $(torch_venv)/bin/python --horovod $(horovod_venv)/bin/python $(BENCH_FLAGS)
# What the engine costs a rank that is alone: `make bench-gradient-engine [BENCH_FLAGS="--models resnet50,bert"]'.
bench-gradient-engine: stage
	@$(srcdir)/bench/gradients/overhead $(stage)$(prefix) $(BENCH_FLAGS)
# What priorities of gradients are worth: `make bench-gradient-priorities [BENCH_FLAGS="--model resnet50 --rate 10gbit"]'.
bench-gradient-priorities: stage
	@$(srcdir)/bench/gradients/priorities $(stage)$(prefix) $(BENCH_FLAGS)
horovod-venv:
	@$(srcdir)/bench/gradients/horovod-venv $(horovod_venv)
.PHONY: bench-gradients bench-gradient-engine bench-gradient-priorities horovod-venv
# A SyncBN layer beside the same layer by bare allreduces, with the same passes over the batch, and beside torch's formula over Gloo, on
# this host and between hosts: `make bench-syncbn [BENCH_FLAGS="--python torch-venv/bin/python --places 2,2x1"]'. `make check' builds it for
# tests/docs_test.py.
check_PROGRAMS += bench_syncbn
bench_syncbn_SOURCES = bench/syncbn/aiacc.cc bench/syncbn/parts.cc bench/syncbn/parts.h
# Not installed, so its loops have the instructions of this processor, as those of the layer do.
bench_syncbn_CXXFLAGS = $(kernel_flags) -O3 -fno-math-errno -march=native -Wno-unknown-pragmas
bench_syncbn_LDADD = libaiacc.la $(floors_up_to_groupcomm)
EXTRA_DIST += bench/syncbn/gloo.py bench/syncbn/run
bench-syncbn: stage bench_syncbn
	@$(srcdir)/bench/syncbn/run $(stage)$(prefix) $(BENCH_FLAGS)
.PHONY: bench-syncbn
# Pushes and pulls of the key-value store on this host, beside MXNet's dist_sync (ps-lite): `make bench-kvstore
# [BENCH_FLAGS="--mxnet mxnet-venv/bin/python --sizes 1K,64M"]'.
EXTRA_DIST += bench/kvstore/aiacc_steps.py bench/kvstore/pslite_steps.py bench/kvstore/run bench/kvstore/sizes.py
bench-kvstore: stage
	@$(srcdir)/bench/kvstore/run $(stage)$(prefix) $(BENCH_FLAGS)
.PHONY: bench-kvstore
# A classifier with its classes split over ranks beside a data-parallel one, on this host and between two: `make bench-softmax
# BENCH_FLAGS="--python torch-venv/bin/python [--classes 100000 --places 2,2x1]"'.
EXTRA_DIST += bench/softmax/run bench/softmax/step.py
bench-softmax: stage
	@$(srcdir)/bench/softmax/run $(stage)$(prefix) $(BENCH_FLAGS)
.PHONY: bench-softmax
# The sparse gradient of an embedding beside Gloo's sparse allreduce, on this host and between hosts: `make bench-rows
# BENCH_FLAGS="--python torch-venv/bin/python [--tables 100000x64:4096 --places 2,2x1]"'.
EXTRA_DIST += bench/rows/run bench/rows/step.py
bench-rows: stage
	@$(srcdir)/bench/rows/run $(stage)$(prefix) $(BENCH_FLAGS)
.PHONY: bench-rows
# Steps of TensorFlow with the gradients of a model beside tf.distribute's MultiWorkerMirroredStrategy, on this host and between hosts:
# `make bench-tensorflow BENCH_FLAGS="--python tensorflow-venv/bin/python [--places 2,2x1 --compute 0]"'.
EXTRA_DIST += bench/tensorflow/run bench/tensorflow/step.py
bench-tensorflow: stage
	@$(srcdir)/bench/tensorflow/run $(stage)$(prefix) $(BENCH_FLAGS)
.PHONY: bench-tensorflow
# Messages between two ranks over UCX and libfabric beside ucx_perftest, fi_pingpong and fabtests, over the same wires:
# `make bench-networks [BENCH_FLAGS="--libraries ucx --wires tcp --rounds 5"]'.
EXTRA_DIST += bench/networks/pair.cc bench/networks/run
bench-networks: stage
	@$(srcdir)/bench/networks/run $(stage)$(prefix) $(BENCH_FLAGS)
.PHONY: bench-networks
