"""The collectives of Horovod's MXNet API.

Those whose result has a shape that is known before return at once: the result is there for whoever reads the array. allgather and
alltoall, and operations in place on several arrays, return when they are done.
"""
from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple, Union

from mxnet.ndarray import NDArray

from aiacc._arguments import several, text
from aiacc._horovod import basics
from aiacc._horovod.basics import *  # noqa: F401,F403: Horovod's module has them too
from aiacc._horovod.calls import checked_splits, handle_average_backwards_compatibility, root_in_set, run
from aiacc._horovod.operations import Adasum, Average, Barrier, Max, Min, Product, Sum, checked_op, scales_of, shares
from aiacc._horovod.process_sets import ProcessSet, checked_set, global_process_set
from aiacc.mxnet import _engine, _operations as operations
from aiacc.mxnet import tensors as _tensors

Arrays = Sequence[NDArray]


def _checked_list(given: Any) -> List[NDArray]:
    found = several("tensors", given, "a list of NDArrays")
    if not found:
        raise ValueError("a group of tensors has at least one")
    return [_tensors.check(one, f"tensor {i} of the group") for i, one in enumerate(found)]


def _run(process_set: ProcessSet, operation: Any, arrays: Arrays) -> Any:
    """Returns when it is done."""
    for one in arrays:
        _tensors.settle(one)
    return run(process_set, operation, lambda output: output)


# --- allreduce

def _allreduce(tensor: NDArray, output: NDArray, average: Optional[bool], name: Optional[str], priority: int, prescale: float, postscale: float,
               process_set: ProcessSet, op: Optional[int]) -> NDArray:
    chosen = handle_average_backwards_compatibility(op, average)
    basics._known()
    checked_set(process_set)
    name, (prescale, postscale) = text("name", name), scales_of(prescale, postscale)
    if chosen != Adasum and name is not None and process_set.size() > 1 and not _engine._is_naive():
        _engine.start_named(process_set, name, tensor, output, chosen, prescale, postscale, priority)
    else:
        made = operations.Allreduce(name, [tensor], [output], chosen, prescale, postscale)
        _engine.start(process_set, made, [] if tensor is output else [tensor], [output], priority)
    return output


def allreduce(tensor: NDArray, average: Optional[bool] = None, name: Optional[str] = None, priority: int = 0, prescale_factor: float = 1.0,
              postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set, op: Optional[int] = None) -> NDArray:
    """The reduction of the tensor over all ranks, as a new one. With a name, ranks may call allreduces in different orders."""
    _tensors.check(tensor)
    return _allreduce(tensor, _tensors.like(tensor), average, name, priority, prescale_factor, postscale_factor, process_set, op)


def allreduce_(tensor: NDArray, average: Optional[bool] = None, name: Optional[str] = None, priority: int = 0, prescale_factor: float = 1.0,
               postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set, op: Optional[int] = None) -> NDArray:
    """As allreduce, in place."""
    _tensors.check(tensor)
    return _allreduce(tensor, tensor, average, name, priority, prescale_factor, postscale_factor, process_set, op)


def grouped_allreduce(tensors: Arrays, average: Optional[bool] = None, name: Optional[str] = None, priority: int = 0, prescale_factor: float = 1.0,
                      postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set, op: Optional[int] = None) -> List[NDArray]:
    """Allreduce of several tensors as one operation."""
    given = _checked_list(tensors)
    results = [_tensors.like(one) for one in given]
    made = operations.Allreduce(name, given, results, handle_average_backwards_compatibility(op, average), prescale_factor, postscale_factor)
    _engine.start(process_set, made, given, results, priority)
    return results


def grouped_allreduce_(tensors: Arrays, average: Optional[bool] = None, name: Optional[str] = None, priority: int = 0, prescale_factor: float = 1.0,
                       postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set, op: Optional[int] = None) -> List[NDArray]:
    """As grouped_allreduce, in place. Returns when it is done."""
    given = _checked_list(tensors)
    made = operations.Allreduce(name, given, given, handle_average_backwards_compatibility(op, average), prescale_factor, postscale_factor)
    _run(process_set, made, given)
    return given


# --- allgather

def allgather(tensor: NDArray, name: Optional[str] = None, priority: int = 0, process_set: ProcessSet = global_process_set) -> NDArray:
    """The rows (first dimension) of all ranks one after another. Ranks may have different numbers of rows."""
    _tensors.check(tensor)
    return _run(process_set, operations.Allgather(name, [tensor]), [tensor])[0]


def grouped_allgather(tensors: Arrays, name: Optional[str] = None, priority: int = 0, process_set: ProcessSet = global_process_set) -> List[NDArray]:
    given = _checked_list(tensors)
    return _run(process_set, operations.Allgather(name, given), given)


# --- broadcast

def broadcast(tensor: NDArray, root_rank: int, name: Optional[str] = None, priority: int = 0, process_set: ProcessSet = global_process_set) -> NDArray:
    """The root's tensor, as a new one. `root_rank` is a rank of the job, also with a process set."""
    _tensors.check(tensor)
    result = _tensors.like(tensor)
    made = operations.Broadcast(name, tensor, result, *root_in_set(root_rank, process_set))
    _engine.start(process_set, made, [tensor], [result], priority)
    return result


def broadcast_(tensor: NDArray, root_rank: int, name: Optional[str] = None, priority: int = 0, process_set: ProcessSet = global_process_set) -> NDArray:
    """As broadcast, in place."""
    _tensors.check(tensor)
    made = operations.Broadcast(name, tensor, tensor, *root_in_set(root_rank, process_set))
    _engine.start(process_set, made, [], [tensor], priority)
    return tensor


# --- alltoall

def alltoall(tensor: NDArray, splits: Any = None, name: Optional[str] = None, priority: int = 0,
             process_set: ProcessSet = global_process_set) -> Union[NDArray, Tuple[NDArray, NDArray]]:
    """splits[r] rows of the tensor go to rank r. What this rank got; with splits given, and how many rows of each rank."""
    _tensors.check(tensor)
    if isinstance(splits, NDArray) and _tensors.type_name(splits) not in ("int32", "int64"):
        raise ValueError(f"splits are {_tensors.type_name(splits)}: they are integers, of int32 or int64")
    listed = splits.asnumpy().tolist() if isinstance(splits, NDArray) else splits
    made = operations.Alltoall(name, tensor, checked_splits(tensor.shape[0], listed, checked_set(process_set).size()))
    result, received = _run(process_set, made, [tensor])
    return result if splits is None else (result, received)


# --- reducescatter

def _reducescatter(given: List[NDArray], name: Optional[str], op: int, priority: int, prescale: float, postscale: float,
                   process_set: ProcessSet) -> List[NDArray]:
    if any(not one.shape for one in given):
        raise ValueError("reducescatter of a scalar, which has no rows to divide: reshape it to (1,)")
    checked_set(process_set)
    results = [_tensors.rows_like(one, shares(one.shape[0], process_set.size())[process_set.rank()]) for one in given]
    made = operations.Reducescatter(name, given, checked_op(op), prescale, postscale, results)
    _engine.start(process_set, made, given, results, priority)
    return results


def reducescatter(tensor: NDArray, op: int = Average, name: Optional[str] = None, priority: int = 0, process_set: ProcessSet = global_process_set,
                  prescale_factor: float = 1.0, postscale_factor: float = 1.0) -> NDArray:
    """This rank's rows of the reduction; where rows do not divide, lower ranks get one more."""
    return _reducescatter([_tensors.check(tensor)], name, op, priority, prescale_factor, postscale_factor, process_set)[0]


def grouped_reducescatter(tensors: Arrays, op: int = Average, name: Optional[str] = None, priority: int = 0,
                          process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0, postscale_factor: float = 1.0) -> List[NDArray]:
    return _reducescatter(_checked_list(tensors), name, op, priority, prescale_factor, postscale_factor, process_set)


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns after all ranks of the set have called it. Operations of this rank that it follows are done then."""
    _run(process_set, Barrier(None), [])


__all__ = ["Adasum", "Average", "Max", "Min", "Product", "Sum", "allgather", "allreduce", "allreduce_", "alltoall", "barrier", "broadcast", "broadcast_",
           "grouped_allgather", "grouped_allreduce", "grouped_allreduce_", "grouped_reducescatter", "reducescatter"]
