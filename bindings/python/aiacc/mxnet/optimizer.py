"""DistributedOptimizer: an optimizer, as of Module, whose updates use the gradients of all ranks."""
from __future__ import annotations

from typing import Any, Dict, List

import mxnet as mx

from aiacc._arguments import number, whole
from aiacc._horovod.operations import Sum
from aiacc._horovod.process_sets import ProcessSet, checked_set, global_process_set
from aiacc.mxnet.mpi_ops import allreduce_, grouped_allreduce_

_made = 0  # optimizers of this process: their gradients have different names


class DistributedOptimizer(mx.optimizer.Optimizer):
    """The optimizer, which is given gradients that were summed over all ranks; its rescale_grad becomes that of their average.

    `gradient_predivide_factor`: a part of the average's division comes before the sum. `num_groups`: of so many groups each is
    reduced as one operation, where the caller updates several parameters at once.
    """

    def __init__(self, optimizer: mx.optimizer.Optimizer, gradient_predivide_factor: float = 1.0, num_groups: int = 0,
                 process_set: ProcessSet = global_process_set) -> None:
        global _made
        if not isinstance(optimizer, mx.optimizer.Optimizer):
            raise ValueError(f"optimizer is of {type(optimizer).__name__}: it is an mx.optimizer.Optimizer, as mx.optimizer.create makes")
        checked_set(process_set)
        gradient_predivide_factor = number("gradient_predivide_factor", gradient_predivide_factor)
        if gradient_predivide_factor <= 0:
            raise ValueError(f"gradient_predivide_factor is {gradient_predivide_factor}: it is above 0")
        if whole("num_groups", num_groups) < 0:
            raise ValueError(f"num_groups is {num_groups}: it is 0 or more")
        if process_set.included():
            optimizer.rescale_grad *= gradient_predivide_factor / process_set.size()
        self._optimizer, self._factor, self._num_groups, self._process_set, self._number = \
            optimizer, gradient_predivide_factor, num_groups, process_set, _made
        _made += 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_optimizer"], name)

    def _reduce(self, index: Any, grad: Any) -> None:
        if self._process_set._reduced_ranks() == 1:
            return
        how: Dict[str, Any] = {"prescale_factor": 1.0 / self._factor, "process_set": self._process_set, "op": Sum}
        if not isinstance(index, (tuple, list)):
            allreduce_(grad, name=f"gradient.{self._number}.{index}", priority=-index if isinstance(index, int) else 0, **how)
        elif self._num_groups:
            for part in _parts(list(grad), self._num_groups):
                grouped_allreduce_(part, **how)
        else:
            for one, array in zip(index, grad):
                self._reduce(one, array)

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        self._reduce(index, grad)
        self._optimizer.update(index, weight, grad, state)

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        self._reduce(index, grad)
        self._optimizer.update_multi_precision(index, weight, grad, state)

    def create_state(self, index: Any, weight: Any) -> Any:
        return self._optimizer.create_state(index, weight)

    def create_state_multi_precision(self, index: Any, weight: Any) -> Any:
        return self._optimizer.create_state_multi_precision(index, weight)

    def set_learning_rate(self, lr: float) -> None:
        self._optimizer.set_learning_rate(lr)

    def set_lr_mult(self, args_lr_mult: Any) -> None:
        self._optimizer.set_lr_mult(args_lr_mult)

    def set_wd_mult(self, args_wd_mult: Any) -> None:
        self._optimizer.set_wd_mult(args_wd_mult)

    @property
    def learning_rate(self) -> float:
        return self._optimizer.learning_rate


def _parts(arrays: List[Any], count: int) -> List[List[Any]]:
    each, rest = divmod(len(arrays), count)
    begins = [i * each + min(i, rest) for i in range(count + 1)]
    return [arrays[begin:end] for begin, end in zip(begins, begins[1:]) if begin < end]
