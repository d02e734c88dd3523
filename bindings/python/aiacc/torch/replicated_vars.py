"""ReplicatedVarsOptimizer: loss, gradients of all ranks, clipping and step in two calls, as PAISoar has them for TensorFlow."""
from __future__ import annotations

from typing import Any, Callable, Iterable, List, Optional

import torch

from aiacc._arguments import number
from aiacc._horovod.process_sets import ProcessSet, global_process_set
from aiacc.torch import mpi_ops
from aiacc.torch.functions import broadcast_parameters
from aiacc.torch.optimizer import DistributedOptimizer


class ReplicatedLoss:
    """What compute_loss returns. `replicas`: the losses of this process, which is one."""

    def __init__(self, loss: torch.Tensor, scale: float, process_set: ProcessSet) -> None:
        self.replicas: List[torch.Tensor] = [loss]
        self.scale = scale
        self._process_set = process_set

    def mean(self) -> float:
        """Over all ranks. Collective."""
        return float(mpi_ops.allreduce(self.replicas[0].detach(), process_set=self._process_set))


class ReplicatedVarsOptimizer:
    """An optimizer of variables that each rank has a replica of. Making it gives every rank the variables of rank 0.

        optimizer = hvd.ReplicatedVarsOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), clip_norm=1.0)
        loss = optimizer.compute_loss(lambda: loss_of(model(x), y))
        optimizer.minimize(loss, global_step)

    `clip_norm`: the norm of all averaged gradients together is at most this. `named_parameters`, `compression`: as
    DistributedOptimizer has them; it is the attribute `optimizer`, for schedulers and checkpoints.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, clip_norm: Optional[float] = None, *, named_parameters: Optional[Iterable[Any]] = None,
                 process_set: ProcessSet = global_process_set, **arguments: Any) -> None:
        if clip_norm is not None and not number("clip_norm", clip_norm) > 0:
            raise ValueError(f"clip_norm is {clip_norm}; it is above 0, or None for no clipping")
        self.clip_norm = clip_norm
        self._process_set = process_set
        self.optimizer = DistributedOptimizer(optimizer, named_parameters, process_set=process_set, **arguments)
        if process_set.included():
            broadcast_parameters(self._parameters(), process_set._registered()[0], process_set)

    def _parameters(self) -> List[torch.Tensor]:
        return [one for group in self.optimizer.param_groups for one in group["params"]]

    def compute_loss(self, loss_fn: Callable[[], torch.Tensor], loss_scale: float = 1.0) -> ReplicatedLoss:
        """`loss_fn` takes nothing and returns the loss of this rank's batch. Gradients are computed of `loss_scale` times the
        loss, so that small ones stay above 0 in 16 bits, and divided by it before they are clipped."""
        if not 0 < number("loss_scale", loss_scale) < float("inf"):
            raise ValueError(f"loss_scale is {loss_scale}; it is a finite number above 0")
        loss = loss_fn()
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            raise ValueError("loss_fn returns the loss only, a tensor of one element")
        return ReplicatedLoss(loss, loss_scale, self._process_set)

    def minimize(self, loss: ReplicatedLoss, global_step: Optional[torch.Tensor] = None) -> None:
        """Computes gradients, averages them over all ranks, clips them and takes a step. `global_step`, a tensor of one integer,
        becomes 1 more. Collective."""
        self.optimizer.zero_grad()
        for one in loss.replicas:
            (one * loss.scale if loss.scale != 1.0 else one).backward()
        self.optimizer.synchronize()
        parameters = self._parameters()
        if loss.scale != 1.0:
            for parameter in parameters:
                if parameter.grad is not None:
                    parameter.grad.div_(loss.scale)
        if self.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(parameters, self.clip_norm)
        with self.optimizer.skip_synchronize():
            self.optimizer.step()
        if global_step is not None:
            global_step.add_(1)


__all__ = ["ReplicatedLoss", "ReplicatedVarsOptimizer"]
