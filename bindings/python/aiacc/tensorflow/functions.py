"""Collectives on tensors and tf.IndexedSlices, and variables and objects from one rank to all."""
from __future__ import annotations

from typing import Any, Callable, List, Optional

import tensorflow as tf

from aiacc._arguments import several, text, whole
from aiacc._horovod.calls import allgather_object as _allgather_object
from aiacc._horovod.calls import broadcast_object as _broadcast_object
from aiacc._horovod.calls import handle_average_backwards_compatibility
from aiacc._horovod.operations import Average, Sum
from aiacc._horovod.process_sets import ProcessSet, global_process_set
from aiacc.tensorflow import mpi_ops, tensors
from aiacc.tensorflow._kernel import as_it_is
from aiacc.tensorflow.compression import Compression
from aiacc.tensorflow.compression import checked as checked_compression


@as_it_is
def allreduce(tensor: Any, average: Optional[bool] = None, device_dense: str = "", device_sparse: str = "", compression: Any = Compression.none,
              op: Optional[int] = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0, name: Optional[str] = None,
              process_set: ProcessSet = global_process_set, ignore_name_scope: bool = False) -> Any:
    """The reduction of the tensor over all ranks (the average, if nothing else is asked for). Of tf.IndexedSlices: rows of all ranks, which
    are divided by their number for the average. Differentiable. Devices are accepted: what travels does so from the host's memory."""
    chosen = handle_average_backwards_compatibility(op, average)
    checked_compression(compression)
    if isinstance(tensor, tf.IndexedSlices):
        if chosen not in (Average, Sum) or prescale_factor != 1.0 or postscale_factor != 1.0:
            raise NotImplementedError("an allreduce of tf.IndexedSlices is a sum or an average, without scales: give sparse_as_dense=True, or "
                                      "tf.convert_to_tensor of it")
        values = mpi_ops.allgather(tensor.values, None if name is None else f"{name}.values", ignore_name_scope, process_set)
        indices = mpi_ops.allgather(tensor.indices, None if name is None else f"{name}.indices", ignore_name_scope, process_set)
        if chosen == Average:
            values = values / tf.cast(process_set.size(), values.dtype)
        return tf.IndexedSlices(values, indices, tensor.dense_shape)
    travels, context = compression.compress(tensors.check(tensor))
    result, = mpi_ops._reduced([travels], name, chosen, prescale_factor, postscale_factor, process_set, ignore_name_scope)
    return compression.decompress(result, context)


@as_it_is
def grouped_allreduce(tensors: Any, average: Optional[bool] = None, device_dense: str = "", device_sparse: str = "", compression: Any = Compression.none,
                      op: Optional[int] = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                      process_set: ProcessSet = global_process_set, ignore_name_scope: bool = False, name: Optional[str] = None) -> List[tf.Tensor]:
    """Allreduce of several tensors as one operation; of several operations if there are tf.IndexedSlices among them. Differentiable."""
    chosen = handle_average_backwards_compatibility(op, average)
    checked_compression(compression)
    given = several("tensors", tensors, "a list of tensors")
    if not given:
        return []
    if any(isinstance(one, tf.IndexedSlices) for one in given):
        return [allreduce(one, device_dense=device_dense, compression=compression, op=chosen, prescale_factor=prescale_factor,
                          postscale_factor=postscale_factor, name=None if name is None else f"{name}.{i}", process_set=process_set,
                          ignore_name_scope=ignore_name_scope) for i, one in enumerate(given)]
    pairs = [compression.compress(one) for one in mpi_ops._checked_list(given)]
    results = mpi_ops._reduced([pair[0] for pair in pairs], name, chosen, prescale_factor, postscale_factor, process_set, ignore_name_scope)
    return [compression.decompress(one, context) for one, (_, context) in zip(results, pairs)]


@as_it_is
def reducescatter(tensor: Any, device_dense: str = "", compression: Any = Compression.none, op: int = Average, name: Optional[str] = None,
                  process_set: ProcessSet = global_process_set, ignore_name_scope: bool = False, prescale_factor: float = 1.0,
                  postscale_factor: float = 1.0) -> tf.Tensor:
    """This rank's rows of the reduction; where rows do not divide, lower ranks get one more. Differentiable."""
    checked_compression(compression)
    travels, context = compression.compress(tensors.check(tensor))
    result, = mpi_ops._reducescatter([travels], name, op, prescale_factor, postscale_factor, process_set, ignore_name_scope)
    return compression.decompress(result, context)


@as_it_is
def grouped_reducescatter(tensors: Any, device_dense: str = "", compression: Any = Compression.none, op: int = Average,
                          process_set: ProcessSet = global_process_set, ignore_name_scope: bool = False, prescale_factor: float = 1.0,
                          postscale_factor: float = 1.0, name: Optional[str] = None) -> List[tf.Tensor]:
    """Reducescatter of several tensors as one operation. Differentiable."""
    checked_compression(compression)
    if not several("tensors", tensors, "a list of tensors"):
        return []
    pairs = [compression.compress(one) for one in mpi_ops._checked_list(tensors)]
    results = mpi_ops._reducescatter([pair[0] for pair in pairs], name, op, prescale_factor, postscale_factor, process_set, ignore_name_scope)
    return [compression.decompress(one, context) for one, (_, context) in zip(results, pairs)]


# --- variables

def is_seed(variable: Any) -> bool:
    """Of Keras 3's random layers."""
    return str(getattr(variable, "path", "")).endswith("seed_generator_state")


@as_it_is
def broadcast_variables(variables: Any, root_rank: int, process_set: ProcessSet = global_process_set, inplace: bool = False) -> Any:
    """The root's values, in the variables of all ranks. In a graph of TensorFlow 1, the operation that does it."""
    found = several("variables", variables, "a list of variables")
    mpi_ops.root_in_set(root_rank, process_set)
    values = [getattr(one, "_value", one) for one in found]  # of Keras's variables
    if any(not callable(getattr(one, "assign", None)) for one in values):
        raise ValueError("variables is a list of variables, as model.variables is")
    moved = [one for one in values if tf.as_dtype(one.dtype).base_dtype in tensors.TYPES]
    rest = [one for one in values if tf.as_dtype(one.dtype).base_dtype not in tensors.TYPES]
    if rest:
        raise ValueError(f"variable '{rest[0].name}' is of {rest[0].dtype.name}, which no collective takes")
    names = [f"broadcast.{i}" for i in range(len(moved))]  # those of variables count what else a rank has made
    assigned = [one.assign(mpi_ops.broadcast(one, root_rank, name, process_set=process_set)) for one, name in zip(moved, names)]
    return None if tf.executing_eagerly() or tf.inside_function() else tf.group(*assigned)


@as_it_is
def broadcast_global_variables(root_rank: int) -> Any:
    """The operation that gives all ranks the root's values of all variables of a graph of TensorFlow 1."""
    if tf.executing_eagerly():
        raise RuntimeError("hvd.broadcast_global_variables() does not support eager execution. Please use "
                           "`hvd.broadcast_variables(<model/optimizer variables>)` instead.")
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Of a session of TensorFlow 1: all ranks begin with the root's variables."""

    def __init__(self, root_rank: int, device: str = "") -> None:
        super().__init__()
        self.root_rank, self.device = root_rank, device
        self.bcast_op: Any = None

    def begin(self) -> None:
        if self.bcast_op is None or self.bcast_op.graph is not tf.compat.v1.get_default_graph():
            self.bcast_op = broadcast_global_variables(self.root_rank)

    def after_create_session(self, session: Any, coord: Any) -> None:
        session.run(self.bcast_op)


# --- objects

def broadcast_object(obj: Any, root_rank: int = 0, session: Any = None, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> Any:
    """The root's object (pickled), on every rank. No session is needed."""
    return _broadcast_object(obj, root_rank, name, process_set)


def broadcast_object_fn(root_rank: int = 0, session: Any = None, name: Optional[str] = None,
                        process_set: ProcessSet = global_process_set) -> Callable[[Any], Any]:
    """A function of an object, as broadcast_object."""
    mpi_ops.root_in_set(root_rank, process_set)
    name = text("name", name)
    return lambda obj: _broadcast_object(obj, root_rank, name, process_set)


def allgather_object(obj: Any, session: Any = None, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> List[Any]:
    """The objects (pickled) of all ranks, in their order."""
    return _allgather_object(obj, name, process_set)


def check_num_rank_power_of_2(num_rank: int) -> bool:
    return whole("num_rank", num_rank) > 0 and num_rank & (num_rank - 1) == 0


