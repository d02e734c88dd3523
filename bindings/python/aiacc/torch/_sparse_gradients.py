"""Sparse gradients of one optimizer, reduced beside the gradient engine while backward goes on.

Ranks reduce them in one order, which they have agreed on, so nothing is negotiated: a gradient that is ready waits for those before it.
"""
from __future__ import annotations

from typing import Dict, List

import torch

from aiacc._horovod.process_sets import ProcessSet
from aiacc.torch._operations import Join
from aiacc.torch._sparse import SparseAllreduce


class SparseGradients:
    """`names`: the parameters, in the same order on all ranks. `number` is the optimizer's."""

    def __init__(self, process_set: ProcessSet, number: int, names: Dict[torch.Tensor, str], op: int) -> None:
        self._channel = process_set._channel(f"sp{number}")
        self._names, self._op = names, op
        self._order = list(names)
        self._ready: Dict[torch.Tensor, torch.Tensor] = {}
        self._started: List[SparseAllreduce] = []
        self._steps = 0
        process_set._optimizers.append(self)

    def __contains__(self, parameter: torch.Tensor) -> bool:
        return parameter in self._names

    def submit(self, parameter: torch.Tensor) -> None:
        """The parameter's gradient is complete on this rank. None counts as one without rows. So does what is left of a sparse one by
        zero_grad of torch 1, which has other sparse dimensions."""
        gradient = parameter.grad
        if gradient is None or (gradient.layout != torch.strided and gradient._nnz() == 0):
            gradient = torch.zeros_like(parameter)
        self._ready[parameter] = gradient if gradient.layout != torch.strided else gradient.to_sparse(1)
        while len(self._started) < len(self._order) and self._order[len(self._started)] in self._ready:
            one = self._order[len(self._started)]
            operation = SparseAllreduce(self._names[one], self._ready[one], self._op)
            self._started.append(operation)
            self._channel.start(operation)

    def submit_rest(self) -> None:
        for one in self._order:
            if one not in self._ready:
                self.submit(one)

    def wait(self) -> None:
        """Gradients become those of all ranks."""
        for parameter, operation in zip(self._order, self._started):
            parameter.grad = self._channel.wait(operation).to(parameter.device)

    def steps(self) -> int:
        return self._steps

    def reset(self) -> None:
        """The next step begins."""
        self._steps += 1
        self._ready, self._started = {}, []

    def join(self) -> None:
        """This rank takes part without rows until all have joined."""
        self._channel.run(Join(None))

    def close(self) -> None:
        """The process set closes its channels."""
