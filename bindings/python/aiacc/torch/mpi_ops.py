"""The collectives of Horovod's torch API. Tensors that have gaps are accepted too, and those of other devices than the CPU, which travel by
way of the host's memory."""
from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence, Tuple

import torch

from aiacc._arguments import several, text
from aiacc._horovod import basics, handles, named
from aiacc._horovod.basics import *  # noqa: F401,F403: Horovod's module has them too
from aiacc._horovod.calls import checked_splits, handle_average_backwards_compatibility
from aiacc._horovod.calls import begin as _begin  # noqa: F401
from aiacc._horovod.calls import root_in_set as _root_in_set
from aiacc._horovod.calls import run as _run
from aiacc._horovod.calls import start as _start
from aiacc._horovod.channel import Operation
from aiacc._horovod.exceptions import HorovodInternalError  # noqa: F401
from aiacc._horovod.handles import poll, synchronize
from aiacc._horovod.joining import join as _join
from aiacc._horovod.process_sets import ProcessSet, _joins_in_model_order, checked_set, global_process_set
from aiacc.gradients import Wire
from aiacc.torch import _operations as operations
from aiacc.torch import tensors as _tensors
from aiacc.torch._operations import Adasum, Average, Join, Max, Min, Product, Sum, checked_op

_basics = basics
_forget_handles = handles.forget_all
Tensors = Sequence[torch.Tensor]
_FEW = 1024  # elements, which fit into the packets of one message in 16 bits and in 32


def _checked_list(given: Any) -> List[torch.Tensor]:
    found = several("tensors", given, "a list of tensors")
    if not found:
        raise ValueError("a group of tensors has at least one")
    return [_tensors.check(one, f"tensor {i} of the group") for i, one in enumerate(found)]


def _where_given(outputs: Sequence[torch.Tensor], given: Sequence[torch.Tensor]) -> List[torch.Tensor]:
    """Results on the devices from which their tensors came."""
    return [output.to(one.device) for output, one in zip(outputs, given)]


# --- allreduce

def _allreduce(given: List[torch.Tensor], outputs: Optional[List[torch.Tensor]], single: bool, name: Optional[str], average: Optional[bool],
               op: Optional[int], prescale: float, postscale: float) -> Tuple[Operation, Callable[[Any], Any]]:
    results = outputs if outputs is not None else [_tensors.result_like(one) for one in given]
    made = operations.Allreduce(name, given, results, handle_average_backwards_compatibility(op, average), prescale, postscale)
    return made, lambda _: results[0] if single else results


def _start_allreduce(tensor: torch.Tensor, output: Optional[torch.Tensor], average: Optional[bool], name: Optional[str], op: Optional[int],
                     prescale: float, postscale: float, process_set: ProcessSet) -> int:
    if not _is_on_engine(name, op, process_set):
        return _start(process_set, *_allreduce([tensor], None if output is None else [output], True, name, average, op, prescale, postscale))
    return _start_named(tensor, output, str(name), handle_average_backwards_compatibility(op, average), prescale, postscale, process_set)


def _is_on_engine(name: Optional[str], op: Optional[int], process_set: ProcessSet) -> bool:
    """Sums and averages of one tensor with a name, whether they block or not, so that one that blocks meets another that does not. The engine
    has zeros for ranks that have joined, which no other operation goes on with."""
    return bool(text("name", name)) and (op is None or checked_op(op) in (Average, Sum))


def _wire(tensor: torch.Tensor, op: int) -> Wire:
    """Counts, losses and the like travel as they are whatever AIACC_ALLREDUCE_DTYPE says: they would lose digits, and save no time."""
    return Wire.FLOAT32 if tensor.dtype == torch.float32 and op in (Average, Sum) and tensor.numel() < _FEW else Wire.DEFAULT


def _start_named(tensor: torch.Tensor, output: Optional[torch.Tensor], name: str, op: int, prescale: float, postscale: float,
                 process_set: ProcessSet, wire: Optional[Wire] = None) -> int:
    basics._known()
    prescale, postscale = operations.scales_of(prescale, postscale)
    checked_set(process_set)._channel()._check_open()  # which refuses those that are no members
    key = (process_set.process_set_id, operations.Allreduce.kind, name)
    handles.take_name(key)
    try:
        result = _tensors.result_like(tensor) if output is None else output
        pending = process_set._named(_tensors).start(name, tensor, result, op, prescale, postscale, named.PATIENCE_S,
                                                     _wire(tensor, op) if wire is None else wire)
    except BaseException:
        handles.give_back_name(key)
        raise
    pending.key = key
    return handles.add(pending)


def allreduce_async(tensor: torch.Tensor, average: Optional[bool] = None, name: Optional[str] = None, op: Optional[int] = None,
                    prescale_factor: float = 1.0, postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set) -> int:
    """The reduction of the tensor over all ranks, as a new tensor: a handle for poll and synchronize."""
    _tensors.check(tensor)
    return _start_allreduce(tensor, None, average, name, op, prescale_factor, postscale_factor, process_set)


def allreduce_async_(tensor: torch.Tensor, average: Optional[bool] = None, name: Optional[str] = None, op: Optional[int] = None,
                     prescale_factor: float = 1.0, postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set) -> int:
    """As allreduce_async, in place."""
    _tensors.check(tensor)
    return _start_allreduce(tensor, tensor, average, name, op, prescale_factor, postscale_factor, process_set)


def allreduce_(tensor: torch.Tensor, average: Optional[bool] = None, name: Optional[str] = None, op: Optional[int] = None,
               prescale_factor: float = 1.0, postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """As allreduce, in place and without a gradient."""
    _tensors.check(tensor)
    if not _is_on_engine(name, op, process_set):
        return _run(process_set, *_allreduce([tensor], [tensor], True, name, average, op, prescale_factor, postscale_factor))
    chosen = handle_average_backwards_compatibility(op, average)
    return synchronize(_start_named(tensor, tensor, str(name), chosen, prescale_factor, postscale_factor, process_set))


def grouped_allreduce_async(tensors: Tensors, average: Optional[bool] = None, name: Optional[str] = None, op: Optional[int] = None,
                            prescale_factor: float = 1.0, postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set) -> int:
    """Allreduce of several tensors as one operation."""
    return _start(process_set, *_allreduce(_checked_list(tensors), None, False, name, average, op, prescale_factor, postscale_factor))


def grouped_allreduce_async_(tensors: Tensors, average: Optional[bool] = None, name: Optional[str] = None, op: Optional[int] = None,
                             prescale_factor: float = 1.0, postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set) -> int:
    """As grouped_allreduce_async, in place."""
    given = _checked_list(tensors)
    return _start(process_set, *_allreduce(given, given, False, name, average, op, prescale_factor, postscale_factor))


def grouped_allreduce_(tensors: Tensors, average: Optional[bool] = None, name: Optional[str] = None, op: Optional[int] = None,
                       prescale_factor: float = 1.0, postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set) -> List[torch.Tensor]:
    """As grouped_allreduce, in place and without gradients."""
    given = _checked_list(tensors)
    return _run(process_set, *_allreduce(given, given, False, name, average, op, prescale_factor, postscale_factor))


def _run_allreduce(given: List[torch.Tensor], name: Optional[str], op: int, prescale: float, postscale: float,
                   process_set: ProcessSet) -> List[torch.Tensor]:
    """Of a group."""
    return _run(process_set, *_allreduce(given, None, False, name, None, op, prescale, postscale))


def _run_single_allreduce(given: torch.Tensor, name: Optional[str], op: int, prescale: float, postscale: float, process_set: ProcessSet) -> torch.Tensor:
    if not _is_on_engine(name, op, process_set):
        return _run(process_set, *_allreduce([given], None, True, name, None, op, prescale, postscale))
    return synchronize(_start_named(given, None, str(name), op, prescale, postscale, process_set))


# --- allgather

def allgather_async(tensor: torch.Tensor, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> int:
    """The rows (first dimension) of all ranks one after another. Ranks may have different numbers of rows."""
    return _start(process_set, operations.Allgather(name, [_tensors.check(tensor)]), lambda output: output[0].to(tensor.device))


def grouped_allgather_async(tensors: Tensors, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> int:
    given = _checked_list(tensors)
    return _start(process_set, operations.Allgather(name, given), lambda output: _where_given(output, given))


def _run_allgather(given: List[torch.Tensor], name: Optional[str], process_set: ProcessSet) -> Tuple[List[torch.Tensor], List[List[int]]]:
    """(the results, of each the rows of each rank)"""
    operation = operations.Allgather(name, given)
    return _run(process_set, operation, lambda output: _where_given(output, given)), operation.sizes


# --- broadcast

def _broadcast(given: torch.Tensor, result: torch.Tensor, root_rank: int, name: Optional[str],
               process_set: ProcessSet) -> Tuple[Operation, Callable[[Any], Any]]:
    operation = operations.Broadcast(name, _tensors.on_host(_tensors.check(given)), result, *_root_in_set(root_rank, process_set))
    return operation, lambda output: output


def broadcast_async(tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> int:
    """The root's tensor, as a new one. `root_rank` is a rank of the job, also with a process set."""
    _tensors.check(tensor)
    return _start(process_set, *_broadcast(tensor, _tensors.result_like(tensor), root_rank, name, process_set))


def broadcast_async_(tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> int:
    """As broadcast_async, in place."""
    return _start(process_set, *_broadcast(tensor, tensor, root_rank, name, process_set))


def broadcast_(tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """As broadcast, in place and without a gradient."""
    return _run(process_set, *_broadcast(tensor, tensor, root_rank, name, process_set))


def _run_broadcast(given: torch.Tensor, root_rank: int, name: Optional[str], process_set: ProcessSet) -> torch.Tensor:
    return _run(process_set, *_broadcast(given, _tensors.result_like(given), root_rank, name, process_set))


# --- alltoall

def _checked_splits(tensor: torch.Tensor, splits: Any, size: int) -> List[int]:
    _tensors.check(tensor)
    if tensor.dim() == 0:
        raise ValueError("alltoall of a tensor of no dimension: it has no rows to send; reshape it to [1]")
    if isinstance(splits, torch.Tensor):
        if splits.numel() and (splits.dim() != 1 or splits.dtype != torch.int32):
            raise ValueError(f"splits is of {splits.dtype} and {splits.dim()} dimensions: it is of torch.int32 and one dimension")
        splits = splits.tolist() or None
    return checked_splits(tensor.shape[0], splits, size)


def alltoall_async(tensor: torch.Tensor, splits: Any = None, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> int:
    """splits[r] rows of the tensor go to rank r. Gives (what this rank got, how many rows of each rank)."""
    checked = _checked_splits(tensor, splits, checked_set(process_set).size())
    return _start(process_set, operations.Alltoall(name, tensor, checked), lambda output: (output[0].to(tensor.device), _beside(splits, output[1])))


def _beside(splits: Any, received: torch.Tensor) -> torch.Tensor:
    """As Horovod has it: on the device of the splits that were given."""
    return received.to(splits.device) if isinstance(splits, torch.Tensor) else received


def _run_alltoall(tensor: torch.Tensor, splits: List[int], name: Optional[str], process_set: ProcessSet) -> Tuple[torch.Tensor, torch.Tensor]:
    return _run(process_set, operations.Alltoall(name, tensor, splits), lambda output: (output[0].to(tensor.device), output[1]))


# --- reducescatter

def _reducescatter(given: List[torch.Tensor], single: bool, name: Optional[str], op: int, prescale: float,
                   postscale: float) -> Tuple[Operation, Callable[[Any], Any]]:
    for one in given:
        if one.dim() == 0:
            raise ValueError("reducescatter of a tensor of no dimension: it has no rows to divide; reshape it to [1]")
    made = operations.Reducescatter(name, given, checked_op(op), prescale, postscale)
    return made, lambda output: output[0].to(given[0].device) if single else _where_given(output, given)


def reducescatter_async(tensor: torch.Tensor, name: Optional[str] = None, op: int = Average, process_set: ProcessSet = global_process_set,
                        prescale_factor: float = 1.0, postscale_factor: float = 1.0) -> int:
    """This rank's rows of the reduction; where rows do not divide, lower ranks get one more."""
    return _start(process_set, *_reducescatter([_tensors.check(tensor)], True, name, op, prescale_factor, postscale_factor))


def grouped_reducescatter_async(tensors: Tensors, name: Optional[str] = None, op: int = Average, process_set: ProcessSet = global_process_set,
                                prescale_factor: float = 1.0, postscale_factor: float = 1.0) -> int:
    return _start(process_set, *_reducescatter(_checked_list(tensors), False, name, op, prescale_factor, postscale_factor))


def _run_reducescatter(given: List[torch.Tensor], name: Optional[str], op: int, prescale: float, postscale: float,
                       process_set: ProcessSet) -> List[torch.Tensor]:
    return _run(process_set, *_reducescatter(given, False, name, op, prescale, postscale))


# --- sparse, barrier, join

def sparse_allreduce_async(tensor: torch.Tensor, name: Optional[str], op: int, process_set: ProcessSet = global_process_set) -> Callable[[], torch.Tensor]:
    """Of a sparse tensor, by gathering indices and values, or dense if that moves fewer bytes; the result is sparse in either case, and
    has every row that some rank has. Call what it returns, or give it to synchronize."""
    handle = _start(process_set, operations.SparseAllreduce(name, tensor, checked_op(op)), lambda output: output.to(tensor.device))
    return lambda: synchronize(handle)


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns after all ranks of the set have called it. Asynchronous operations of this rank that it follows are done then."""
    _run(process_set, operations.Barrier(None), lambda _: None)


def join(device: int = -1) -> int:
    """This rank has no more data: it contributes zeros to the allreduces of the others until all have joined. Returns the rank
    that joined last. Whatever needs this rank's data raises on the others meanwhile, SyncBatchNorm and ShardedSoftmax too."""
    basics._known()
    tasks = [optimizer.join for optimizer in global_process_set._optimizers]
    begun = 0
    if global_process_set.size() > 1:
        allreduces = global_process_set._named(_tensors)
        allreduces.engine()
        inner = [one._named(_tensors).join for one in global_process_set._inner.values()]
        tasks += [allreduces.join, *inner, *_joins_in_model_order()]
        begun = allreduces.started + sum(optimizer.steps() for optimizer in global_process_set._optimizers)
    return _join(Join(None), tasks, begun)


# What is differentiable builds on the above.
from aiacc.torch.autograd import (allgather, allreduce, alltoall, broadcast, grouped_allgather, grouped_allreduce,  # noqa: E402
                                  grouped_reducescatter, reducescatter)

__all__ = ["Adasum", "Average", "Max", "Min", "Product", "Sum", "allgather", "allgather_async", "allreduce", "allreduce_", "allreduce_async",
           "allreduce_async_", "alltoall", "alltoall_async", "barrier", "broadcast", "broadcast_", "broadcast_async", "broadcast_async_",
           "grouped_allgather", "grouped_allgather_async", "grouped_allreduce", "grouped_allreduce_", "grouped_allreduce_async",
           "grouped_allreduce_async_", "grouped_reducescatter", "grouped_reducescatter_async", "join", "poll", "reducescatter",
           "reducescatter_async", "sparse_allreduce_async", "synchronize"]
