"""An optimizer that changes some rows of a parameter: those of the classes that a step has used."""
from __future__ import annotations

import types
from typing import Any, Callable, Dict, Optional

import torch


class _Small:
    """A parameter that has only the rows `used`, with their gradient and their part of what the optimizer remembers."""

    def __init__(self, optimizer: torch.optim.Optimizer, parameter: torch.nn.Parameter, used: torch.Tensor) -> None:
        self._parameter, self._used, self._state = parameter, used, optimizer.state[parameter]
        self._whole, self._gradient = parameter.data, parameter.grad
        self._states: Dict[str, torch.Tensor] = {name: one for name, one in self._state.items() if self._has_rows(one, self._whole)}
        parameter.grad = None
        parameter.data = self._whole[used]
        parameter.grad = None if self._gradient is None else self._gradient[used]
        for name, one in self._states.items():
            self._state[name] = one[used]

    @staticmethod
    def _has_rows(one: Any, of: torch.Tensor) -> bool:
        return isinstance(one, torch.Tensor) and one.shape == of.shape

    def put_back(self) -> None:
        small = self._parameter.data
        for name, one in self._state.items():
            if self._has_rows(one, small):
                # What the optimizer has begun in this step is 0 of the other rows.
                whole = self._states.get(name)
                self._state[name] = (torch.zeros_like(self._whole, dtype=one.dtype) if whole is None else whole).index_copy_(0, self._used, one)
        self._whole.index_copy_(0, self._used, small)
        self._parameter.grad = None
        self._parameter.data = self._whole
        self._parameter.grad = self._gradient


def step_only_used(optimizer: torch.optim.Optimizer, parameter: torch.nn.Parameter, used: Callable[[], Optional[torch.Tensor]]) -> None:
    """`used` gives the rows of the parameter that the coming step changes; None: all. An optimizer is told once of a parameter."""
    if not any(one is parameter for group in optimizer.param_groups for one in group["params"]):
        raise ValueError("the optimizer does not have the weight: make it of the module's parameters()")
    told = optimizer.__dict__.setdefault("_steps_by_rows", [])
    if any(one is parameter for one in told):
        return
    told.append(parameter)
    whole_step = optimizer.step

    def step(self: torch.optim.Optimizer, closure: Any = None) -> Any:
        loss = None
        if closure is not None:  # a closure that runs forward decides which rows there are
            with torch.enable_grad():
                loss = closure()
        rows = used()
        if rows is None or parameter.grad is None or len(rows) == len(parameter):
            whole_step()
            return loss
        small = _Small(self, parameter, rows)
        try:
            whole_step()
        finally:
            small.put_back()
        return loss
    optimizer.step = types.MethodType(step, optimizer)  # type: ignore[method-assign]
