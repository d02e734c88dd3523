"""The operations on tensors of torch."""
from __future__ import annotations

from typing import Any, Dict, Optional, Sequence

import torch

from aiacc._horovod import channel, operations
from aiacc._horovod.channel import Channel, Operation
from aiacc._horovod.operations import (OP_NAMES, OPS, Adasum, AllgatherBytes, Agreement, Average, Barrier, BroadcastBytes, Max, Min,  # noqa: F401
                                       Product, Sum, checked_op, scales_of)
from aiacc.torch import tensors as _tensors
from aiacc.torch._adasum import adasum, check_ranks
from aiacc.torch._sparse import SparseAllreduce


class Allreduce(operations.Allreduce):
    tensors: Any = _tensors
    reduces_adasum = True

    def __init__(self, name: Optional[str], inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor], op: int, prescale: float,
                 postscale: float) -> None:
        super().__init__(name, [_tensors.on_host(one) for one in inputs], outputs, op, prescale, postscale)
        if op == Adasum and not all(one.is_floating_point() for one in inputs):
            raise ValueError(f"{self}: op=Adasum takes tensors of a floating point type")

    def check_ranks(self, ranks: int) -> None:
        if self.op == Adasum:
            check_ranks(ranks)

    def reduce_adasum(self, channel: Channel, given: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> None:
        before, after = self.scales
        with torch.no_grad():
            sums = adasum(channel.group, channel.rank, channel.size, [one * before if before != 1.0 else one for one in given])
            for result, one in zip(results, sums):
                _tensors.put(result, one * after if after != 1.0 else one)


Allgather, Broadcast, Alltoall, Reducescatter = operations.of_framework(
    _tensors, operations.Allgather, operations.Broadcast, operations.Alltoall, operations.Reducescatter)


class Join(channel.Join):
    """Takes part in allreduces with zeros, or without rows."""

    def stand_in(self, description: Dict[str, Any]) -> Optional[Operation]:
        if description["operation"] == SparseAllreduce.kind:
            return SparseAllreduce.without_rows(description)
        if description["operation"] != Allreduce.kind:
            return None
        zeros = [_tensors.described(one) for one in description["type and shape"]]
        op = next(number for number, name in OP_NAMES.items() if name == description["op"])
        return Allreduce(description["name"], zeros, zeros, op, *description["prescale and postscale factors"])
