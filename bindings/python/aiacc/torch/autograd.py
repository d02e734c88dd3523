"""Collectives through which gradients flow, with Horovod's conventions: the loss of each rank is its own, and the gradient of a
reduction is the same reduction of the gradients."""
from __future__ import annotations

from typing import Any, List, Optional, Tuple, Union

import torch

from aiacc._horovod.process_sets import ProcessSet, checked_set, global_process_set
from aiacc.torch import mpi_ops, tensors as _tensors
from aiacc.torch._operations import Average, Sum
from aiacc.torch.compression import Compression
from aiacc.torch.compression import checked as _checked_compression


class _Allreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, grouped: bool, name: Optional[str], op: int, prescale: float, postscale: float, process_set: ProcessSet,
                *given: torch.Tensor) -> Any:
        ctx.how = (op, prescale, postscale, process_set)
        if not grouped:
            return (mpi_ops._run_single_allreduce(given[0], name, op, prescale, postscale, process_set),)
        return tuple(mpi_ops._run_allreduce(list(given), name, op, prescale, postscale, process_set))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        op, prescale, postscale, process_set = ctx.how
        return (None,) * 6 + tuple(mpi_ops._run_allreduce(list(gradients), None, op, prescale, postscale, process_set))


class _Allgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: Optional[str], process_set: ProcessSet, *given: torch.Tensor) -> Any:
        results, ctx.sizes = mpi_ops._run_allgather(list(given), name, process_set)
        ctx.process_set = process_set
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        reduced = mpi_ops._run_allreduce(list(gradients), None, Average, 1.0, 1.0, ctx.process_set)
        rank = ctx.process_set.rank()
        return (None, None) + tuple(one.narrow(0, sum(sizes[:rank]), sizes[rank]) for one, sizes in zip(reduced, ctx.sizes))


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, root_rank: int, name: Optional[str], process_set: ProcessSet) -> torch.Tensor:
        ctx.how = (root_rank, process_set)
        return mpi_ops._run_broadcast(tensor, root_rank, name, process_set)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
        root_rank, process_set = ctx.how
        reduced, = mpi_ops._run_allreduce([gradient], None, Average, 1.0, 1.0, process_set)
        return (reduced if mpi_ops.basics.rank() == root_rank else reduced * 0), None, None, None


class _Alltoall(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, splits: List[int], name: Optional[str], process_set: ProcessSet) -> Any:
        result, received = mpi_ops._run_alltoall(tensor, splits, name, process_set)
        ctx.received, ctx.process_set, ctx.rows, ctx.sent = received.tolist(), process_set, tensor.shape[0], sum(splits)
        ctx.mark_non_differentiable(received)
        return result, received

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, _: Any) -> Any:  # type: ignore[override]
        back, _ = mpi_ops._run_alltoall(gradient, ctx.received, None, ctx.process_set)
        if ctx.sent < ctx.rows:  # rows that went nowhere
            back = torch.cat([back, back.new_zeros((ctx.rows - ctx.sent, *back.shape[1:]))])
        return back, None, None, None


class _Reducescatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: Optional[str], op: int, prescale: float, postscale: float, process_set: ProcessSet, *given: torch.Tensor) -> Any:
        ctx.how = (op, prescale, postscale, process_set)
        return tuple(mpi_ops._run_reducescatter(list(given), name, op, prescale, postscale, process_set))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        op, prescale, postscale, process_set = ctx.how
        factor = prescale * postscale * (process_set.size() if op == Sum else 1)
        results, _ = mpi_ops._run_allgather([one * factor if factor != 1 else one for one in gradients], None, process_set)
        return (None,) * 5 + tuple(results)


def _compressed(given: Any, compression: Any) -> Tuple[List[torch.Tensor], List[Any]]:
    _checked_compression(compression)
    pairs = [compression.compress(_tensors.check(one)) for one in given]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def grouped_allreduce(tensors: Any, average: Optional[bool] = None, name: Optional[str] = None, compression: Any = Compression.none,
                      op: Optional[int] = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                      process_set: ProcessSet = global_process_set) -> List[torch.Tensor]:
    """Allreduce of several tensors as one operation. Differentiable."""
    chosen = mpi_ops.handle_average_backwards_compatibility(op, average)
    given, contexts = _compressed(mpi_ops._checked_list(tensors), compression)
    results = _Allreduce.apply(True, name, chosen, prescale_factor, postscale_factor, process_set, *given)
    return [compression.decompress(one, context) for one, context in zip(results, contexts)]


def allreduce(tensor: torch.Tensor, average: Optional[bool] = None, name: Optional[str] = None, compression: Any = Compression.none,
              op: Optional[int] = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
              process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """The reduction of the tensor over all ranks (the average, if nothing else is asked for), as a new tensor. Differentiable."""
    chosen = mpi_ops.handle_average_backwards_compatibility(op, average)
    given, contexts = _compressed([tensor], compression)
    result, = _Allreduce.apply(False, name, chosen, prescale_factor, postscale_factor, process_set, *given)
    return compression.decompress(result, contexts[0])


def allgather(tensor: torch.Tensor, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """The rows (first dimension) of all ranks one after another; ranks may have different numbers of them. Differentiable."""
    return _Allgather.apply(name, process_set, _tensors.check(tensor))[0]


def grouped_allgather(tensors: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> List[torch.Tensor]:
    """Allgather of several tensors as one operation. Differentiable."""
    return list(_Allgather.apply(name, process_set, *mpi_ops._checked_list(tensors)))


def broadcast(tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """The root's tensor, as a new one; `root_rank` is a rank of the job, also with a process set. Differentiable."""
    return _Broadcast.apply(_tensors.check(tensor), root_rank, name, process_set)


def alltoall(tensor: torch.Tensor, splits: Any = None, name: Optional[str] = None,
             process_set: ProcessSet = global_process_set) -> Union[torch.Tensor, Tuple[torch.Tensor, torch.Tensor]]:
    """splits[r] rows of the tensor go to rank r (default: equally many to each). Returns what this rank got, and with `splits`
    also how many rows of each rank. Differentiable."""
    checked = mpi_ops._checked_splits(tensor, splits, checked_set(process_set).size())
    result, received = _Alltoall.apply(tensor, checked, name, process_set)
    return result if splits is None else (result, mpi_ops._beside(splits, received))


def grouped_reducescatter(tensors: Any, name: Optional[str] = None, compression: Any = Compression.none, op: int = Average,
                          process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0,
                          postscale_factor: float = 1.0) -> List[torch.Tensor]:
    """Reducescatter of several tensors as one operation. Differentiable."""
    given, contexts = _compressed(mpi_ops._checked_list(tensors), compression)
    results = _Reducescatter.apply(name, op, prescale_factor, postscale_factor, process_set, *given)
    return [compression.decompress(one, context) for one, context in zip(results, contexts)]


def reducescatter(tensor: torch.Tensor, name: Optional[str] = None, compression: Any = Compression.none, op: int = Average,
                  process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0, postscale_factor: float = 1.0) -> torch.Tensor:
    """This rank's rows of the reduction; where rows do not divide, lower ranks get one more. Differentiable."""
    return grouped_reducescatter([tensor], name, compression, op, process_set, prescale_factor, postscale_factor)[0]
