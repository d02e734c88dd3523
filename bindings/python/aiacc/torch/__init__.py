"""Horovod's API for PyTorch, on aiacc: `import aiacc.torch as hvd` in place of `import horovod.torch as hvd`. The import also registers
the back end `aiacc` of torch.distributed."""
try:
    import torch as _torch
    import torch.distributed  # noqa: F401
except ImportError as _error:
    raise ImportError("aiacc.torch needs PyTorch, which is not installed for this Python: pip install torch, or apt-get install python3-torch") from _error

from aiacc._horovod.basics import (aiacc_built, ccl_built, cross_rank, cross_size, cuda_built, ddl_built, gloo_built, gloo_enabled, init,
                                is_homogeneous, is_initialized, local_rank, local_size, mpi_built, mpi_enabled, mpi_threads_supported, nccl_built,
                                rank, rocm_built, shutdown, size, start_timeline, stop_timeline)
from aiacc._horovod.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from aiacc._horovod.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from aiacc._horovod.util import check_extension, gpu_available, num_rank_is_power_2
from aiacc._version import __version__
from aiacc.torch import elastic
from aiacc.torch._dgc import DGC
from aiacc.torch.compression import Compression
from aiacc.torch.elastic.sampler import ElasticSampler
from aiacc.torch.functions import allgather_object, broadcast_object, broadcast_optimizer_state, broadcast_parameters
from aiacc.torch.gossip import Gossip
from aiacc.torch.kvstore import KVStore
from aiacc.torch.learning_rates import smooth_exponential_decay
from aiacc.torch.local_sgd import LocalSGD
from aiacc.torch.mpi_ops import (Adasum, Average, Max, Min, Product, Sum, allgather, allgather_async, allreduce, allreduce_, allreduce_async,
                                 allreduce_async_, alltoall, alltoall_async, barrier, broadcast, broadcast_, broadcast_async, broadcast_async_,
                                 grouped_allgather, grouped_allgather_async, grouped_allreduce, grouped_allreduce_, grouped_allreduce_async,
                                 grouped_allreduce_async_, grouped_reducescatter, grouped_reducescatter_async, join, poll, reducescatter,
                                 reducescatter_async, sparse_allreduce_async, synchronize)
from aiacc.torch.optimizer import DistributedOptimizer
from aiacc.torch.partial_fc import PartialFC, PartialFC_V2
from aiacc.torch.replicated_vars import ReplicatedVarsOptimizer
from aiacc.torch.sharded_softmax import ShardedSoftmax
from aiacc.torch.sync_batch_norm import SyncBatchNorm

if _torch.distributed.is_available():  # not in every build of torch
    from aiacc.torch.backend import register as _register
    _register()

__all__ = [
    "Adasum", "Average", "Compression", "DGC", "DistributedOptimizer", "ElasticSampler", "Gossip", "HorovodInternalError", "HostsUpdatedInterrupt", "KVStore", "LocalSGD", "Max", "Min",
    "PartialFC", "PartialFC_V2", "ProcessSet", "Product", "ReplicatedVarsOptimizer", "ShardedSoftmax", "Sum", "SyncBatchNorm", "__version__",
    "add_process_set", "aiacc_built",
    "allgather", "allgather_async", "allgather_object", "allreduce", "allreduce_", "allreduce_async", "allreduce_async_", "alltoall", "alltoall_async",
    "barrier", "broadcast", "broadcast_", "broadcast_async", "broadcast_async_", "broadcast_object", "broadcast_optimizer_state",
    "broadcast_parameters", "ccl_built", "check_extension", "cross_rank", "cross_size", "cuda_built", "ddl_built", "elastic", "global_process_set", "gloo_built",
    "gloo_enabled", "gpu_available", "grouped_allgather", "grouped_allgather_async", "grouped_allreduce", "grouped_allreduce_", "grouped_allreduce_async",
    "grouped_allreduce_async_", "grouped_reducescatter", "grouped_reducescatter_async", "init", "is_homogeneous", "is_initialized", "join",
    "local_rank", "local_size", "mpi_built", "mpi_enabled", "mpi_threads_supported", "nccl_built", "num_rank_is_power_2", "poll", "rank", "reducescatter",
    "reducescatter_async", "remove_process_set", "rocm_built", "shutdown", "size", "smooth_exponential_decay", "sparse_allreduce_async",
    "start_timeline", "stop_timeline", "synchronize",
]
