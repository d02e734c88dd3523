"""The tensors of named allreduces: an engine that has them, and when another engine shall take its place.

An engine keeps a tensor of each name, and of each shape that it had, until it is freed. Programs put counters into names ("loss.17"), so
engines are replaced. All ranks agree on which calls are the first of the new engine (Upkeep): those that no rank has started. The old one has those
that some rank has started, until all have ended; then it is freed, by all ranks.
"""
from __future__ import annotations

import json
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from aiacc._horovod.channel import Channel, Operation, canonical
from aiacc.buffers import Buffer, Op
from aiacc.gradients import Engine, Wire

# What an engine has of tensors before it is replaced. Both double if most names were there before: the program needs so many.
_MOST_TENSORS, _MOST_BYTES = 512, 64 << 20
_REMEMBERED = 1 << 16  # names


class Metadata(NamedTuple):
    """What is equal on all ranks."""
    shape: Any
    op: int
    prescale: float
    postscale: float


class Tensor(NamedTuple):
    """Of a name."""
    metadata: Metadata
    changes: int  # how many others it had before
    index: int  # type: ignore[assignment]  # number of the engine


class Limits:
    """How many tensors an engine may have, and names that were seen, by their hashes."""

    def __init__(self) -> None:
        self.tensors, self.bytes = _MOST_TENSORS, _MOST_BYTES
        self._seen: Dict[int, None] = {}

    def saw_before(self, name: str) -> bool:
        key = hash(name)
        before = key in self._seen
        self._seen[key] = None
        if len(self._seen) > _REMEMBERED:
            del self._seen[next(iter(self._seen))]
        return before


class Table:
    """An engine, and what this rank has started there."""

    def __init__(self, engine: Engine, epoch: int, limits: Limits) -> None:
        self.engine, self.epoch, self._limits = engine, epoch, limits
        self.calls: Dict[str, int] = {}  # of each name, since the epoch began
        self.late: Dict[str, int] = {}  # of one that was replaced: the last call of each name that belongs here
        self.outstanding: Dict[Tuple[str, int], Any] = {}  # by name and call: PendingNamed
        self._many = _MOST_TENSORS
        self._tensors: Dict[str, Tensor] = {}
        self._added = self._bytes = self._again = self._bytes_again = 0

    def index(self, name: str, metadata: Metadata, row: str, given: Buffer, op: Op, wire: Wire, priority: int) -> int:
        """All ranks change a tensor with the same call of its name: it is another tensor of the engine from then on. The priority is that
        of its first call."""
        before = self._tensors.get(name)
        if before is not None and before.metadata == metadata:
            return before.index
        changes = 0 if before is None else before.changes + 1
        index = self.engine.add(f"{row} #{changes}" if changes else row, given.count, given.dtype, op, metadata.prescale, metadata.postscale,
                                wire, priority)
        size = given.count * given.dtype.itemsize
        self._tensors[name] = Tensor(metadata, changes, index)
        self._added, self._bytes = self._added + 1, self._bytes + size
        if before is None and self._limits.saw_before(name):
            self._again, self._bytes_again = self._again + 1, self._bytes_again + size
        return index

    def started(self, name: str, pending: Any) -> None:
        self.outstanding[name, self.calls[name]] = pending
        if len(self.outstanding) > self._many:
            self.forget_ended()
            self._many = 2 * len(self.outstanding) + _MOST_TENSORS

    def is_full(self) -> bool:
        """Where most was in an engine before, it may have more."""
        limits = self._limits
        if self._added < limits.tensors and self._bytes < limits.bytes:
            return False
        if self._added >= limits.tensors and 2 * self._again >= self._added:
            limits.tensors = 2 * self._added
        if self._bytes >= limits.bytes and 2 * self._bytes_again >= self._bytes:
            limits.bytes = 2 * self._bytes
        return self._added >= limits.tensors or self._bytes >= limits.bytes

    def forget_ended(self) -> None:
        for key in [key for key, pending in self.outstanding.items() if pending.has_ended()]:
            del self.outstanding[key]

    def last_outstanding(self) -> Dict[str, int]:
        """Of each name the last call that has not ended."""
        self.forget_ended()
        last: Dict[str, int] = {}
        for name, call in self.outstanding:
            last[name] = max(call, last.get(name, 0))
        return last

    def has_next_of(self, name: str) -> bool:
        return self.calls.get(name, 0) < self.late.get(name, 0)

    def is_over(self) -> bool:
        """Of one that was replaced: all that belongs here has ended."""
        self.forget_ended()
        return not self.outstanding and not any(self.has_next_of(name) for name in self.late)


class Said(NamedTuple):
    """By a rank, while it starts nothing."""
    number: int  # of errors that have ended engines
    epoch: int
    joins: bool
    old: Optional[bool]  # is over; None: there is no old engine
    outstanding: Dict[str, int]


class Upkeep(Operation):
    """Runs when all ranks have started it: as each of them has a full engine, or an old one that is over."""
    kind = "upkeep"
    limit_s = float("inf")

    def __init__(self, name: str, agree: Callable[[Callable[[Said], List[Said]]], None]) -> None:
        super().__init__(name)
        self._agree = agree

    def run(self, channel: Channel, numbers: List[int]) -> None:
        self._agree(lambda own: [Said(*json.loads(one)) for one in channel._exchange(canonical(own))])
