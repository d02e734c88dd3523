"""Batch normalisation over the batches of all ranks (aiacc/syncbn.h), on addresses: frameworks say whose memory they are."""
from __future__ import annotations

import ctypes as c
import enum
from typing import Any, Optional

from aiacc import _abi
from aiacc._library import library
from aiacc.buffers import DType
from aiacc.groups import Group


class Convention(enum.IntEnum):
    """How running statistics follow those of a batch."""
    TORCH = 0  # (1 - momentum) * running + momentum * new, of the unbiased variance
    MXNET = 1  # momentum * running + (1 - momentum) * new, of the biased variance


def batch(samples: int, channels: int, positions: int, dtype: DType, channels_last: bool = False) -> _abi.SyncbnBatch:
    """What a rank's elements are: samples x channels x positions, or with the channels last."""
    return _abi.SyncbnBatch(size=c.sizeof(_abi.SyncbnBatch), samples=samples, channels=channels, positions=positions, dtype=dtype, layout=int(channels_last))


class SyncBN:
    """Belongs to the ranks of a group, each of which makes it. Serves all layers of a model, whose order is equal on all ranks."""

    def __init__(self, group: Group, name: str) -> None:
        made = _abi.Handle()
        attr = _abi.SyncbnAttr(size=c.sizeof(_abi.SyncbnAttr), name=name.encode())
        library().aiacc_syncbn_create(group.handle, c.byref(attr), c.byref(made))
        self.handle = made.value

    def forward(self, of: _abi.SyncbnBatch, x: int, y: int, saved: int, weight: Optional[int] = None, bias: Optional[int] = None,
                running_mean: Optional[int] = None, running_variance: Optional[int] = None, epsilon: float = 1e-5, momentum: float = 0.1,
                convention: Convention = Convention.TORCH) -> None:
        """`saved`: 2 * channels + 1 fp64 numbers, for backward: means, reciprocal deviations, and the elements of a channel on all ranks."""
        layer = _abi.SyncbnLayer(size=c.sizeof(_abi.SyncbnLayer), weight=weight, bias=bias, running_mean=running_mean,
                                 running_variance=running_variance, epsilon=epsilon, momentum=momentum, convention=convention)
        library().aiacc_syncbn_forward(self.handle, c.byref(of), c.byref(layer), x, y, saved)

    def backward(self, of: _abi.SyncbnBatch, weight: Optional[int], saved: int, x: int, dy: int, dx: Optional[int], dweight: Optional[int],
                 dbias: Optional[int]) -> None:
        library().aiacc_syncbn_backward(self.handle, c.byref(of), weight, saved, x, dy, dx, dweight, dbias)

    def join(self) -> None:
        """This rank has no more batches: returns when all ranks have called it. A pass of another rank ends both, with Mismatch."""
        library().aiacc_syncbn_join(self.handle)

    def abort(self, reason: str) -> None:
        """Ends it on all ranks: who waits in a call raises Aborted."""
        library().aiacc_syncbn_abort(self.handle, reason.encode())

    def free(self) -> Any:
        library().aiacc_syncbn_free(self.handle)
