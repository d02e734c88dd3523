"""The softmax cross entropy of classes that are split over ranks (aiacc/softmax.h), on addresses."""
from __future__ import annotations

import ctypes as c
import enum
from typing import Optional, Tuple

from aiacc import _abi
from aiacc._library import library
from aiacc.buffers import DType
from aiacc.groups import Group


class Margin(enum.IntEnum):
    NONE = 0
    ARC = 1
    COS = 2


def split(all_classes: int, group: Group) -> Tuple[int, int]:
    """(the first class of this rank, how many it has)"""
    first, classes = c.c_int64(), c.c_size_t()
    library().aiacc_softmax_split(all_classes, group.handle, c.byref(first), c.byref(classes))
    return first.value, classes.value


def sample(first_class: int, classes: int, labels: int, rows: int, wanted: int, seed: int, ids: int) -> int:
    """How many classes a step uses; their numbers are written to `ids`, ascending."""
    found = c.c_size_t()
    library().aiacc_softmax_sample(first_class, classes, labels, rows, wanted, seed & (2 ** 64 - 1), ids, c.byref(found))
    return found.value


def loss(group: Group, rows: int, all_classes: int, classes: int, first_class: int, dtype: DType, logits: int, labels: int, losses: int,
         ids: Optional[int] = None, margin_kind: Margin = Margin.NONE, margin: float = 0.0, scale: float = 1.0) -> None:
    """`logits` become the gradient of the losses' mean."""
    shard = _abi.SoftmaxShard(size=c.sizeof(_abi.SoftmaxShard), rows=rows, all_classes=all_classes, classes=classes, first_class=first_class,
                              ids=ids, dtype=dtype, margin_kind=margin_kind, margin=margin, scale=scale)
    library().aiacc_softmax_loss(c.byref(shard), logits, labels, losses, group.handle, None)
