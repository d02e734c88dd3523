"""Operations of one process set, one after another.

Before each operation ranks compare what they call: the hash of its description travels in a small allgather, and only where hashes
differ, or a rank has joined, the descriptions themselves. So ranks that disagree learn of it before any data moves: every rank raises
with both values, and the process set stays usable.

Ranks that have started operations in different orders come to the comparison with different ones. They then tell each other all that
they have started, and run what all have, in one order (order.py); the rest waits until the others start it too, and as they come to
such a comparison again and again meanwhile, after a short while or when their program has done something, none waits for one that is
ready. Where the programs of all ranks wait for operations, and there is none that all have started, every rank raises. Allreduces on a
gradient engine (named.py) count among these: a program that waits long for one says so by an operation that moves nothing. A program
waits if all its threads do that use operations (callers.py).

An operation runs in the calling thread if nothing is queued. Otherwise, and always for asynchronous ones, the channel's thread
runs it; that thread is started with the first asynchronous operation.
"""
from __future__ import annotations

import collections
import hashlib
import json
import math
import os
import struct
import threading
from typing import Any, Deque, Dict, List, NamedTuple, Optional, Protocol, Tuple

from aiacc._arguments import text
from aiacc._horovod import order
from aiacc._horovod.callers import Callers
from aiacc._horovod.exceptions import HorovodInternalError
from aiacc.groups import Group

_HEADER = struct.Struct("<8sqq")  # hash of the description, the operation's number of this rank, length of what it tells or -1: joined
_JOINED = -1
_LENGTH = struct.Struct("<q")
# How long a rank whose operations others have not started waits before it asks again; it doubles from the first to the longest.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.0005, 0.02


def canonical(value: Any) -> bytes:
    return json.dumps(value).encode()


class Operation:
    """One operation of one rank. Subclasses say what ranks must agree on and how to run it."""
    kind = ""
    limit_s: Optional[float] = None  # for the others to come to the comparison; None: AIACC_TIMEOUT

    def __init__(self, name: Optional[str]) -> None:
        self.name = text("name", name)
        self.own_number = 0  # exchanged with the description: the rows of an allgather, bytes of an object
        self.output: Any = None
        self.error: Optional[BaseException] = None
        self.finished = threading.Event()
        self.waited = False  # the program waits for it, and starts nothing else; under the channel's lock
        self.keeps_place = False  # behind those that were started before it, and before those that were started later

    def check_ranks(self, ranks: int) -> None:
        """Raises if it is not defined for so many."""

    def description(self) -> Dict[str, Any]:
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

    def is_over(self) -> bool:
        """Whether it has lost its purpose before it ran."""
        return False

    def key(self) -> order.Key:
        return self.kind, self.name

    def __str__(self) -> str:
        return f"{self.kind} '{self.name}'" if self.name else self.kind


class Join(Operation):
    """Takes part in the others' operations until all ranks have joined. Its output is the rank that joined last.

    `own_number`: how many reductions outside of this channel, on engines, the rank has begun since it joined before. Of ranks between whose joins the channel
    had no operation, the one with the most joined last."""
    kind = "join"
    limit_s = math.inf

    def __init__(self, name: Optional[str]) -> None:
        super().__init__(name)
        self.keeps_place = True

    def stand_in(self, description: Dict[str, Any]) -> Optional[Operation]:
        """What this rank runs in an operation of the others. None: nothing, as they raise."""
        return None


class Elsewhere(Protocol):
    """Allreduces on gradient engines, beside the operations of a channel."""

    def has_started(self, key: order.Key) -> bool:
        """Whether this rank has; it may have ended since."""

    def engine_number(self) -> int:
        """The highest of present engines, or of the next ones."""

    def fail(self, before: int) -> None:
        """Engines of lower numbers end, and what is outstanding there with an error."""


class _Told(NamedTuple):
    """What ranks have told each other: the same on all of them."""
    everyone: List[Tuple[int, order.Said]]  # and who said it; not those that have joined
    common: List[order.Key]  # what all have started
    contradictory: bool  # all wait, for what can never end


class Channel:
    """The operations of a process set on a group of their own."""

    def __init__(self, group: Group, ranks: List[int], elsewhere: Optional[Elsewhere] = None) -> None:
        self.group, self.ranks, self._elsewhere = group, ranks, elsewhere
        self.size, self.rank = group.size, group.rank
        self._process = os.getpid()
        self._changed = threading.Condition()
        self._queue: Deque[Operation] = collections.deque()
        self._changes = self._told = 0  # of what is queued and waited for, and how many of these the other ranks know
        self._pause = 0.0  # before the thread takes the next one, unless something changes
        self._busy = False
        self._closed = False
        self._broken: Optional[str] = None  # the sentence of the error that ended the group
        self._thread: Optional[threading.Thread] = None
        self._already_joined: List[int] = []  # as of the last operation: equal on all ranks
        self.callers = Callers()

    # --- the order of operations

    def run(self, operation: Operation) -> Any:
        """Runs it behind those that are queued, and returns its output."""
        operation.waited = True
        with self.callers.waiting():
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
            return self._wait(operation)

    def start(self, operation: Operation, steps_aside: bool = True, waited: bool = False) -> None:
        """`steps_aside`: who needs it calls `wait`, and operations that were started later may overtake it. Else it keeps its place, and
        counts as one that the program waits for. `waited`: the program waits for it already."""
        if steps_aside and not waited:
            self.callers.note()
        with self._changed:
            self._check_open()
            operation.keeps_place = not steps_aside
            operation.waited = waited or not steps_aside
            self._enqueue(operation)

    def wait(self, operation: Operation) -> Any:
        with self.callers.waiting():
            return self._wait(operation)

    def _wait(self, operation: Operation) -> Any:
        if not operation.waited and not operation.finished.is_set():
            with self._changed:
                operation.waited = True
                self._note_change()
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
            pending, running = list(self._queue), self._busy
            self._queue.clear()
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

    # What follows is called under the lock.

    def _enqueue(self, operation: Operation) -> None:
        self._queue.append(operation)
        self._note_change()
        self._begin_to_serve()

    def _note_change(self) -> None:
        self._changes += 1
        self._changed.notify_all()

    def _begin_to_serve(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="aiacc operations", daemon=True)
            self._thread.start()

    def _sort(self, keys: List[order.Key]) -> None:
        """The queue begins with these."""
        by_key: Dict[order.Key, Deque[Operation]] = {}
        for one in self._queue:
            by_key.setdefault(one.key(), collections.deque()).append(one)
        first = [by_key[key].popleft() for key in keys]
        moved = set(map(id, first))
        self._queue = collections.deque(first + [one for one in self._queue if id(one) not in moved])

    # --- the thread

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or (self._queue and not self._busy))
                if self._pause:
                    self._changed.wait_for(lambda: self._closed or self._changes != self._told, self._pause)
                if self._closed:
                    return
                operation = self._queue.popleft()
                self._busy = True
            try:
                if operation.is_over():
                    self._finish(operation, None)
                else:
                    self._execute(operation)
            except BaseException:  # noqa: BLE001: it stands in the operation
                pass
            finally:
                with self._changed:
                    self._busy = False

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
        operation.error = error
        operation.ended(error)
        operation.finished.set()

    def _agree_and_run(self, operation: Operation) -> bool:
        """False: it has not run, and is queued again or has failed."""
        if self.size == 1:
            self._raise_if(operation.refusal([]))
            operation.run(self, [operation.own_number])
            return True
        description = canonical(operation.description())
        headers = self._headers(description, operation.own_number, len(description), operation.limit_s)
        joined = [rank for rank, header in enumerate(headers) if header[2] == _JOINED]
        self._already_joined = joined
        if joined or any(header[0] != headers[0][0] for header in headers):
            descriptions = self._descriptions(description, headers)
            if _are_different_operations(descriptions):
                self._order(operation)
                return False
            self._refuse(operation, descriptions)
        self._raise_if(operation.refusal([self.ranks[rank] for rank in joined]))
        self._pause = 0.0
        operation.run(self, _numbers(headers))
        return True

    def _order(self, operation: Operation) -> None:
        """Agrees with the others on what runs next. The operation was taken from the queue and has not run."""
        with self._changed:
            over = [one for one in (operation, *self._queue) if one.is_over()]
            self._queue = collections.deque(one for one in self._queue if one not in over)
            pending = [one for one in (operation, *self._queue) if one not in over]
            self._told = self._changes
        for one in over:
            self._finish(one, None)
        reorderable = next((i for i, one in enumerate(pending) if one.keeps_place), len(pending))
        waits = next((i for i, one in enumerate(pending) if one.waited), None)
        if waits is not None and not pending[waits].keeps_place and self.callers.may_start_more():
            waits = None
        told = [one.key() for one in pending[:max(1, reorderable)]]
        waits = waits if waits is None or waits < len(told) else 0
        own = order.Said(told, waits, 0 if self._elsewhere is None else self._elsewhere.engine_number())
        everyone, keys, contradictory = self._tell(own)
        failed: Optional[BaseException] = None
        with self._changed:
            if self._closed:
                failed = HorovodInternalError(f"{operation} had not begun when the process set was shut down or removed")
            else:
                if operation in pending:
                    self._queue.appendleft(operation)
                    self._begin_to_serve()
                if keys:
                    self._pause = 0.0
                    self._sort(keys)
                elif contradictory:
                    self._pause = 0.0
                    operation = pending[own.waits or 0]
                    self._queue.remove(operation)
                    failed = operation.error = HorovodInternalError(order.contradiction(everyone))
                else:
                    self._pause = min(2 * self._pause, _LONGEST_PAUSE_S) if self._pause else _FIRST_PAUSE_S
        self._end_engines(everyone, contradictory)
        if failed is not None:
            self._finish(operation, failed)

    def _tell(self, own: Optional[order.Said]) -> _Told:
        """`own` None: this rank has joined."""
        said = self._exchange(b"" if own is None else order.encode(own))
        everyone = [(self.ranks[rank], order.decode(data)) for rank, data in enumerate(said) if data]
        sayings = [one for _, one in everyone]
        # What is on an engine is common to all if they have started it, ended or not: it ends on some ranks before others.
        common = [key for key in order.common(sayings) if not order.on_engine(key)]
        if common or not order.all_wait(sayings):
            return _Told(everyone, common, False)
        elsewhere = order.waited_elsewhere(sayings)
        if not elsewhere:
            return _Told(everyone, common, True)
        started = [self._elsewhere is not None and self._elsewhere.has_started(key) for key in elsewhere]
        answers = [json.loads(one) for one in self._exchange(b"" if own is None else canonical(started)) if one]
        return _Told(everyone, common, not any(map(all, zip(*answers))))

    def _end_engines(self, everyone: List[Tuple[int, order.Said]], contradictory: bool) -> None:
        """On which somebody waits in vain."""
        if contradictory and order.waited_elsewhere([said for _, said in everyone]):
            self._fail_elsewhere(1 + max(said.engine for _, said in everyone))

    def _end_engines_of(self, descriptions: List[Optional[Dict[str, Any]]]) -> None:
        """Ranks disagree about an operation there."""
        engines = [one["call"][0] for one in descriptions if one is not None and "call" in one]
        if engines:
            self._fail_elsewhere(1 + max(engines))

    def _fail_elsewhere(self, before: int) -> None:
        if self._elsewhere is not None:
            self._elsewhere.fail(before)

    def _join(self, operation: Join) -> None:
        while True:
            headers = self._headers(b"", operation.own_number, _JOINED, operation.limit_s)
            joined = [rank for rank, header in enumerate(headers) if header[2] == _JOINED]
            before, self._already_joined = self._already_joined, joined
            if len(joined) == self.size:
                self._already_joined = []
                operation.output = self.ranks[max(set(joined) - set(before), key=lambda rank: (headers[rank][1], rank))]
                return
            descriptions = self._descriptions(b"", headers)
            if _are_different_operations(descriptions):
                everyone, _, contradictory = self._tell(None)
                self._end_engines(everyone, contradictory)
                continue
            if self._disagreement(descriptions) is not None:
                self._end_engines_of(descriptions)
                continue  # which the others raise
            description = next(one for one in descriptions if one is not None)
            if "call" in description:
                continue  # on an engine, which has been told by itself that this rank has joined
            other = operation.stand_in(description)
            if other is not None and other.refusal([self.ranks[rank] for rank in joined]) is None:
                other.run(self, _numbers(headers))

    def _refuse(self, operation: Operation, descriptions: List[Optional[Dict[str, Any]]]) -> None:
        """Raises where ranks disagree."""
        sentence = self._disagreement(descriptions)
        if sentence is None:
            return
        operation.error = HorovodInternalError(sentence)
        self._end_engines_of(descriptions)
        raise operation.error

    @staticmethod
    def _raise_if(sentence: Optional[str]) -> None:
        if sentence is not None:
            raise HorovodInternalError(sentence)

    def _headers(self, description: bytes, number: int, length: int, limit_s: Optional[float]) -> List[Any]:
        own = _HEADER.pack(hashlib.blake2b(description, digest_size=8).digest(), number, length)
        gathered = bytearray(_HEADER.size * self.size)
        if self.size > 1:
            self.group.allgather(own, gathered, timeout=limit_s)
        else:
            gathered[:] = own
        return list(_HEADER.iter_unpack(gathered))

    def _gather(self, own: bytes, counts: List[int]) -> List[bytes]:
        """Of each rank so many bytes."""
        gathered = bytearray(sum(counts))
        self.group.allgather(own, gathered, counts=counts)
        found, begin = [], 0
        for count in counts:
            found.append(bytes(gathered[begin:begin + count]))
            begin += count
        return found

    def _descriptions(self, own: bytes, headers: List[Any]) -> List[Optional[Dict[str, Any]]]:
        return [json.loads(one) if one else None for one in self._gather(own, [max(header[2], 0) for header in headers])]

    def _exchange(self, own: bytes) -> List[bytes]:
        """As _gather, where ranks know only their own count."""
        lengths = bytearray(_LENGTH.size * self.size)
        self.group.allgather(_LENGTH.pack(len(own)), lengths)
        return self._gather(own, [length for length, in _LENGTH.iter_unpack(lengths)])

    def _disagreement(self, descriptions: List[Optional[Dict[str, Any]]]) -> Optional[str]:
        """Which two ranks differ in what; those that have joined do not count."""
        those = [(self.ranks[rank], one) for rank, one in enumerate(descriptions) if one is not None]
        first, reference = those[0]
        for rank, one in those[1:]:
            for key in ("operation", "name", *reference):
                if reference.get(key) != one.get(key):
                    what = f"{reference['operation']} '{reference['name']}'" if reference["name"] else reference["operation"]
                    return (f"ranks disagree about {what}: its {key} is {_shown(reference.get(key))} on rank {first} and "
                            f"{_shown(one.get(key))} on rank {rank}")
        return None


def _are_different_operations(descriptions: List[Optional[Dict[str, Any]]]) -> bool:
    return len({(one["operation"], one["name"], str(one.get("call"))) for one in descriptions if one is not None}) > 1


def _numbers(headers: List[Any]) -> List[int]:
    """What the ranks say of an operation; those that have joined have nothing to say."""
    return [0 if header[2] == _JOINED else header[1] for header in headers]


def _shown(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 200 else text[:200] + " ..."
