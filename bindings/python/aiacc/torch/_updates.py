"""The update that an optimizer's step makes, of some parameters at a time: each follows once its own gradient is reduced."""
from __future__ import annotations

import contextlib
import itertools
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

import torch
import torch.optim.optimizer as torch_optimizer

from aiacc._horovod.exceptions import HorovodInternalError
from aiacc.requests import _TICK_MS
from aiacc.torch._gradients import Reducer

# Optimizers of torch that update each parameter by itself, and count nothing for all of a group.
_NAMES = ("SGD", "Adam", "AdamW", "Adafactor", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "RMSprop", "Rprop", "SparseAdam")
_KNOWN = tuple(getattr(torch.optim, name) for name in _NAMES if hasattr(torch.optim, name))


def _without_hooks(step: Any) -> Any:
    """torch puts a function of its own around the step of each class of optimizers, which runs hooks and tells the profiler."""
    is_torchs = getattr(step, "hooked", False) and step.__code__.co_filename == torch_optimizer.__file__
    return step.__wrapped__ if is_torchs else step


def update_of(wrapped: Any) -> Optional[Callable[[Any], Any]]:
    """The step of an optimizer of this class without its hooks; None: it is not known to update each parameter by itself."""
    update = _without_hooks(wrapped.step)
    return update if any(issubclass(wrapped, one) and update is _without_hooks(one.step) for one in _KNOWN) else None


def has_hooks(optimizer: Any) -> bool:
    """Whether something else belongs to a step as a whole: hooks, or what a GradScaler tells an optimizer."""
    everywhere = [getattr(torch_optimizer, f"_global_optimizer_{when}_hooks", None) for when in ("pre", "post")]
    own = [getattr(optimizer, f"_optimizer_step_{when}_hooks", None) for when in ("pre", "post")]
    told = [getattr(optimizer, name, None) for name in ("grad_scale", "found_inf")]
    return any(everywhere) or any(own) or any(one is not None for one in told)


def _kept(option: Any) -> Any:
    """A scheduler of learning rates changes a tensor where it is."""
    return option.clone() if isinstance(option, torch.Tensor) else option


def _autocasts(device: str) -> bool:
    if _autocasts_by_device:
        return bool(torch.is_autocast_enabled(device))
    return bool(torch.is_autocast_cpu_enabled() if device == "cpu" else torch.is_autocast_enabled())


_autocasts_by_device = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 4)


@contextlib.contextmanager
def _as_in_a_step() -> Iterator[None]:
    """A forward pass may be in inference mode, in which state is made that could not be changed later, and under autocast, which would round."""
    with torch.inference_mode(False), contextlib.ExitStack() as stack:
        for device in ("cpu", "cuda"):
            if _autocasts(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        yield


class Updates:
    """What is left of a step: parameters that have the values of the step before."""

    def __init__(self, optimizer: Any, reducer: Reducer, update: Callable[[Any], Any], order: Iterable[torch.Tensor], hides: bool = False) -> None:
        """All gradients of the step are submitted. `order`: that in which results are expected. `hides`: the gradients are taken off the parameters,
        whose `grad` is None before and after their update."""
        self._optimizer, self._reducer, self._update, self._hides = optimizer, reducer, update, hides
        self._options = [{name: _kept(option) for name, option in group.items() if name != "params"} for group in optimizer.param_groups]
        self._group_of = {one: number for number, group in enumerate(optimizer.param_groups) for one in group["params"]}
        self._left: Dict[torch.Tensor, Optional[torch.Tensor]] = {one: one.grad for one in order}
        self._name = f"Optimizer.step#{type(optimizer).__name__}.step"  # as torch tells its profiler
        if hides:
            for one in self._left:
                one.grad = None

    def left(self) -> List[torch.Tensor]:
        return list(self._left)

    def finish(self) -> None:
        while self._left:
            self.of([next(iter(self._left))])

    def of(self, parameters: Iterable[torch.Tensor]) -> None:
        """Updates those of these that are left, and others that need not be waited for: each call of an optimizer costs some time of its own.
        After an error of the optimizer's the rest of the step is reduced, and updates nothing, as if it had come up in a step as a whole."""
        wanted = {one: None for one in parameters if one in self._left}
        if not wanted:
            return
        self._wait_for(wanted)
        others = (one for one in self._left if one not in wanted)
        try:
            with _as_in_a_step(), torch.autograd.profiler.record_function(self._name):
                self._make([*wanted, *itertools.takewhile(self._reducer.is_reduced, others)])
        except HorovodInternalError:
            raise
        except Exception:
            self._wait_for(self._left)
            for one in list(self._left):
                self._put_back(one, self._take(one))
            self._reducer.end_wait()
            raise
        if not self._left:
            self._reducer.end_wait()

    def _wait_for(self, parameters: Iterable[torch.Tensor]) -> None:
        for one in parameters:
            while not self._reducer.is_reduced(one, within_ms=_TICK_MS):
                pass

    def _take(self, one: torch.Tensor) -> Optional[torch.Tensor]:
        """The parameter has its reduced gradient. Returns what it had meanwhile."""
        gradient, meanwhile = self._left.pop(one), one.grad
        if self._hides:
            one.grad = gradient
        self._reducer.give(one)
        return meanwhile

    def _put_back(self, one: torch.Tensor, meanwhile: Optional[torch.Tensor]) -> None:
        if self._hides:
            one.grad = meanwhile

    def _make(self, these: List[torch.Tensor]) -> None:
        parts: Dict[int, Any] = {}
        taken: List[Tuple[torch.Tensor, Optional[torch.Tensor]]] = []
        groups = self._optimizer.param_groups
        try:
            for one in these:
                taken.append((one, self._take(one)))
                number = self._group_of.get(one)
                if number is not None:  # else its group was taken from the optimizer
                    parts.setdefault(number, {**self._options[number], "params": []})["params"].append(one)
            self._optimizer.param_groups = list(parts.values())
            if parts:
                self._update(self._optimizer)
        finally:
            self._optimizer.param_groups = groups
            for one, meanwhile in taken:
                self._put_back(one, meanwhile)
