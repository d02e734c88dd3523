"""Horovod's API for MXNet, on aiacc: `import aiacc.mxnet as hvd` in place of `import horovod.mxnet as hvd`."""
try:
    import mxnet as _mxnet  # noqa: F401
except ImportError as _error:
    raise ImportError("aiacc.mxnet needs MXNet 1.9, which is not installed for this Python: pip install mxnet==1.9.1 numpy==1.23.5") from _error
except AttributeError as _error:
    raise ImportError(f"MXNet cannot be imported with this version of numpy ({_error}): pip install numpy==1.23.5") from _error

from aiacc._horovod.basics import (aiacc_built, ccl_built, cross_rank, cross_size, cuda_built, ddl_built, gloo_built, gloo_enabled, init,
                                   is_homogeneous, is_initialized, local_rank, local_size, mpi_built, mpi_enabled, mpi_threads_supported, nccl_built,
                                   rank, rocm_built, shutdown, size, start_timeline, stop_timeline)
from aiacc._horovod.exceptions import HorovodInternalError
from aiacc._horovod.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from aiacc._horovod.util import check_extension, gpu_available, num_rank_is_power_2
from aiacc._version import __version__
from aiacc.mxnet.compression import Compression
from aiacc.mxnet.functions import allgather_object, broadcast_object, broadcast_parameters
from aiacc.mxnet.kvstore import KVStore, PerseusOp, create
from aiacc.mxnet.mpi_ops import (Adasum, Average, Max, Min, Product, Sum, allgather, allreduce, allreduce_, alltoall, barrier, broadcast, broadcast_,
                                 grouped_allgather, grouped_allreduce, grouped_allreduce_, grouped_reducescatter, reducescatter)
from aiacc.mxnet.optimizer import DistributedOptimizer
from aiacc.mxnet.sharded_softmax import ShardedSoftmax
from aiacc.mxnet.sync_batch_norm import PerseusSyncBatchNorm, SyncBatchNorm, sync_batch_norm_symbol
from aiacc.mxnet.trainer import DistributedTrainer

__all__ = [
    "Adasum", "Average", "Compression", "DistributedOptimizer", "DistributedTrainer", "HorovodInternalError", "KVStore", "Max", "Min", "PerseusOp",
    "PerseusSyncBatchNorm", "ProcessSet",
    "Product", "ShardedSoftmax", "Sum", "SyncBatchNorm", "__version__", "add_process_set", "aiacc_built", "allgather", "allgather_object", "allreduce", "allreduce_", "alltoall", "barrier",
    "broadcast", "broadcast_", "broadcast_object", "broadcast_parameters", "ccl_built", "check_extension", "create", "cross_rank", "cross_size", "cuda_built", "ddl_built",
    "global_process_set", "gloo_built", "gloo_enabled", "gpu_available", "grouped_allgather", "grouped_allreduce", "grouped_allreduce_", "grouped_reducescatter", "init",
    "is_homogeneous", "is_initialized", "local_rank", "local_size", "mpi_built", "mpi_enabled", "mpi_threads_supported", "nccl_built", "num_rank_is_power_2", "rank",
    "reducescatter", "remove_process_set", "rocm_built", "shutdown", "size", "start_timeline", "stop_timeline",
    "sync_batch_norm_symbol",
]
