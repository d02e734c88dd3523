"""DistributedTrainer: a gluon Trainer whose steps use the gradients of all ranks."""
from __future__ import annotations

import warnings
from typing import Any, Dict, Optional

import mxnet as mx

from aiacc._arguments import number, whole
from aiacc._horovod import basics, operations
from aiacc._horovod.process_sets import ProcessSet, checked_set, global_process_set
from aiacc.mxnet import tensors
from aiacc.mxnet._gradients import Reducer, gradient_of
from aiacc.mxnet._sparse_gradients import is_sparse
from aiacc.mxnet.compression import Compression
from aiacc.mxnet.optimizer import DistributedOptimizer

_made = 0  # trainers of this process: each has a channel of its own


class DistributedTrainer(mx.gluon.Trainer):
    """mx.gluon.Trainer without a kvstore. Gradients are summed over the ranks of the process set, and step() divides by their number, so
    that its batch size is that of one rank.

    `gradient_predivide_factor`: a part of the average's division comes before the sum. `prefix`: before the parameters' names, where
    several trainers have equal ones. `num_groups` is accepted: the engine forms groups of neighbours by itself. Gradients of rows
    (grad_stype="row_sparse", as of an Embedding with sparse_grad=True) travel as rows, are summed in full precision, and stay sparse.
    """

    def __init__(self, params: Any, optimizer: Any, optimizer_params: Optional[Dict[str, Any]] = None, compression: Any = Compression.none,
                 gradient_predivide_factor: float = 1.0, prefix: Optional[str] = None, num_groups: int = 0,
                 process_set: ProcessSet = global_process_set) -> None:
        global _made
        if not hasattr(compression, "wire"):
            raise ValueError(f"compression is {compression!r}: it is Compression.none or Compression.fp16")
        checked_set(process_set)
        gradient_predivide_factor = number("gradient_predivide_factor", gradient_predivide_factor)
        if gradient_predivide_factor <= 0 or whole("num_groups", num_groups) < 0:
            raise ValueError(f"gradient_predivide_factor is {gradient_predivide_factor} and num_groups {num_groups}: they are above 0, and 0 or more")
        if isinstance(optimizer, DistributedOptimizer):
            warnings.warn("DistributedTrainer reduces the gradients itself: it takes the optimizer that the DistributedOptimizer was made of", stacklevel=2)
            if optimizer._process_set.included():
                optimizer._optimizer.rescale_grad *= optimizer._process_set.size() / optimizer._factor
            optimizer = optimizer._optimizer
        super().__init__(params, optimizer, optimizer_params, kvstore=None)
        if process_set.included():
            self._scale *= gradient_predivide_factor / process_set.size()
        self._predivide, self._compression, self._prefix, self._process_set = gradient_predivide_factor, compression, prefix or "", process_set
        self._number, self._left_out = _made, False
        self._reducer: Optional[Reducer] = None
        _made += 1

    def _plan(self) -> Reducer:
        """Agrees with all ranks on names, types and shapes."""
        trained = [(f"{self._prefix}{i}.{one.name}", one) for i, one in enumerate(self._params) if one.grad_req != "null"]
        channel = self._process_set._channel(f"mxopt{self._number}")
        channel.run(operations.Agreement("DistributedTrainer", {
            "parameters": [[name, *tensors.describe(gradient_of(one)), *(["row_sparse"] if is_sparse(one) else [])] for name, one in trained], "compression": self._compression.__name__,
            "gradient_predivide_factor": self._predivide}))
        reducer = Reducer(channel.group, f"DistributedTrainer {self._number}", 1.0 / self._predivide)
        reducer.add((name, one, self._compression.wire) for name, one in reversed(trained))
        self._process_set._optimizers.append(reducer)
        return reducer

    def _allreduce_grads(self) -> None:
        basics._known()
        self._left_out = False
        if self._process_set._reduced_ranks() == 1:
            return
        if self._reducer is None:
            self._reducer = self._plan()
        not_finite = self._reducer.reduce()
        if not_finite is not None:
            self._left_out = True
            warnings.warn(f"this step changes no parameter on any rank: {not_finite}", RuntimeWarning, stacklevel=3)

    def _update(self, ignore_stale_grad: bool = False) -> None:
        if not self._left_out:
            super()._update(ignore_stale_grad)
