"""Horovod's API for Keras, on aiacc: `import aiacc.tensorflow.keras as hvd` in place of `import horovod.tensorflow.keras as hvd`."""
from __future__ import annotations

from typing import Any, Dict, Optional

import tensorflow as _tf

from aiacc._horovod.process_sets import ProcessSet
from aiacc.tensorflow import (Adasum, Average, Compression, HorovodInternalError, Max, Min, Product, Sum,  # noqa: F401
                              SyncBatchNormalization, add_process_set, aiacc_built, allgather_object, broadcast_object, ccl_built, cross_rank, cross_size,
                              cuda_built, ddl_built, functions, global_process_set, gloo_built, gloo_enabled, init, is_homogeneous, is_initialized,
                              local_rank, local_size, mpi_built, mpi_enabled, mpi_ops, mpi_threads_supported, nccl_built, optimizer as _optimizer, rank,
                              remove_process_set, rocm_built, shutdown, size, start_timeline, stop_timeline)
from aiacc.tensorflow.keras import callbacks, elastic


def DistributedOptimizer(optimizer: Any, name: Optional[str] = None, device_dense: str = "", device_sparse: str = "", compression: Any = Compression.none,
                         sparse_as_dense: bool = False, gradient_predivide_factor: float = 1.0, op: int = Average, backward_passes_per_step: int = 1,
                         average_aggregated_gradients: bool = False, num_groups: int = 0, groups: Any = None,
                         process_set: ProcessSet = global_process_set, scale_local_gradients: bool = True) -> Any:
    """As aiacc.tensorflow.DistributedOptimizer, with the order of arguments that Horovod's has here."""
    return _optimizer.DistributedOptimizer(optimizer, name, False, device_dense, device_sparse, compression, sparse_as_dense, backward_passes_per_step, op,
                                           gradient_predivide_factor, average_aggregated_gradients, num_groups, groups, process_set,
                                           scale_local_gradients)


def PartialDistributedOptimizer(optimizer: Any, name: Optional[str] = None, device_dense: str = "", device_sparse: str = "", compression: Any = Compression.none,
                                sparse_as_dense: bool = False, gradient_predivide_factor: float = 1.0, op: int = Average, groups: Any = None,
                                process_set: ProcessSet = global_process_set, local_layers: Any = None, scale_local_gradients: bool = True) -> Any:
    """As DistributedOptimizer; gradients of the variables of `local_layers` stay this rank's."""
    return _optimizer.PartialDistributedOptimizer(optimizer, name, False, device_dense, device_sparse, compression, sparse_as_dense,
                                                  1, op, gradient_predivide_factor, False, 0, groups, process_set, scale_local_gradients,
                                                  local_layers=local_layers)


def _value(result: Any) -> Any:
    """In a graph of TensorFlow 1 by the session of Keras 2."""
    if _optimizer.is_in_graph_of_tensorflow_1():
        return _tf.compat.v1.keras.backend.get_session().run(result)
    return result.numpy() if hasattr(result, "numpy") else result


def allreduce(value: Any, name: Optional[str] = None, average: Optional[bool] = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
              op: Optional[int] = None, compression: Any = Compression.none) -> Any:
    """Of a value that tf.constant takes; the result is one of numpy."""
    return _value(functions.allreduce(_tf.constant(value), average=average, name=name, op=op, prescale_factor=prescale_factor,
                                      postscale_factor=postscale_factor, compression=compression))


def allgather(value: Any, name: Optional[str] = None) -> Any:
    return _value(mpi_ops.allgather(_tf.constant(value), name))


def broadcast(value: Any, root_rank: int, name: Optional[str] = None) -> Any:
    return _value(mpi_ops.broadcast(_tf.constant(value), root_rank, name))


def reducescatter(value: Any, name: Optional[str] = None, op: int = Average) -> Any:
    return _value(functions.reducescatter(_tf.constant(value), name=name, op=op))


def broadcast_global_variables(root_rank: int) -> Any:
    return _value(functions.broadcast_global_variables(root_rank))


def load_model(filepath: Any, custom_optimizers: Any = None, custom_objects: Optional[Dict[str, Any]] = None, compression: Any = Compression.none,
               legacy_opts: bool = False) -> Any:
    """A model that was saved, with its optimizer's state, whose optimizer is a DistributedOptimizer. `custom_optimizers`: classes of
    optimizers that Keras does not know."""
    known = {one.__name__: one for one in custom_optimizers or []}
    model = _tf.keras.models.load_model(filepath, custom_objects={**known, **(custom_objects or {})})
    if getattr(model, "optimizer", None) is not None and not hasattr(type(model.optimizer), "_aiacc_wrapped"):
        model.optimizer = DistributedOptimizer(model.optimizer, compression=compression)
    return model


__all__ = [
    "Adasum", "Average", "Compression", "DistributedOptimizer", "HorovodInternalError", "Max", "Min", "PartialDistributedOptimizer", "Product",
    "ProcessSet", "Sum", "SyncBatchNormalization", "add_process_set", "allgather", "allgather_object", "allreduce", "broadcast",
    "broadcast_global_variables", "broadcast_object", "callbacks", "cross_rank", "cross_size", "elastic", "global_process_set", "init",
    "is_homogeneous", "is_initialized", "load_model", "local_rank", "local_size", "rank", "reducescatter", "remove_process_set", "shutdown", "size",
    "start_timeline", "stop_timeline",
]
