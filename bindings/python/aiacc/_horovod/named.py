"""Allreduces of one tensor that has a name, which ranks may start in any order: on a gradient engine of the process set.

The engine waits for ranks that have not started an allreduce yet, and knows nothing of the other operations. So that no rank waits
forever where ranks have started different things, a program that waits long for an allreduce takes part in the comparison of the
channel's operations, with one that moves nothing (channel.py, order.py).
"""
from __future__ import annotations

import math
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from aiacc._horovod import order
from aiacc._horovod.channel import Channel, Operation
from aiacc._horovod.exceptions import HorovodInternalError
from aiacc._horovod.named_table import Limits, Metadata, Said, Table, Upkeep
from aiacc._horovod.operations import OP_NAMES, OPS
from aiacc.errors import Aborted, Error, InvalidArgument, Mismatch, NotFinite
from aiacc.gradients import Engine, Wire
from aiacc.requests import Request

_KIND = "allreduce"
PATIENCE_S = 1.0  # of a program that waits, before it asks whether the others wait for something else
_TICK_S = 0.25
_NEXT_S = 0.01
_ABOUT_S = 1.0  # an answer to all ranks comes to them at about the same time


class NamedAllreduces:
    def __init__(self, channel: Callable[..., Channel], tensors: Any, number: int) -> None:
        self._channel, self._of = channel, tensors
        self._lock = threading.Lock()
        self._table: Optional[Table] = None
        self._old: Optional[Table] = None  # that was replaced, and has calls that have not ended
        self._limits = Limits()
        self.started = 0
        self.number = number  # of the engine: an error ends one on all ranks, and the next one follows it
        self._epoch = 0  # how often all ranks have joined, or replaced an engine; calls are counted from then on
        self._joins = False  # this rank has joined
        self._upkeep: Optional[Upkeep] = None  # that was started
        self._closed = False

    def _present(self) -> Table:
        if self._table is None:
            channel = self._channel()
            channel._check_open()
            engine = Engine(channel.group, f"{self._of.FRAMEWORK} named allreduces {self.number}.{self._epoch}")
            self._table = Table(engine, self._epoch, self._limits)
        return self._table

    def engine(self) -> Engine:
        """Made with the first operation, in the same order on all ranks."""
        with self._lock:
            return self._present().engine

    def start(self, name: str, given: Any, result: Any, op: int, prescale: float, postscale: float,
              patience_s: Optional[float] = None, wire: Wire = Wire.DEFAULT, priority: int = 0) -> PendingNamed:
        """`patience_s`: whoever waits for it so long is the program, and asks what others wait for."""
        of = self._of
        source = of.packed(given)
        target = result if of.is_packed(result) else of.like(result)
        metadata = Metadata(of.describe(given), op, float(prescale), float(postscale))
        buffers = of.buffer_of(source), of.buffer_of(target)
        if patience_s is not None:
            self._channel().callers.note()
        other: Optional[Engine] = None
        try:
            with self._lock:
                self.started += 1
                table = self._old
                try:
                    if table is None or not table.has_next_of(name):
                        table = self._present()
                    index = table.index(name, metadata, f"{_KIND}.{name}", buffers[0], OPS[op], wire, priority)
                    request = table.engine.submit(index, *buffers)
                except Error as error:
                    if not isinstance(error, InvalidArgument) and table is not None:  # which this rank alone may have got wrong
                        other = self._forget(table.engine)
                    raise _failed(name, error) from error
                table.calls[name] = count = table.calls.get(name, 0) + 1
                assert request is not None
                pending = PendingNamed(self, table.engine, name, metadata, (self.number, table.epoch, count), request, target, result, patience_s)
                table.started(name, pending)
                self._look_after()
        finally:
            if other is not None:
                _free(other)  # waits for what runs there: not under the lock
        return pending

    def join(self) -> None:
        """This rank takes part with zeros until all have joined, also on the engine that follows one which ended because others disagree."""
        with self._lock:
            self._joins = True
        try:
            while True:
                with self._lock:
                    if self._closed:
                        raise HorovodInternalError("the process set was shut down or removed")
                    number, tables = self.number, [one for one in (self._present(), self._old) if one is not None]
                failure = _join_all([one.engine for one in tables])
                if failure is None:
                    break
                for one in tables:
                    self.ended(one.engine)
                if not isinstance(failure, (Aborted, Mismatch)):
                    raise failure
                with self._lock:
                    if self.number == number:
                        raise failure
                time.sleep(_NEXT_S)  # the others may be about to end
        finally:
            with self._lock:
                self._joins = False
        with self._lock:
            self._epoch += 1
            self._present().calls, self._present().epoch = {}, self._epoch
            if self._old is not None:
                self._old.late, self._old.epoch = {}, -1

    def ended(self, engine: Engine) -> None:
        """By an error, on all ranks."""
        with self._lock:
            other = self._forget(engine)
        if other is not None:
            _free(other)

    def forget(self, pending: PendingNamed) -> None:
        """One that has ended: its tensors are the caller's alone from now on."""
        _, _, count = pending.call
        with self._lock:
            for table in (self._table, self._old):
                if table is not None and table.outstanding.get((pending.name, count)) is pending:
                    del table.outstanding[pending.name, count]

    def _forget(self, engine: Engine) -> Optional[Engine]:
        """The other one, of two of which one has ended: no rank goes on with it."""
        engines = [one.engine for one in (self._table, self._old) if one is not None]
        if engine not in engines:
            return None
        self._table = self._old = None
        self.number += 1
        engines.remove(engine)
        return engines[0] if engines else None

    def has_started(self, name: str, call: Tuple[int, int, int]) -> bool:
        """Also what has ended, with its engine perhaps."""
        number, epoch, count = call
        with self._lock:
            if number != self.number or epoch > self._epoch:
                return number < self.number
            table = self._table if epoch == self._epoch else self._old if self._old is not None and epoch == self._old.epoch else None
            return epoch < self._epoch if table is None else count <= table.calls.get(name, 0)

    def ask(self, wait: Operation) -> None:
        self._channel().start(wait, waited=True)

    def waiting(self) -> Any:
        return self._channel().callers.waiting()

    # --- replacing an engine

    def _look_after(self) -> None:
        """Under the lock."""
        if self._upkeep is None and (self._old.is_over() if self._old is not None else self._table is not None and self._table.is_full()):
            self._upkeep = Upkeep(f"named allreduces of {self._of.FRAMEWORK}", self._agree)
            self._channel("names").start(self._upkeep)

    def _agree(self, exchange: Callable[[Said], List[Said]]) -> None:
        """All ranks come to the same conclusion. None starts anything between what it says and that."""
        gone: Optional[Table] = None
        with self._lock:
            self._upkeep = None
            # An error may have ended the engine since, and on some ranks another one may have begun.
            table = None if self._closed else self._present()
            outstanding = table.last_outstanding() if table is not None and self._old is None else {}
            everyone = exchange(Said(self.number, self._epoch, self._joins, None if self._old is None else self._old.is_over(), outstanding))
            first = everyone[0]
            if table is None or any(said.joins or said[:2] != first[:2] for said in everyone):
                return  # later
            if all(said.old for said in everyone):
                gone, self._old = self._old, None
            elif all(said.old is None for said in everyone):
                self._old, self._table = table, None
                for said in everyone:
                    for name, call in said.outstanding.items():
                        table.late[name] = max(call, table.late.get(name, 0))
                self._epoch += 1
        if gone is not None:
            _free(gone.engine)

    # --- the end

    def fail(self, before: int) -> None:
        """Engines of lower numbers."""
        with self._lock:
            if self.number >= before:
                return
            self.number = before
            engines = self._take()
        for engine in engines:
            _free(engine)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            engines = self._take()
        for engine in engines:
            _free(engine)

    def _take(self) -> List[Engine]:
        engines = [one.engine for one in (self._table, self._old) if one is not None]
        self._table = self._old = None
        return engines


def _join_all(engines: List[Engine]) -> Optional[Error]:
    """The first error; then the others have ended, too."""
    failures: List[Error] = []

    def join(engine: Engine) -> None:
        try:
            engine.join()
        except Error as error:
            failures.append(error)
            for other in engines:
                if other is not engine:
                    _free(other)
    threads = [threading.Thread(target=join, args=(engine,), name="aiacc join", daemon=True) for engine in engines[1:]]
    for thread in threads:
        thread.start()
    join(engines[0])
    for thread in threads:
        thread.join()
    return failures[0] if failures else None


class Engines:
    """The named allreduces of a process set, of each framework; what its channel asks of them (channel.Elsewhere)."""

    def __init__(self, channel: Callable[..., Channel]) -> None:
        self._channel = channel
        self._by_framework: Dict[str, NamedAllreduces] = {}
        self._first = 0  # number of an engine that may be used

    def of(self, tensors: Any) -> NamedAllreduces:
        """Of the framework whose module is given."""
        found = self._by_framework.get(tensors.FRAMEWORK)
        if found is None:
            found = self._by_framework[tensors.FRAMEWORK] = NamedAllreduces(self._channel, tensors, self._first)
        return found

    def has_started(self, key: order.Key) -> bool:
        _, name, call = key
        return call[0] < self._first or any(one.has_started(name, call) for one in list(self._by_framework.values()))

    def engine_number(self) -> int:
        return max([self._first, *(one.number for one in list(self._by_framework.values()))])

    def fail(self, before: int) -> None:
        self._first = max(self._first, before)
        for one in list(self._by_framework.values()):
            one.fail(before)

    def close(self) -> None:
        for one in self._by_framework.values():
            one.close()
        self._by_framework, self._first = {}, 0


def _free(engine: Engine) -> None:
    try:
        engine.free()
    except RuntimeError:
        pass  # the world is over already


def _failed(name: str, error: Error) -> HorovodInternalError:
    return HorovodInternalError(f"{_KIND} '{name}': {error}")


class _Wait(Operation):
    """The program waits for an allreduce on the engine. Ranks that agree on it have nothing to do: it ends there."""
    kind = _KIND
    limit_s = math.inf  # the allreduce has its own

    def __init__(self, pending: PendingNamed) -> None:
        super().__init__(pending.name)
        self._pending: Optional[PendingNamed] = pending
        self._metadata, self._call = pending.metadata, pending.call

    def let_go(self) -> None:
        """The program waits no more. This may be queued for long, and holds no tensor from now on."""
        self._pending = None

    def description(self) -> Dict[str, Any]:
        metadata = self._metadata
        return {**super().description(), "type and shape": metadata.shape, "op": OP_NAMES[metadata.op],
                "prescale and postscale factors": [metadata.prescale, metadata.postscale], "call": list(self._call)}

    def refusal(self, joined: List[int]) -> Optional[str]:
        return None

    def run(self, channel: Channel, numbers: List[int]) -> None:
        pass

    def is_over(self) -> bool:
        pending = self._pending
        return pending is None or pending.has_ended()

    def key(self) -> order.Key:
        return _KIND, self.name, self._call


class PendingNamed:
    """What a handle stands for."""

    def __init__(self, owner: NamedAllreduces, engine: Engine, name: str, metadata: Metadata, call: Tuple[int, int, int], request: Request,
                 target: Any, result: Any, patience_s: Optional[float]) -> None:
        self.owner, self.name, self.metadata, self.call = owner, name, metadata, call
        self._engine, self._request, self._target, self._result = engine, request, target, result
        self._patience_s = patience_s
        self._waiting = threading.Lock()
        self._asked: Optional[_Wait] = None
        self.key: Any = None

    def begin_wait(self) -> Request:
        """For a thread that waits for several at once; then end_wait() and wait()."""
        self._waiting.acquire()
        return self._request

    def end_wait(self) -> None:
        self._waiting.release()

    def has_ended(self) -> bool:
        """As far as this thread can see: not while another one waits for it."""
        if not self._waiting.acquire(blocking=False):
            return False
        try:
            return self._request.test()
        except Error:
            return True
        finally:
            self._waiting.release()

    def done(self) -> bool:
        if self.has_ended():
            return True  # also with an error, which wait raises
        try:
            self._engine.flush()
        except Error:
            return True
        return self.has_ended()

    def wait(self) -> Any:
        began = time.monotonic()
        try:
            while not self._wait_for(_TICK_S):
                if self._patience_s is not None and time.monotonic() - began >= self._patience_s:
                    self._ask_and_wait()
                    break
        except Error as error:
            if not isinstance(error, NotFinite):  # after which the engine goes on
                self.owner.ended(self._engine)
            if self._asked is not None and isinstance(error, Aborted):  # perhaps by what another rank concluded, as this one is about to do
                self._asked.finished.wait(_ABOUT_S)
            if self._asked is not None and self._asked.error is not None:
                raise self._asked.error from error
            raise _failed(self.name, error) from error
        finally:
            if self._asked is not None:
                self._asked.let_go()
            self.owner.forget(self)
        if self._target is not self._result:
            self.owner._of.copy(self._result, self._target)
        return self._result

    def _ask_and_wait(self) -> None:
        asked = self._asked = _Wait(self)
        with self.owner.waiting():
            self.owner.ask(asked)
            while not self._wait_for(_TICK_S):
                if asked.error is not None:
                    raise asked.error

    def _wait_for(self, seconds: float) -> bool:
        with self._waiting:
            return self._request.wait_for(seconds)
