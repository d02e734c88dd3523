"""Batch normalisation over the batches of all ranks, on the CPU; the batches of other devices are copied there and back."""
from __future__ import annotations

from typing import Any, Optional, Tuple

import torch
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from aiacc import syncbn
from aiacc._horovod import basics
from aiacc._horovod.process_sets import ProcessSet, checked_set, global_process_set
from aiacc.torch import tensors

_ELEMENTS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


class SyncBatchNorm(_BatchNorm):
    """torch.nn.BatchNorm1d, 2d and 3d with statistics of the joined batch. In evaluation, or with one rank, it is these. Its calls, and
    those of backward, are made in the same order by all ranks of the process set, as they are when their models are alike."""

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: Optional[float] = 0.1, affine: bool = True, track_running_stats: bool = True,
                 process_set: ProcessSet = global_process_set) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats)  # type: ignore[arg-type]
        self._process_set = checked_set(process_set)

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"SyncBatchNorm got {input.dim()} dimensions; it wants at least 2")

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        self._check_input_dim(input)
        if not (self.training or not self.track_running_stats) or not basics.is_initialized() or self._process_set.size() == 1:
            return super().forward(input)
        if input.shape[1] != self.num_features:
            raise ValueError(f"SyncBatchNorm of {self.num_features} channels got {input.shape[1]}")
        factor, kept = 0.0, (None, None)
        if self.training and self.track_running_stats:
            self.num_batches_tracked.add_(1)  # type: ignore[union-attr]
            factor = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum  # type: ignore[arg-type]
            kept = (self.running_mean, self.running_var)  # type: ignore[assignment]
        return _Normalize.apply(input, self.weight, self.bias, kept, self.eps, factor, self._process_set)

    @classmethod
    def convert_sync_batchnorm(cls, module: torch.nn.Module, process_set: ProcessSet = global_process_set) -> torch.nn.Module:
        """The module with a SyncBatchNorm, of the same parameters and statistics, in place of each BatchNorm1d, 2d and 3d."""
        converted = module
        if isinstance(module, _BatchNorm):
            converted = cls(module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats, process_set)
            if module.affine:
                converted.weight, converted.bias = module.weight, module.bias
            converted.running_mean, converted.running_var = module.running_mean, module.running_var
            converted.num_batches_tracked = module.num_batches_tracked
            converted.training = module.training
            if hasattr(module, "qconfig"):
                converted.qconfig = module.qconfig
        for name, child in module.named_children():
            converted.add_module(name, cls.convert_sync_batchnorm(child, process_set))
        return converted


def _as(kind: torch.dtype, given: Optional[torch.Tensor]) -> Optional[torch.Tensor]:
    """In the type of statistics, one after another, on the host; the tensor itself if it is so already."""
    return None if given is None else given.detach().to("cpu", kind).contiguous()


def _address(given: Optional[torch.Tensor]) -> Optional[int]:
    return None if given is None else given.data_ptr()


def _dense(given: torch.Tensor, channels_last: bool) -> torch.Tensor:
    if not channels_last:
        return given.contiguous()
    return given.contiguous(memory_format=torch.channels_last if given.dim() == 4 else torch.channels_last_3d)


def _is_channels_last(given: torch.Tensor) -> bool:
    if given.is_contiguous():
        return False
    return given.dim() == 4 and given.is_contiguous(memory_format=torch.channels_last) or \
        given.dim() == 5 and given.is_contiguous(memory_format=torch.channels_last_3d)


class _Normalize(torch.autograd.Function):
    """aiacc_syncbn_forward and _backward: one exchange of (count, mean, variance) forward, which an empty batch takes part in, and one of
    two sums of each channel backward."""

    @staticmethod
    def forward(ctx: Any, given: torch.Tensor, weight: Optional[torch.Tensor], bias: Optional[torch.Tensor],
                running: Tuple[Optional[torch.Tensor], Optional[torch.Tensor]], eps: float, factor: float, process_set: ProcessSet) -> torch.Tensor:
        tensors.check(given, "the input of SyncBatchNorm")
        if given.dtype not in _ELEMENTS:
            raise ValueError(f"the input of SyncBatchNorm is of {given.dtype}; the types are {', '.join(str(kind)[6:] for kind in _ELEMENTS)}")
        last = _is_channels_last(given)
        x = _dense(given.detach().cpu(), last)
        kind = torch.float64 if x.dtype == torch.float64 else torch.float32
        samples, channels = x.shape[:2]
        positions = 1
        for length in x.shape[2:]:
            positions *= length
        batch = syncbn.batch(samples, channels, positions, tensors.element_type(x), last)
        y = torch.empty_like(x)  # in the same memory format
        saved = torch.empty(2 * channels + 1, dtype=torch.float64, device="cpu")
        own_weight, own_bias = _as(kind, weight), _as(kind, bias)
        followed = [_as(kind, one) for one in running]
        norms = process_set._in_model_order("SyncBatchNorm")
        norms.call("SyncBatchNorm", lambda made: made.forward(
            batch, x.data_ptr(), y.data_ptr(), saved.data_ptr(), _address(own_weight), _address(own_bias), _address(followed[0]), _address(followed[1]),
            eps, factor))
        for statistics, now in zip(running, followed):
            if statistics is not None and now is not None and (not statistics.is_cpu or now.data_ptr() != statistics.data_ptr()):
                statistics.copy_(now)
        ctx.save_for_backward(x, weight, saved)
        ctx.how = (batch, last, kind, norms, None if bias is None else bias.dtype)
        return y.to(given.device)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
        x, weight, saved = ctx.saved_tensors
        batch, last, kind, norms, bias_type = ctx.how
        dy = _dense(gradient.detach().to("cpu", x.dtype), last)
        wants_x, wants_weight, wants_bias = ctx.needs_input_grad[:3]
        dx = torch.empty_like(x) if wants_x else None
        dweight = torch.empty(x.shape[1], dtype=kind, device="cpu") if wants_weight else None
        dbias = torch.empty(x.shape[1], dtype=kind, device="cpu") if wants_bias else None
        own_weight = _as(kind, weight)
        norms.call("SyncBatchNorm", lambda made: made.backward(
            batch, _address(own_weight), saved.data_ptr(), x.data_ptr(), dy.data_ptr(), _address(dx), _address(dweight), _address(dbias)))
        there = gradient.device
        return (None if dx is None else dx.to(there), None if dweight is None else dweight.to(there, weight.dtype),
                None if dbias is None else dbias.to(there, bias_type), None, None, None, None)
