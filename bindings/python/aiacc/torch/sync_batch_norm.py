"""Batch normalisation over the batches of all ranks, on the CPU too."""
from __future__ import annotations

from typing import Any, Optional

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from aiacc.torch import _operations as operations
from aiacc.torch import basics
from aiacc.torch.process_sets import ProcessSet, global_process_set


class SyncBatchNorm(_BatchNorm):
    """torch.nn.BatchNorm1d, 2d and 3d with statistics of the joined batch. In evaluation, or with one rank, it is these."""

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: Optional[float] = 0.1, affine: bool = True, track_running_stats: bool = True,
                 process_set: ProcessSet = global_process_set) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats)  # type: ignore[arg-type]
        self._process_set = process_set

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"SyncBatchNorm got {input.dim()} dimensions; it wants at least 2")

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        self._check_input_dim(input)
        if not (self.training or not self.track_running_stats) or not basics.is_initialized() or self._process_set.size() == 1:
            return super().forward(input)
        result, mean, variance, count = _Normalize.apply(input, self.weight, self.bias, self.eps, self._process_set)
        if self.training and self.track_running_stats:
            self.num_batches_tracked.add_(1)  # type: ignore[union-attr]
            factor = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum  # type: ignore[arg-type]
            n = float(count)
            with torch.no_grad():
                unbiased = variance * (n / (n - 1)) if n > 1 else variance
                self.running_mean.mul_(1 - factor).add_(mean.to(self.running_mean.dtype), alpha=factor)  # type: ignore[union-attr]
                self.running_var.mul_(1 - factor).add_(unbiased.to(self.running_var.dtype), alpha=factor)  # type: ignore[union-attr]
        return result


def _gathered(given: torch.Tensor, process_set: ProcessSet) -> torch.Tensor:
    """A row of each rank."""
    return process_set._channel("syncbn").run(operations.Allgather("SyncBatchNorm", [given.unsqueeze(0)]))[0]


class _Normalize(torch.autograd.Function):
    """Each rank sends its number of elements, mean and sum of squared deviations, which are combined without cancellation
    (Chan, Golub, LeVeque 1979); an empty batch takes part with no elements. Backward sends two sums a channel."""

    @staticmethod
    def forward(ctx: Any, given: torch.Tensor, weight: Optional[torch.Tensor], bias: Optional[torch.Tensor], eps: float, process_set: ProcessSet) -> Any:
        kind = torch.float64 if given.dtype == torch.float64 else torch.float32
        x = given.to(kind)
        across = [0, *range(2, x.dim())]
        channels = x.shape[1]
        count = x.numel() // channels if channels else 0
        own_mean = x.mean(across) if count else x.new_zeros(channels)
        shape = [1, channels] + [1] * (x.dim() - 2)
        deviations = ((x - own_mean.view(shape)) ** 2).sum(across) if count else x.new_zeros(channels)
        # Counts are exact in fp64, which this small message can afford.
        own = torch.cat([torch.tensor([float(count)], dtype=torch.float64), own_mean.double(), deviations.double()])
        of_ranks = _gathered(own, process_set)
        counts, means, squares = of_ranks[:, :1], of_ranks[:, 1:channels + 1], of_ranks[:, channels + 1:]
        total = counts.sum()
        if float(total) == 0:
            raise ValueError("SyncBatchNorm: the batches of all ranks are empty")
        mean = (counts * means).sum(0) / total
        variance = (squares.sum(0) + (counts * (means - mean) ** 2).sum(0)) / total
        mean, variance = mean.to(kind), variance.to(kind)
        scale = torch.rsqrt(variance + eps)
        normal = (x - mean.view(shape)) * scale.view(shape)
        result = normal
        if weight is not None and bias is not None:
            result = normal * weight.to(kind).view(shape) + bias.to(kind).view(shape)
        ctx.save_for_backward(normal, scale, weight, total)
        ctx.how = (across, shape, process_set, given.dtype)
        total_count = total.to(kind)
        ctx.mark_non_differentiable(mean, variance, total_count)
        return result.to(given.dtype), mean, variance, total_count

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, *_: Any) -> Any:  # type: ignore[override]
        normal, scale, weight, total = ctx.saved_tensors
        across, shape, process_set, dtype = ctx.how
        g = gradient.to(normal.dtype)
        sums = torch.stack([g.sum(across), (g * normal).sum(across)])
        mine_g, mine_gn = sums[0], sums[1]
        of_all = _gathered(sums.double(), process_set).sum(0).to(normal.dtype)
        n = total.to(normal.dtype)
        inner = g - (of_all[0] / n).view(shape) - normal * (of_all[1] / n).view(shape)
        factor = scale if weight is None else scale * weight.to(normal.dtype)
        given = (inner * factor.view(shape)).to(dtype)
        return given, (mine_gn.to(weight.dtype) if weight is not None else None), (mine_g.to(weight.dtype) if weight is not None else None), None, None
