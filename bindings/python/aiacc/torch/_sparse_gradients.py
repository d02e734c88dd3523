"""The sparse gradient of a parameter, as of an embedding, which the gradient engine reduces as rows of a table."""
from __future__ import annotations

import math
from typing import Iterable, Tuple

import torch

from aiacc.buffers import DType, Op
from aiacc.gradients import Engine
from aiacc.torch import tensors
from aiacc.torch._memory import at_address
from aiacc.torch._operations import OP_NAMES, Average, Sum
from aiacc.torch._sparse import UNCHECKED, checked


def check_tables(names: Iterable[str], op: int) -> None:
    for name in names:
        if op not in (Average, Sum):
            raise ValueError(f"op of a sparse gradient ('{name}') is Average or Sum, not {OP_NAMES[op]}")


class Rows:
    """A gradient that travels as rows of a table of the engine's, of which this rank has some."""
    index: int
    submitted = False

    def send(self, engine: Engine, prepared: Tuple[torch.Tensor, torch.Tensor]) -> None:
        """The numbers of rows, and their elements."""
        rows, values = prepared
        engine.submit_rows(self.index, tensors.buffer_of(rows), tensors.buffer_of(values), wants_request=False)
        self.submitted = True

    def leave(self) -> None:
        """Nothing of the parameter's is in the engine's memory."""


class Table(Rows):
    """A row for each index of the gradient's `sparse_dims` sparse dimensions, which count as one. Its elements keep the type that the
    parameter has now."""

    def __init__(self, engine: Engine, name: str, parameter: torch.Tensor, sparse_dims: int, op: Op, scales: Tuple[float, float],
                 priority: int) -> None:
        self.parameter, self.sparse_dims, self.dtype = parameter, sparse_dims, parameter.dtype
        self.sparse_shape, self.row_shape = parameter.shape[:sparse_dims], parameter.shape[sparse_dims:]
        self.index = engine.add(name, math.prod(self.sparse_shape), DType(tensors.type_of(tensors.check(parameter).dtype)), op, *scales,
                                priority=priority, row_elements=math.prod(self.row_shape))

    @staticmethod
    def fits(parameter: torch.Tensor, sparse_dims: int) -> bool:
        """Whether the gradient's rows have elements."""
        return math.prod(parameter.shape[sparse_dims:]) > 0

    def prepare(self) -> Tuple[torch.Tensor, torch.Tensor]:
        """The parameter's gradient is complete on this rank. None counts as one without rows. So does what is left of a sparse one by
        zero_grad of torch 1, which has other sparse dimensions."""
        gradient = self.parameter.grad
        if gradient is None or (gradient.layout != torch.strided and gradient._nnz() == 0):
            return torch.empty(0, dtype=torch.int64, device="cpu"), torch.empty((0, *self.row_shape), dtype=self.dtype, device="cpu")
        with torch.no_grad():
            if gradient.layout == torch.strided or gradient.sparse_dim() != self.sparse_dims:
                gradient = (gradient if gradient.layout == torch.strided else gradient.to_dense()).to_sparse(self.sparse_dims)
            given = checked(gradient)
            rows = given._indices()[0]
            for size, indices in zip(self.sparse_shape[1:], given._indices()[1:]):
                rows = rows * size + indices
            return rows.contiguous(), given._values().to(self.dtype).contiguous()

    def give(self, engine: Engine) -> None:
        """The rows of all ranks are the parameter's gradient."""
        self.submitted = False
        count, rows, values = engine.rows(self.index)
        rest = at_address(rows, count, torch.int64).clone()
        elements = at_address(values, count * math.prod(self.row_shape), self.dtype).to(self.parameter.dtype, copy=True)
        indices = []
        for size in reversed(self.sparse_shape[1:]):
            indices.append(rest % size)
            rest = torch.div(rest, size, rounding_mode="floor")
        gradient = torch.sparse_coo_tensor(torch.stack([rest, *indices[::-1]]), elements.view(count, *self.row_shape), self.parameter.shape,
                                           device="cpu", **UNCHECKED)
        self.parameter.grad = gradient._coalesced_(True).to(self.parameter.device)  # rows ascend
