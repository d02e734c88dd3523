"""The parameters of a LocalSGD in parts, and averages of these on their way: what they hold. When they begin and what they change is in local_sgd.py."""
from __future__ import annotations

from typing import Any, Dict, List, Optional

import torch

from aiacc._horovod.process_sets import ProcessSet
from aiacc.gradients import Wire
from aiacc.torch import mpi_ops

_SHORT = (torch.float16, torch.bfloat16)  # which are averaged in 32 bits
_PIECE = 4 << 20  # elements, about: parameters are copied into a piece while those before are on their way, and back likewise


class Fragment:
    """Tensors that are averaged together. `pieces`: indices of neighbours of one type and device, which travel as one tensor. `base`: what all ranks had after the last
    average, where that is kept."""

    def __init__(self, number: int, tensors: List[torch.Tensor], offset: int, keeps_base: bool, wire: Wire) -> None:
        self.number, self.tensors, self.offset, self.keeps_base, self.wire = number, tensors, offset, keeps_base, wire
        self.pieces = _pieces(tensors)
        self.base = [carried(one).clone() for one in tensors] if keeps_base else []
        self.has_base = False
        self.average: Optional[PendingAverage] = None  # on its way
        self.averaged_at = -1  # step; it is not known


class PendingAverage:
    """An average of a fragment that is on its way, of the ranks of `process_set`. `relative`: to the base; `before`: the tensors as they were, if steps go on meanwhile;
    `flags`: see LocalSGD._begin(); `handles`: of these, and of each piece. `share`: of an exchange (gossip.py), how far this rank goes to the average."""

    def __init__(self, process_set: ProcessSet, at: int, delay: int, wire: Wire, share: Optional[float]) -> None:
        self.process_set, self.at, self.due, self.wire, self.share = process_set, at, at + delay, wire, share
        self.relative = False
        self.before: List[torch.Tensor] = []
        self.flags = torch.zeros(2, dtype=torch.float64)
        self.flats: List[torch.Tensor] = []
        self.handles: List[int] = []


def carried(tensor: torch.Tensor) -> torch.Tensor:
    """As it is averaged: 16-bit numbers in 32."""
    found = tensor.detach()
    return found.float() if found.dtype in _SHORT else found


def _pieces(tensors: List[torch.Tensor]) -> List[List[int]]:
    pieces: List[List[int]] = []
    sizes: Dict[Any, int] = {}
    last: Dict[Any, List[int]] = {}
    for i, one in enumerate(tensors):
        kind = (torch.float32 if one.dtype in _SHORT else one.dtype, one.device)
        if kind not in last or sizes[kind] + one.numel() > _PIECE:
            last[kind], sizes[kind] = [], 0
            pieces.append(last[kind])
        last[kind].append(i)
        sizes[kind] += one.numel()
    return pieces


def parts_of(tensors: List[torch.Tensor], many: int) -> List[List[torch.Tensor]]:
    """Of neighbours, about equally large."""
    parts: List[List[torch.Tensor]] = [[]]
    left, size = sum(one.numel() for one in tensors), 0
    for i, one in enumerate(tensors):
        wanted = left / (many - len(parts) + 1)
        if parts[-1] and len(parts) < many and (size + one.numel() / 2 > wanted or len(tensors) - i <= many - len(parts)):
            left, size = left - size, 0
            parts.append([])
        parts[-1].append(one)
        size += one.numel()
    return parts


def wait(handles: List[int]) -> None:
    for handle in handles:
        mpi_ops.synchronize(handle)
