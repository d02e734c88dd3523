"""The operations on NDArrays."""
from __future__ import annotations

from aiacc._horovod import operations
from aiacc.mxnet import tensors

Allreduce, Allgather, Broadcast, Alltoall, Reducescatter = operations.of_framework(
    tensors, operations.Allreduce, operations.Allgather, operations.Broadcast, operations.Alltoall, operations.Reducescatter)
