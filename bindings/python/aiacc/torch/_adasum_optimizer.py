"""DistributedOptimizer(op=Adasum): each rank makes the step of its own gradients, and the steps of all ranks are summed by Adasum."""
from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Iterator, Optional

import torch

from aiacc.torch import mpi_ops
from aiacc.torch._adasum import check_ranks
from aiacc.torch._operations import Adasum
from aiacc.torch._wrapping import adopt, count_step


class _AdasumOptimizer(torch.optim.Optimizer):
    """Methods that are put in front of the user's class."""
    _wrapped: Any = torch.optim.Optimizer
    _parameter_names: Dict[torch.Tensor, str]
    _compression: Any
    _process_set: Any

    def synchronize(self) -> None:
        """Nothing is on its way before step()."""

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        raise AssertionError("skip_synchronize() is not for op=Adasum: step() makes the step and reduces it")
        yield

    def step(self, closure: Optional[Callable[[], float]] = None) -> Any:  # type: ignore[override]
        count_step(self)
        if not self._process_set.included() or self._process_set.size() == 1:
            return self._wrapped.step(self, closure)
        parameters = list(self._parameter_names)
        before = [one.detach().clone() for one in parameters]
        loss = self._wrapped.step(self, closure)
        with torch.no_grad():
            pairs = [self._compression.compress(one - old) for one, old in zip(parameters, before)]
            reduced = mpi_ops._run_allreduce([pair[0] for pair in pairs], None, Adasum, 1.0, 1.0, self._process_set)
            for one, old, step, (_, context) in zip(parameters, before, reduced, pairs):
                one.copy_(old + self._compression.decompress(step, context))
        return loss


def adasum_optimizer(optimizer: Any, wrapped: Any, names: Dict[torch.Tensor, str], compression: Any, process_set: Any) -> Any:
    check_ranks(process_set.size())
    methods = {key: value for key, value in _AdasumOptimizer.__dict__.items() if key not in ("__dict__", "__weakref__", "__doc__", "__module__")}
    made: Any = object.__new__(type(wrapped.__name__, (wrapped,), {**methods, "_wrapped": wrapped, "__doc__": wrapped.__doc__}))
    adopt(made, optimizer)
    made._parameter_names, made._compression, made._process_set = names, compression, process_set
    return made
