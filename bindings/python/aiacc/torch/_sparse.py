"""Sums of sparse tensors: by gathering their rows, or as dense ones if that moves fewer bytes."""
from __future__ import annotations

import math
from typing import Any, Dict, List, Optional, Tuple

import torch

from aiacc._horovod.channel import Channel, Operation
from aiacc._horovod.operations import OP_NAMES, Average, Sum
from aiacc.buffers import Op
from aiacc.torch import tensors as _tensors

# Indices are those of tensors that were valid. torch >= 2.0 warns if nothing is said about it.
UNCHECKED: Any = {"check_invariants": False} if hasattr(torch.sparse, "check_sparse_tensor_invariants") else {}
_INDEX_BYTES = 8


def checked(tensor: Any) -> torch.Tensor:
    """Coalesced, and on the host."""
    if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.sparse_coo:
        raise ValueError(f"tensor is {getattr(tensor, 'layout', type(tensor).__name__)}: sparse_allreduce_async takes tensors of torch.sparse_coo")
    found = tensor.detach()
    found = (found if found.is_coalesced() else found.coalesce()).cpu()
    _tensors.check(found._values())
    return found


class SparseAllreduce(Operation):
    """Of one sparse tensor. Its result has the rows that any rank has, coalesced; a row that ranks have twice is summed."""
    kind = "sparse allreduce"

    def __init__(self, name: Optional[str], tensor: torch.Tensor, op: int) -> None:
        super().__init__(name)
        if op not in (Average, Sum):
            raise ValueError(f"op of a sparse tensor is Average or Sum, not {OP_NAMES[op]}")
        self.given, self.op = checked(tensor), op
        self.own_number = self.given._nnz()
        self.sparse_shape = self.given.shape[:self.given.sparse_dim()]
        self.row_shape = self.given.shape[self.given.sparse_dim():]

    def description(self) -> Dict[str, Any]:
        return {**super().description(), "type and shape": _tensors.describe(self.given), "number of sparse dimensions": len(self.sparse_shape),
                "op": OP_NAMES[self.op]}

    def refusal(self, joined: List[int]) -> Optional[str]:
        return None

    @staticmethod
    def without_rows(description: Dict[str, Any]) -> SparseAllreduce:
        """What a rank that has joined contributes."""
        (dtype, *shape), sparse = description["type and shape"], description["number of sparse dimensions"]
        values = _tensors.described([dtype, 0, *shape[sparse:]])
        empty = torch.sparse_coo_tensor(torch.empty((sparse, 0), dtype=torch.int64, device="cpu"), values, shape, device="cpu", **UNCHECKED)
        return SparseAllreduce(description["name"], empty, next(number for number, name in OP_NAMES.items() if name == description["op"]))

    def gathers(self, rows: int) -> bool:
        """Whether gathering so many rows, of all ranks together, moves no more bytes than an allreduce of the dense tensor. A rank receives
        (n−1)/n of these rows, and sends and receives (n−1)/n of the dense tensor twice."""
        row = math.prod(self.row_shape) * self.given._values().element_size()
        dense = math.prod(self.sparse_shape) * (row + 1)
        return rows * (row + _INDEX_BYTES * len(self.sparse_shape)) <= 2 * dense

    def run(self, channel: Channel, numbers: List[int]) -> None:
        with torch.no_grad():
            indices, values = self._gather(channel, numbers) if self.gathers(sum(numbers)) else self._reduce_dense(channel)
            if self.op == Average:
                values = values / channel.size
            self.output = torch.sparse_coo_tensor(indices, values, self.given.shape, device="cpu", **UNCHECKED).coalesce()

    def _gather(self, channel: Channel, numbers: List[int]) -> Tuple[torch.Tensor, torch.Tensor]:
        gathered = []
        for own in (self.given._indices().t().contiguous(), self.given._values().contiguous()):
            result = _tensors.rows_like(own, sum(numbers))
            each = math.prod(own.shape[1:])
            if result.numel():
                channel.group.allgather(_tensors.buffer_of(own), _tensors.buffer_of(result), counts=[each * number for number in numbers])
            gathered.append(result)
        return gathered[0].t(), gathered[1]

    def _reduce_dense(self, channel: Channel) -> Tuple[torch.Tensor, torch.Tensor]:
        """Which rows there are travels beside them: one that sums up to zeros is a row too."""
        numbers = torch.zeros(self.given._nnz(), dtype=torch.int64, device="cpu")
        for size, indices in zip(self.sparse_shape, self.given._indices()):
            numbers = numbers * size + indices
        dense = torch.zeros((math.prod(self.sparse_shape), *self.row_shape), dtype=self.given.dtype, device="cpu")
        exists = torch.zeros(len(dense), dtype=torch.uint8, device="cpu")
        dense[numbers], exists[numbers] = self.given._values(), 1
        channel.group.allreduce(_tensors.buffer_of(dense), _tensors.buffer_of(dense), Op.SUM, name=self.name)
        channel.group.allreduce(_tensors.buffer_of(exists), _tensors.buffer_of(exists), Op.MAX)
        rest = found = exists.nonzero().flatten()
        indices = []
        for size in reversed(self.sparse_shape):
            indices.append(rest % size)
            rest = torch.div(rest, size, rounding_mode="floor")
        return torch.stack(indices[::-1]), dense[found]
