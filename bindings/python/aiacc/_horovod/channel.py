"""Operations of one process set, in call order.

Ranks call the same operations in the same order here. Before each operation they compare what they call: the hash of its
description travels in a small allgather, and only where hashes differ, or a rank has joined, the descriptions themselves. So
ranks that disagree learn of it before any data moves: every rank raises with both values, and the process set stays usable.

One difference is no error: a rank waits in a barrier, or in a blocking operation with a name, and another rank comes to it with
asynchronous operations before, which the first rank starts only later. These step aside: they wait until that rank has run the
blocking operation too, and then come in their order. A rank that waits for one of them (synchronize) cannot come to the blocking
operation any more, so both raise.

An operation runs in the calling thread if nothing is queued. Otherwise, and always for asynchronous ones, the channel's thread
runs it; that thread is started with the first asynchronous operation.
"""
from __future__ import annotations

import collections
import hashlib
import json
import os
import struct
import threading
from typing import Any, Deque, List, Optional, Tuple

from aiacc._horovod.exceptions import HorovodInternalError
from aiacc.groups import Group

_HEADER = struct.Struct("<8sqq")  # hash of the description, the operation's number of this rank, length of what it tells or -1: joined
_JOINED = -1
_STAYS, _STEPS_ASIDE = b"-", b"a"  # behind a description that is sent
_ASIDE = "steps aside"


def canonical(value: Any) -> bytes:
    return json.dumps(value).encode()


class Operation:
    """One operation of one rank. Subclasses say what ranks must agree on and how to run it."""
    kind = ""

    def __init__(self, name: Optional[str]) -> None:
        self.name = name
        self.own_number = 0  # exchanged with the description: the rows of an allgather, bytes of an object
        self.output: Any = None
        self.error: Optional[BaseException] = None
        self.finished = threading.Event()
        self.steps_aside = False  # asynchronous, and nobody waits for it yet; under the channel's lock

    def check_ranks(self, ranks: int) -> None:
        """Raises if it is not defined for so many."""

    def description(self) -> dict:
        """Equal on all ranks, or the operation fails on all of them. Of plain numbers, strings, lists."""
        return {"operation": self.kind, "name": self.name}

    def refusal(self, joined: List[int]) -> Optional[str]:
        """What is wrong with it on every rank alike; None: nothing."""
        return f"{self} while rank {joined[0]} has joined: only sums and averages go on then" if joined else None

    def run(self, channel: Channel, numbers: List[int]) -> None:
        """Moves the data. `numbers` are the ranks' own numbers."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Waits until its tensors may be used."""

    def ended(self, error: Optional[BaseException]) -> None:
        """Called once, behind `run` or in its place."""

    def __str__(self) -> str:
        return f"{self.kind} '{self.name}'" if self.name else self.kind


class Join(Operation):
    """Takes part in the others' operations until all ranks have joined. Its output is the rank that joined last.

    `own_number`: how many reductions outside of this channel, on engines, the rank has begun since it joined before. Of ranks between whose joins the channel
    had no operation, the one with the most joined last."""
    kind = "join"

    def stand_in(self, description: dict) -> Optional[Operation]:
        """What this rank runs in an operation of the others. None: nothing, as they raise."""
        return None


class Channel:
    """The operations of a process set on a group of their own."""

    def __init__(self, group: Group, ranks: List[int]) -> None:
        self.group, self.ranks = group, ranks
        self.size, self.rank = group.size, group.rank
        self._process = os.getpid()
        self._changed = threading.Condition()
        self._queue: Deque[Operation] = collections.deque()
        self._aside: List[Operation] = []  # in call order; they come back behind the next operation that this rank ends
        self._busy = False
        self._closed = False
        self._broken: Optional[str] = None  # the sentence of the error that ended the group
        self._thread: Optional[threading.Thread] = None
        self._already_joined: List[int] = []  # as of the last operation: equal on all ranks

    # --- the order of operations

    def run(self, operation: Operation) -> Any:
        """Runs it behind those that are queued, and returns its output."""
        with self._changed:
            self._check_open()
            here = not self._busy and not self._queue
            if here:
                self._busy = True
            else:
                self._enqueue(operation)
        if here:
            try:
                self._execute(operation)
            finally:
                with self._changed:
                    self._busy = False
                    if self._queue:
                        self._changed.notify_all()
        return self.wait(operation)

    def start(self, operation: Operation, steps_aside: bool = True) -> None:
        """`steps_aside`: who needs it calls `wait`, and it may step aside until then."""
        with self._changed:
            self._check_open()
            operation.steps_aside = steps_aside
            self._enqueue(operation)

    def wait(self, operation: Operation) -> Any:
        if operation.steps_aside:
            with self._changed:
                operation.steps_aside = False
                if operation in self._aside:
                    self._come_back()
        # In steps, so that a signal's handler runs (Ctrl-C) on every version of Python.
        while not operation.finished.wait(1.0):
            if self._process != os.getpid():
                raise HorovodInternalError(f"{operation} was started before the process forked: only the parent can wait for it")
        if operation.error is None:
            return operation.output
        raise operation.error

    def close(self, reason: str) -> None:
        """Operations that have not begun fail; the group is over for this rank."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            pending, running = self._aside + list(self._queue), self._busy
            self._queue.clear()
            self._aside.clear()
            self._changed.notify_all()
        for operation in pending:
            self._finish(operation, HorovodInternalError(f"{operation} had not begun: {reason}"))
        if self._process != os.getpid():
            return
        try:
            # One that runs may wait for ranks that never come.
            if running:
                self.group.abort(reason)
            if self._thread is not None and self._thread is not threading.current_thread():
                self._thread.join()
            self.group.free()
        except RuntimeError:
            pass  # the world is over already

    def _check_open(self) -> None:
        if self._closed:
            raise HorovodInternalError("the process set is shut down or removed: call init, or add_process_set, again")
        if self._process != os.getpid():
            raise HorovodInternalError("this process was forked from a rank and is none itself: only the parent may call operations")

    def _enqueue(self, operation: Operation) -> None:
        self._queue.append(operation)
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="aiacc operations", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or (self._queue and not self._busy))
                if self._closed:
                    return
                operation = self._queue.popleft()
                self._busy = True
            try:
                self._execute(operation)
            except BaseException:  # noqa: BLE001: it stands in the operation
                pass
            finally:
                with self._changed:
                    self._busy = False

    def _step_aside(self, operation: Operation) -> None:
        with self._changed:
            closed = self._closed
            if not closed and operation.steps_aside:
                self._aside.append(operation)
            elif not closed:  # somebody waits for it since the ranks were told that it could
                self._queue.appendleft(operation)
        if closed:
            self._finish(operation, HorovodInternalError(f"{operation} had not begun when the process set was shut down or removed"))

    def _come_back(self) -> None:
        """Under the lock."""
        self._queue.extendleft(reversed(self._aside))
        self._aside.clear()
        self._changed.notify_all()

    # --- one operation

    def _execute(self, operation: Operation) -> None:
        error: Optional[BaseException] = None
        try:
            if self._broken is not None:
                raise HorovodInternalError(f"{operation}: an earlier operation failed: {self._broken}")
            operation.prepare()
            if isinstance(operation, Join):
                self._join(operation)
            elif not self._agree_and_run(operation):
                self._step_aside(operation)
                return
        except (HorovodInternalError, ValueError) as known:
            error = known
        except RuntimeError as failure:  # of the library: the group is over
            self._broken = self._broken or str(failure)
            error = HorovodInternalError(f"{operation}: {failure}")
            error.__cause__ = failure
        except BaseException as unknown:
            self._broken = self._broken or f"rank {self.rank} left {operation} in the middle: {unknown!r}"
            self.group.abort(self._broken)
            self._finish(operation, unknown)
            raise
        self._finish(operation, error)

    def _finish(self, operation: Operation, error: Optional[BaseException]) -> None:
        if self._aside:  # ranks have met in an operation, so they may meet in these too
            with self._changed:
                self._come_back()
        operation.error = error
        operation.ended(error)
        operation.finished.set()

    def _agree_and_run(self, operation: Operation) -> bool:
        """False: it steps aside, and has not run."""
        if self.size == 1:
            self._raise_if(operation.refusal([]))
            operation.run(self, [operation.own_number])
            return True
        described = operation.description()
        description = canonical(described)
        while True:
            told = description + (_STEPS_ASIDE if operation.steps_aside else _STAYS)
            headers = self._headers(description, operation.own_number, len(told))
            joined = [rank for rank, header in enumerate(headers) if header[2] == _JOINED]
            self._already_joined = joined
            if joined or any(header[0] != headers[0][0] for header in headers):
                descriptions = self._descriptions(told, headers)
                first = _comes_first(descriptions)
                if first is not None:
                    if _key(described) != first:
                        return False
                    continue
                self._raise_if(self._disagreement(descriptions))
            self._raise_if(operation.refusal([self.ranks[rank] for rank in joined]))
            operation.run(self, _numbers(headers))
            return True

    def _join(self, operation: Join) -> None:
        while True:
            headers = self._headers(b"", operation.own_number, _JOINED)
            joined = [rank for rank, header in enumerate(headers) if header[2] == _JOINED]
            before, self._already_joined = self._already_joined, joined
            if len(joined) == self.size:
                self._already_joined = []
                operation.output = self.ranks[max(set(joined) - set(before), key=lambda rank: (headers[rank][1], rank))]
                return
            descriptions = self._descriptions(b"", headers)
            if self._disagreement(descriptions) is not None:
                continue  # which the others raise, or some of theirs step aside
            description = next(one for one in descriptions if one is not None)
            other = operation.stand_in(description)
            if other is not None and other.refusal([self.ranks[rank] for rank in joined]) is None:
                other.run(self, _numbers(headers))

    @staticmethod
    def _raise_if(sentence: Optional[str]) -> None:
        if sentence is not None:
            raise HorovodInternalError(sentence)

    def _headers(self, description: bytes, number: int, length: int) -> List[Any]:
        own = _HEADER.pack(hashlib.blake2b(description, digest_size=8).digest(), number, length)
        gathered = bytearray(_HEADER.size * self.size)
        if self.size > 1:
            self.group.allgather(own, gathered)
        else:
            gathered[:] = own
        return list(_HEADER.iter_unpack(gathered))

    def _descriptions(self, own: bytes, headers: List[Any]) -> List[Optional[dict]]:
        counts = [max(header[2], 0) for header in headers]
        gathered = bytearray(sum(counts))
        self.group.allgather(own, gathered, counts=counts)
        found, begin = [], 0
        for count in counts:
            one = gathered[begin:begin + count]
            found.append({**json.loads(one[:-1]), _ASIDE: one[-1:] == _STEPS_ASIDE} if count else None)
            begin += count
        return found

    def _disagreement(self, descriptions: List[Optional[dict]]) -> Optional[str]:
        """Which two ranks differ in what; those that have joined do not count."""
        those = [(self.ranks[rank], one) for rank, one in enumerate(descriptions) if one is not None]
        first, reference = those[0]
        for rank, one in those[1:]:
            for key in ("operation", "name", *reference):
                if key != _ASIDE and reference.get(key) != one.get(key):
                    what = f"{reference['operation']} '{reference['name']}'" if reference["name"] else reference["operation"]
                    return (f"ranks disagree about {what}: its {key} is {_shown(reference.get(key))} on rank {first} and "
                            f"{_shown(one.get(key))} on rank {rank}")
        return None


def _key(description: dict) -> Tuple[str, Optional[str]]:
    return description["operation"], description["name"]


def _comes_first(descriptions: List[Optional[dict]]) -> Optional[Tuple[str, Optional[str]]]:
    """The blocking operation that runs before others, which step aside; None: there is none, or they are no different operations. Equal
    on all ranks."""
    those = [one for one in descriptions if one is not None]
    blocking = {_key(one) for one in those if not one[_ASIDE]}
    if len(blocking) != 1:
        return None
    (first,) = blocking
    others = [one for one in those if _key(one) != first]
    # What has no name is told apart by its place in the order, unless it is a barrier.
    if not others or first[0] != "barrier" and (first[1] is None or any(one["name"] is None for one in others)):
        return None
    return first


def _numbers(headers: List[Any]) -> List[int]:
    """What the ranks say of an operation; those that have joined have nothing to say."""
    return [0 if header[2] == _JOINED else header[1] for header in headers]


def _shown(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 200 else text[:200] + " ..."
