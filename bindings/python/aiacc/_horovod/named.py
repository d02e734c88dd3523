"""Allreduces of one tensor that has a name, which ranks may start in any order: on a gradient engine of the process set.

The engine waits for ranks that have not started an allreduce yet, and knows nothing of the other operations. So that no rank waits
forever where ranks have started different things, a program that waits long for an allreduce takes part in the comparison of the
channel's operations, with one that moves nothing (channel.py, order.py).
"""
from __future__ import annotations

import math
import threading
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from aiacc._horovod import order
from aiacc._horovod.channel import Channel, Operation
from aiacc._horovod.exceptions import HorovodInternalError
from aiacc._horovod.operations import OP_NAMES, OPS
from aiacc.errors import Aborted, Error, InvalidArgument, NotFinite
from aiacc.gradients import Engine, Wire
from aiacc.requests import Request

_KIND = "allreduce"
PATIENCE_S = 1.0  # of a program that waits, before it asks whether the others wait for something else
_TICK_S = 0.25
_ABOUT_S = 1.0  # an answer to all ranks comes to them at about the same time


class _Metadata(NamedTuple):
    """What is equal on all ranks."""
    shape: Any
    op: int
    prescale: float
    postscale: float


class NamedAllreduces:
    def __init__(self, channel: Callable[[], Channel], tensors: Any, number: int) -> None:
        self._channel, self._of = channel, tensors
        self._lock = threading.Lock()
        self._engine: Optional[Engine] = None
        self.started = 0
        self.number = number  # of the engine: an error ends one on all ranks, and the next one follows it
        self._joins = 0  # how often all ranks have joined
        self._tensors: Dict[str, Tuple[Any, int, int]] = {}  # by name: metadata, how many others it had before, number of the engine
        self._calls: Dict[str, int] = {}  # of each name, since the engine was made or all ranks joined

    def engine(self) -> Engine:
        """Made with the first operation, in the same order on all ranks."""
        if self._engine is None:
            self._engine = Engine(self._channel().group, f"{self._of.FRAMEWORK} named allreduces {self.number}")
            self._tensors, self._calls = {}, {}
        return self._engine

    def start(self, name: str, given: Any, result: Any, op: int, prescale: float, postscale: float,
              patience_s: Optional[float] = None, wire: Wire = Wire.DEFAULT) -> PendingNamed:
        """`patience_s`: whoever waits for it so long is the program, and asks what others wait for."""
        of = self._of
        source = of.packed(given)
        target = result if of.is_packed(result) else of.like(result)
        metadata = _Metadata(of.describe(given), op, float(prescale), float(postscale))
        if patience_s is not None:
            self._channel().callers.note()
        with self._lock:
            self.started += 1
            try:
                engine = self.engine()
                before = self._tensors.get(name)
                if before is None or before[0] != metadata:
                    # All ranks change a tensor with the same call of its name: it is another tensor from then on.
                    changes = 0 if before is None else before[1] + 1
                    row = f"{_KIND}.{name}"  # as in Horovod's timeline
                    index = engine.add(f"{row} #{changes}" if changes else row, of.count(given), of.element_type(given), OPS[op], prescale, postscale,
                                       wire)
                    before = self._tensors[name] = (metadata, changes, index)
                request = engine.submit(before[2], of.buffer_of(source), of.buffer_of(target))
            except Error as error:
                if not isinstance(error, InvalidArgument):  # which this rank alone may have got wrong
                    self._forget(self._engine)
                raise _failed(name, error) from error
            self._calls[name] = count = self._calls.get(name, 0) + 1
            call = (self.number, self._joins, count)
        assert request is not None
        return PendingNamed(self, engine, name, metadata, call, request, target, result, patience_s)

    def join(self) -> None:
        """This rank takes part with zeros until all have joined."""
        engine = self.engine()
        try:
            engine.join()
        except Error:
            self.ended(engine)
            raise
        with self._lock:
            self._joins += 1
            self._calls = {}

    def ended(self, engine: Engine) -> None:
        """By an error, on all ranks."""
        with self._lock:
            self._forget(engine)

    def _forget(self, engine: Optional[Engine]) -> None:
        if engine is not None and self._engine is engine:
            self._engine = None
            self.number += 1
            self._calls = {}

    def has_started(self, name: str, call: Tuple[int, int, int]) -> bool:
        """Also what has ended, with its engine perhaps."""
        with self._lock:
            return call <= (self.number, self._joins, self._calls.get(name, 0))

    def ask(self, wait: Operation) -> None:
        self._channel().start(wait, waited=True)

    def waiting(self) -> Any:
        return self._channel().callers.waiting()

    def fail(self, before: int) -> None:
        """Engines of lower numbers."""
        with self._lock:
            if self.number >= before:
                return
            engine, self._engine, self.number = self._engine, None, before
            self._calls = {}
        if engine is not None:
            _free(engine)

    def close(self) -> None:
        if self._engine is not None:
            _free(self._engine)
            self._engine = None


class Engines:
    """The named allreduces of a process set, of each framework; what its channel asks of them (channel.Elsewhere)."""

    def __init__(self, channel: Callable[[], Channel]) -> None:
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

    def description(self) -> dict:
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

    def __init__(self, owner: NamedAllreduces, engine: Engine, name: str, metadata: _Metadata, call: Tuple[int, int, int], request: Request,
                 target: Any, result: Any, patience_s: Optional[float]) -> None:
        self.owner, self.name, self.metadata, self.call = owner, name, metadata, call
        self._engine, self._request, self._target, self._result = engine, request, target, result
        self._patience_s = patience_s
        self._waiting = threading.Lock()
        self._asked: Optional[_Wait] = None
        self.key: Any = None

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
