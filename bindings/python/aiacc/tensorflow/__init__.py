"""Horovod's API for TensorFlow, on aiacc: `import aiacc.tensorflow as hvd` in place of `import horovod.tensorflow as hvd`."""
try:
    import tensorflow as _tensorflow  # noqa: F401
except ImportError as _error:
    raise ImportError("aiacc.tensorflow needs TensorFlow 2.15 or newer, which is not installed for this Python: pip install tensorflow") from _error

from aiacc._horovod.basics import (aiacc_built, ccl_built, cross_rank, cross_size, cuda_built, ddl_built, gloo_built, gloo_enabled, init,
                                   is_homogeneous, is_initialized, local_rank, local_size, mpi_built, mpi_enabled, mpi_threads_supported, nccl_built,
                                   rank, rocm_built, shutdown, size, start_timeline, stop_timeline)
from aiacc._horovod.exceptions import HorovodInternalError
from aiacc._horovod.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from aiacc._horovod.util import check_extension, gpu_available
from aiacc._version import __version__
from aiacc.tensorflow import elastic
from aiacc.tensorflow.compression import Compression
from aiacc.tensorflow.functions import (BroadcastGlobalVariablesHook, allgather_object, allreduce, broadcast_global_variables, broadcast_object,
                                        broadcast_object_fn, broadcast_variables, check_num_rank_power_of_2, grouped_allreduce, grouped_reducescatter,
                                        reducescatter)
from aiacc.tensorflow.gradient_tape import DistributedGradientTape, PartialDistributedGradientTape
from aiacc.tensorflow.mpi_ops import (Adasum, Average, Max, Min, Product, Sum, allgather, alltoall, broadcast, broadcast_, grouped_allgather,
                                      handle_average_backwards_compatibility, join, local_rank_op, local_size_op, process_set_included_op, rank_op,
                                      size_op)
from aiacc.tensorflow.optimizer import DistributedOptimizer, PartialDistributedOptimizer
from aiacc.tensorflow.sync_batch_norm import SyncBatchNormalization

__all__ = [
    "Adasum", "Average", "BroadcastGlobalVariablesHook", "Compression", "DistributedGradientTape", "DistributedOptimizer", "HorovodInternalError",
    "Max", "Min", "PartialDistributedGradientTape", "PartialDistributedOptimizer", "ProcessSet", "Product", "Sum", "SyncBatchNormalization",
    "__version__", "add_process_set", "aiacc_built", "allgather", "allgather_object", "allreduce", "alltoall", "broadcast", "broadcast_",
    "broadcast_global_variables", "broadcast_object", "broadcast_object_fn", "broadcast_variables", "ccl_built", "check_extension",
    "check_num_rank_power_of_2", "cross_rank", "cross_size", "cuda_built", "ddl_built", "elastic", "global_process_set", "gloo_built", "gloo_enabled",
    "gpu_available", "grouped_allgather", "grouped_allreduce", "grouped_reducescatter", "handle_average_backwards_compatibility", "init",
    "is_homogeneous", "is_initialized", "join", "local_rank", "local_rank_op", "local_size", "local_size_op", "mpi_built", "mpi_enabled",
    "mpi_threads_supported", "nccl_built", "process_set_included_op", "rank", "rank_op", "reducescatter", "remove_process_set", "rocm_built",
    "shutdown", "size", "size_op", "start_timeline", "stop_timeline",
]
