"""A classifier whose classes are split over the ranks: the softmax cross entropy of ArcFace, CosFace and Partial FC."""
from __future__ import annotations

from typing import Any, List, Optional

import torch
from torch.autograd.function import once_differentiable

from aiacc import softmax
from aiacc._arguments import number, whole
from aiacc._horovod.process_sets import ProcessSet, checked_set, global_process_set
from aiacc._horovod.unnegotiated import Unnegotiated
from aiacc.buffers import Op
from aiacc.torch import tensors
from aiacc.torch._used_rows import step_only_used

_MARGINS = {None: softmax.Margin.NONE, "arc": softmax.Margin.ARC, "cos": softmax.Margin.COS}


class ShardedSoftmax(torch.nn.Module):
    """`module(features, labels)` is the mean cross entropy over the batches of all ranks, which may differ in size and be empty.

    `weight` has the rows of this rank's classes, `first_class` and the `classes` - 1 that follow; its gradient is complete, and is not
    reduced over ranks. With a margin ("arc", "cos"), rows of features and weight are normalised; `scale` multiplies their cosines.
    `sample_rate` below 1 uses the labels' classes and others at random up to that share of a rank's classes in each step (Partial FC);
    `seed` is equal on all ranks. `averaged`: the features' gradient is multiplied by the number of ranks, for a model before it whose
    gradients are averaged over the ranks, as DistributedOptimizer does unless it is told to sum.

    Classes that a step has not used have a gradient of zeros, by which momentum and weight decay still move them; `only_used` tells an
    optimizer to leave them as they are.
    """

    def __init__(self, in_features: int, num_classes: int, margin: Optional[str] = None, margin_size: float = 0.5, scale: float = 1.0,
                 sample_rate: float = 1.0, seed: int = 0, averaged: bool = True, process_set: ProcessSet = global_process_set) -> None:
        super().__init__()
        if not isinstance(margin, (str, type(None))) or margin not in _MARGINS:
            raise ValueError(f"margin is {margin!r}: it is None, 'arc' or 'cos'")
        in_features, num_classes, seed = whole("in_features", in_features), whole("num_classes", num_classes), whole("seed", seed)
        if in_features < 1 or num_classes < 1:
            raise ValueError(f"in_features is {in_features} and num_classes {num_classes}: both are 1 or more")
        margin_size, scale = number("margin_size", margin_size), number("scale", scale)
        if not 0 < number("sample_rate", sample_rate) <= 1:
            raise ValueError(f"sample_rate is {sample_rate}: it is above 0 and at most 1")
        self.in_features, self.num_classes, self.margin, self.margin_size, self.scale = in_features, num_classes, margin, margin_size, scale
        self.sample_rate, self.seed, self.averaged, self._process_set, self._steps = sample_rate, seed, averaged, checked_set(process_set), 0
        self.first_class, self.classes = softmax.split(num_classes, self._calls().get())
        self.used: Optional[torch.Tensor] = None  # numbers of the classes that the last forward used; None: of all
        self.weight = torch.nn.Parameter(torch.empty(self.classes, in_features))
        torch.nn.init.normal_(self.weight, std=0.01)

    def _calls(self) -> Unnegotiated:
        return self._process_set._in_model_order("ShardedSoftmax")

    def forward(self, features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if features.dim() != 2 or features.shape[1] != self.in_features or labels.shape != features.shape[:1]:
            raise ValueError(f"features are {tuple(features.shape)} and labels {tuple(labels.shape)}: give N x {self.in_features} and N")
        tensors.check_on_host(features, "the features of ShardedSoftmax")
        tensors.check_on_host(labels, "the labels of ShardedSoftmax")
        tensors.check_on_host(self.weight, "the weight of ShardedSoftmax")
        calls = self._calls()
        counts = _gathered(calls, torch.tensor([features.shape[0]], device="cpu"), [1] * self._process_set.size()).tolist()
        own_labels = labels.detach().to(torch.int64).contiguous()
        every_label = _gathered(calls, own_labels, counts)
        whole = _Gather.apply(features, calls, counts, float(len(counts)) if self.averaged else 1.0)
        weight: torch.Tensor = self.weight
        self.used = None
        if self.sample_rate < 1:
            self.used = self._sampled(every_label)
            weight = weight[self.used - self.first_class]
        return _CrossEntropy.apply(self._logits(whole, weight, every_label), every_label, calls, self, self.used)

    def _logits(self, features: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Of all features, and of the classes that are used; `labels` are those of all classes."""
        if self.margin is not None:
            features, weight = torch.nn.functional.normalize(features), torch.nn.functional.normalize(weight)
        return features.to(weight.dtype) @ weight.t()

    def _sampled(self, every_label: torch.Tensor) -> torch.Tensor:
        self._steps += 1
        ids = torch.empty(self.classes, dtype=torch.int64, device="cpu")
        wanted = int(self.sample_rate * self.classes)
        found = softmax.sample(self.first_class, self.classes, every_label.data_ptr(), len(every_label), wanted, self.seed + (self._steps << 32),
                               ids.data_ptr())
        return ids[:found]

    def only_used(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        """From now on the optimizer's step changes only the classes that the last forward used, and what it remembers of them."""
        step_only_used(optimizer, self.weight, lambda: None if self.used is None else self.used - self.first_class)
        return optimizer

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, num_classes={self.num_classes}, margin={self.margin!r}, scale={self.scale}"


_buffer = tensors.buffer_of


def _gathered(calls: Unnegotiated, given: torch.Tensor, counts: List[int]) -> torch.Tensor:
    """The rows of all ranks; `counts` are how many each has."""
    result = torch.empty(sum(counts), *given.shape[1:], dtype=given.dtype, device="cpu")
    row = int(torch.Size(given.shape[1:]).numel())
    calls.call("ShardedSoftmax", lambda group: group.allgather(_buffer(given), _buffer(result), counts=[count * row for count in counts]))
    return result


class _Gather(torch.autograd.Function):
    """The features of all ranks. Backward sums their gradients and brings them to the rows' owners."""

    @staticmethod
    def forward(ctx: Any, features: torch.Tensor, calls: Unnegotiated, counts: List[int], factor: float) -> torch.Tensor:
        ctx.how = (calls, counts, factor)
        return _gathered(calls, tensors.packed(features), counts)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
        calls, counts, factor = ctx.how
        given = tensors.packed(gradient)
        own = torch.empty(counts[calls.get().rank], *given.shape[1:], dtype=given.dtype, device="cpu")
        row = int(torch.Size(given.shape[1:]).numel())
        calls.call("ShardedSoftmax", lambda group: group.reduce_scatter(_buffer(given), _buffer(own), Op.SUM, counts=[count * row for count in counts],
                                                                        prescale=factor))
        return own, None, None, None


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, labels: torch.Tensor, calls: Unnegotiated, module: ShardedSoftmax,
                ids: Optional[torch.Tensor]) -> torch.Tensor:
        kind = torch.float64 if logits.dtype == torch.float64 else torch.float32
        gradient = logits.detach().to(kind, copy=True).contiguous()
        losses = torch.empty(len(labels), dtype=torch.float64, device="cpu")
        calls.call("ShardedSoftmax", lambda group: softmax.loss(
            group, len(labels), module.num_classes, gradient.shape[1], module.first_class, tensors.element_type(gradient), gradient.data_ptr(),
            labels.data_ptr(), losses.data_ptr(), None if ids is None else ids.data_ptr(), _MARGINS[module.margin], module.margin_size, module.scale))
        ctx.save_for_backward(gradient.to(logits.dtype))
        return losses.mean().to(kind)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
        own, = ctx.saved_tensors
        return own * gradient.to(own.dtype), None, None, None, None
