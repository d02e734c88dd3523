"""Deep Gradient Compression (Lin et al., "Deep Gradient Compression: Reducing the Communication Bandwidth for Distributed Training", ICLR 2018):
of each gradient only the elements of the largest magnitude travel, and the others stay on their rank until they have grown."""
from __future__ import annotations

import contextlib
import math
import random
import weakref
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Union

import torch

from aiacc._arguments import count, number, several
from aiacc.buffers import DType, Op
from aiacc.gradients import Engine, checks_nan
from aiacc.torch import tensors
from aiacc.torch._memory import at_address
from aiacc.torch._sparse_gradients import Rows

VELOCITY, RESIDUAL, DECAY = "dgc_velocity", "dgc_residual", "dgc_decay"  # of a parameter, in the optimizer's state
OWN_STATE = (VELOCITY, RESIDUAL)  # each rank has its own
_TYPES = (torch.float32, torch.float64)


def _share(name: str, value: Any) -> float:
    found = number(name, value)
    if not 0.0 < found <= 1.0:
        raise ValueError(f"{name} is {found}: it is above 0, and at most 1")
    return found


class DGC:
    """A `compression` of DistributedOptimizer, for torch.optim.SGD: of each gradient of float32 or float64 with two dimensions and more, a
    share of the elements travels.

    A rank adds its gradients up (the residual) with the optimizer's momentum, which is applied before elements are selected, not to the sum of all ranks,
    and sends the elements of the largest magnitude. What was sent begins at 0 again, and so does its momentum if `momentum_masking`. A
    parameter's `grad` is then the sum or average of what was sent, zeros elsewhere, and contains momentum. Weight decay is added behind it. Other gradients
    are reduced whole.

    `compress_ratio`: the share that travels. The magnitude from which elements are selected is estimated from `sample_ratio` of them, and adapted,
    `max_adaptation_iters` times at most, until there are between `compress_lower_bound` and `compress_upper_bound` times as many as wanted;
    of more than that the largest are taken. `gradient_clipping`: is called with each rank's gradient, flat, before it is added up, and returns
    the one to be used; by the paper to a threshold of 1 / sqrt(ranks) of the whole one's. `warmup_epochs`, `warmup_coeff`: see
    warmup_compress_ratio().
    """

    def __init__(self, compress_ratio: float = 0.001, sample_ratio: float = 0.01, compress_upper_bound: float = 1.3, compress_lower_bound: float = 0.8,
                 max_adaptation_iters: int = 10, warmup_epochs: int = 0, warmup_coeff: Union[None, float, Sequence[float]] = None,
                 momentum_masking: bool = True, gradient_clipping: Optional[Callable[[torch.Tensor], torch.Tensor]] = None) -> None:
        self._base = self.compress_ratio = _share("compress_ratio", compress_ratio)
        self._sample_ratio = _share("sample_ratio", sample_ratio)
        self._lower, self._upper = _share("compress_lower_bound", compress_lower_bound), number("compress_upper_bound", compress_upper_bound)
        if not self._upper >= 1.0:
            raise ValueError(f"compress_upper_bound is {self._upper}: it is 1 or more")
        self._adaptations, self._warmup_epochs = count("max_adaptation_iters", max_adaptation_iters), max(0, count("warmup_epochs", warmup_epochs))
        if self._adaptations < 1:
            raise ValueError(f"max_adaptation_iters is {self._adaptations}: it is 1 or more")
        self._warmup: List[float] = self._ladder(warmup_coeff)
        if gradient_clipping is not None and not callable(gradient_clipping):
            raise TypeError("gradient_clipping is None, or a function of a gradient that returns one")
        self.momentum_masking, self.gradient_clipping = bool(momentum_masking), gradient_clipping
        self._random = random.Random(0)  # where samples begin; the program's own random numbers are left alone

    def _ladder(self, coeff: Any) -> List[float]:
        epochs = self._warmup_epochs
        if coeff is None:
            coeff = self._base ** (1.0 / (epochs + 1))
        if isinstance(coeff, (list, tuple)):
            ratios = [_share("warmup_coeff", one) for one in several("warmup_coeff", coeff, "a number, or a list of them")]
            if len(ratios) < epochs:
                raise ValueError(f"warmup_coeff has {len(ratios)} ratios: it has one for each of warmup_epochs ({epochs})")
            return ratios[:epochs]
        coeff = _share("warmup_coeff", coeff)
        return [max(coeff ** (epoch + 1), self._base) for epoch in range(epochs)]

    def warmup_compress_ratio(self, epoch: int) -> float:
        """At the beginning of an epoch, from 0: sets compress_ratio, and returns it. In the first `warmup_epochs` it is that of the list
        `warmup_coeff`, or coeff^(epoch + 1), where coeff is `warmup_coeff` or compress_ratio^(1 / (warmup_epochs + 1)); then what was given."""
        self.compress_ratio = self._warmup[epoch] if 0 <= count("epoch", epoch) < len(self._warmup) else self._base
        return self.compress_ratio

    def takes(self, parameter: torch.Tensor) -> bool:
        return parameter.dim() > 1 and parameter.numel() > 0 and parameter.dtype in _TYPES

    def select(self, magnitudes: torch.Tensor) -> torch.Tensor:
        """The indices of the largest, ascending: about compress_ratio of them, none where there is only 0."""
        total, ratio = magnitudes.numel(), self.compress_ratio
        wanted = max(1, math.ceil(total * ratio))
        if wanted >= total:
            return torch.arange(total, device=magnitudes.device)
        stride = max(1, total // max(1, math.ceil(total * self._sample_ratio), math.ceil(2.0 / ratio)))
        while math.gcd(stride, total) > 1:  # or a sample might have one place of each kernel only
            stride -= 1
        sample = magnitudes[self._random.randrange(stride)::stride] if stride > 1 else magnitudes
        least = torch.finfo(magnitudes.dtype).tiny
        threshold = max(least, float(torch.topk(sample, max(1, math.ceil(sample.numel() * ratio)), sorted=False).values.min()))
        for _ in range(self._adaptations):
            indices = (magnitudes >= threshold).nonzero().view(-1)
            if len(indices) > self._upper * wanted:
                return indices[torch.topk(magnitudes[indices], wanted, sorted=False).indices].sort().values
            if len(indices) >= self._lower * wanted or threshold <= least:
                break
            threshold = max(least, threshold * self._lower)
        return indices


def check_optimizer(optimizer: Any) -> None:
    if not isinstance(optimizer, torch.optim.SGD):
        raise ValueError(f"DGC is for torch.optim.SGD, whose momentum it takes over, not for {type(optimizer).__name__}")
    for group in optimizer.param_groups:
        for name in ("dampening", "maximize"):
            if group.get(name):
                raise ValueError(f"DGC: {name} of the optimizer is {group[name]}, which Deep Gradient Compression does not have")


class Sparsified(Rows):
    """The gradient of a parameter, of which elements travel: rows with one element each."""

    def __init__(self, engine: Engine, name: str, parameter: torch.Tensor, op: Op, scales: Tuple[float, float], how: DGC, optimizer: Any) -> None:
        self.parameter, self.how, self._optimizer = parameter, how, weakref.ref(optimizer)
        self.dtype = parameter.dtype  # on the wire, also where the model gets another type
        self._before: Dict[str, torch.Tensor] = {}  # what a step that is left out had found
        self._keeps_before = checks_nan()
        self._gradient: Optional[torch.Tensor] = None  # the results, from step to step in one memory
        self._group: Dict[str, Any] = {}
        self.index = engine.add(name, parameter.numel(), DType(tensors.type_of(parameter.dtype)), op, *scales, row_elements=1)

    def group(self) -> Dict[str, Any]:
        """The optimizer's, whose values may change from step to step."""
        groups = self._optimizer().param_groups  # type: ignore[union-attr]
        if not any(group is self._group for group in groups):
            self._group = next((group for group in groups if any(one is self.parameter for one in group["params"])), self._group)
        return self._group

    def _state(self, name: str) -> torch.Tensor:
        state = self._optimizer().state[self.parameter]  # type: ignore[union-attr]
        if name not in state:
            state[name] = torch.zeros_like(self.parameter, memory_format=torch.contiguous_format)
        elif state[name].device != self.parameter.device or state[name].dtype != self.parameter.dtype:  # the model has moved
            state[name] = state[name].to(self.parameter.device, self.parameter.dtype)
        found: torch.Tensor = state[name].view(-1)
        return found

    def prepare(self) -> Tuple[torch.Tensor, torch.Tensor]:
        """The parameter's gradient is complete on this rank. None counts as zeros."""
        with torch.no_grad():
            gradient = torch.zeros_like(self.parameter) if self.parameter.grad is None else self.parameter.grad
            gradient = (gradient.to_dense() if gradient.layout != torch.strided else gradient).reshape(-1)
            if self.how.gradient_clipping is not None:
                gradient = self.how.gradient_clipping(gradient.clone())  # backward may need its memory still
                if not isinstance(gradient, torch.Tensor) or gradient.shape != (self.parameter.numel(),):
                    raise ValueError("gradient_clipping returns a gradient of the same size")
            velocity, residual = self._state(VELOCITY), self._state(RESIDUAL)
            self._before = {VELOCITY: velocity.clone(), RESIDUAL: residual.clone()} if self._keeps_before else {}
            if not math.isfinite(float(gradient.sum())):  # as a sum may be of finite ones, too
                wrong = (~torch.isfinite(gradient)).nonzero().view(-1)
                if len(wrong):  # all ranks see them, as without compression, and nothing is added up
                    return wrong.cpu(), gradient[wrong].to("cpu", self.dtype)
            group = self.group()
            if group["nesterov"]:
                velocity.add_(gradient).mul_(group["momentum"])
                residual.add_(gradient)
            else:
                torch.add(gradient, velocity, alpha=group["momentum"], out=velocity)
            residual.add_(velocity)
            indices = self.how.select(residual.abs())
            values = residual[indices]
            residual[indices] = 0.0
            if self.how.momentum_masking:
                velocity[indices] = 0.0
            return indices.cpu(), values.to("cpu", self.dtype)

    def roll_back(self) -> None:
        """The step is left out on all ranks: what this one had before it is back."""
        with torch.no_grad():
            for name, value in self._before.items():
                self._state(name).copy_(value)

    def give(self, engine: Engine) -> None:
        """What all ranks have sent is the parameter's gradient, in memory of its own: that of backward may be others', too."""
        self.submitted, self._before = False, {}
        with torch.no_grad():
            sent, indices, values = engine.rows(self.index)
            made = self._gradient
            if made is None or made.dtype != self.parameter.dtype or made.device != self.parameter.device:
                made = self._gradient = torch.zeros_like(self.parameter)  # in the parameter's order of elements
            flat = made.view(-1).zero_() if made.is_contiguous() else torch.zeros_like(made, memory_format=torch.contiguous_format).view(-1)
            if sent:
                flat[at_address(indices, sent, torch.int64).to(flat.device)] = at_address(values, sent, self.dtype).to(flat.device, flat.dtype)
            if not made.is_contiguous():
                made.copy_(flat.view(made.shape))
            self.parameter.grad = made.detach()

    def update(self) -> None:
        """The optimizer's step of this parameter. Weight decay has a momentum of its own on each rank, which is that of a sum, as the parameters of
        all ranks are the same."""
        gradient, group = self.parameter.grad, self.group()
        if gradient is None:
            return
        with torch.no_grad():
            rate, share, momentum = float(group["lr"]), group["weight_decay"], group["momentum"]
            if share:
                decay = self._state(DECAY).view_as(self.parameter)
                decay.mul_(momentum).add_(self.parameter, alpha=share)
                self.parameter.add_(self.parameter * share + decay * momentum if group["nesterov"] else decay, alpha=-rate)
            self.parameter.add_(gradient, alpha=-rate)


@contextlib.contextmanager
def updated_first(optimizer: Any, sparsified: List[Sparsified]) -> Iterator[None]:
    """Around a step of the optimizer, which would give these gradients momentum once more: their parameters are updated before it, and have no
    gradient in it."""
    check_optimizer(optimizer)
    for one in sparsified:
        one.update()
    gradients = [one.parameter.grad for one in sparsified]
    for one in sparsified:
        one.parameter.grad = None
    try:
        yield
    finally:
        for one, gradient in zip(sparsified, gradients):
            one.parameter.grad = gradient
