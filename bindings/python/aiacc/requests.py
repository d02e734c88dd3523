"""Operations that were started and may not have completed."""
from __future__ import annotations

import ctypes as c
import math
import threading
import time
from typing import Any, Callable, Iterable, List, Optional, Tuple

from aiacc import _abi
from aiacc._arguments import milliseconds, number, refused, several
from aiacc._library import library
from aiacc.errors import OK, PENDING, InvalidHandle, Timeout, error

_TICK_MS = 250  # a wait in C sees no signal of Python (Ctrl-C): it returns this often
_abandoned: List[Any] = []  # buffers of operations that still run and that nobody waits for any more


def on_a_thread(call: Callable[[], Any]) -> None:
    """Calls it on a thread of its own and raises what it raises: the caller's thread, of which Python expects that it handles signals
    (Ctrl-C), can do so while the call waits in C."""
    failed: List[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001: raised below
            failed.append(error)
    thread = threading.Thread(target=run, name="aiacc waits", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_TICK_MS / 1000)
    if failed:
        raise failed[0]


class Request:
    """One operation. Its buffers are kept alive until it has completed, also if the request is dropped before."""
    __slots__ = ("_handle", "_kept", "_error")

    def __init__(self, handle: int, kept: Any) -> None:
        self._handle, self._kept = handle, kept
        self._error: Optional[Exception] = None

    def _ended(self, status: int) -> None:
        self._handle, self._kept = 0, None
        if status != OK:
            self._error = error(library(), status)

    def test(self) -> bool:
        """Whether it has completed. Raises the operation's error."""
        if self._handle and (status := library().aiacc_test(self._handle)) != PENDING:
            self._ended(status)
        if self._error is not None:
            raise self._error
        return not self._handle

    def wait(self, timeout: Optional[float] = None) -> None:
        """Waits until it has completed and raises its error. After `timeout` seconds raises Timeout; the request stays."""
        left = None if timeout is None or math.isinf(number("timeout", timeout)) else max(0, int(timeout * 1000))
        while self._handle:
            tick = _TICK_MS if left is None else min(_TICK_MS, left)
            status = library().aiacc_wait_for(self._handle, tick)
            if status != PENDING:
                self._ended(status)
            elif left is not None and (left := left - tick) <= 0:
                raise Timeout(f"the operation has not completed within {timeout} s, and goes on")
        if self._error is not None:
            raise self._error

    def wait_for(self, seconds: float) -> bool:
        """Whether it completes within this time. Raises its error. Python sees no signal (Ctrl-C) meanwhile."""
        if self._handle and (status := library().aiacc_wait_for(self._handle, int(number("seconds", seconds) * 1000))) != PENDING:
            self._ended(status)
        if self._error is not None:
            raise self._error
        return not self._handle

    def __del__(self) -> None:
        if self._handle and library().aiacc_test(self._handle) == PENDING:
            _abandoned.append(self._kept)
            library().aiacc_request_free(self._handle)


class AnySourceRequest(Request):
    """That of a recv_any."""
    __slots__ = ("_from",)

    def __init__(self, handle: int, kept: Any, sender: Any) -> None:
        super().__init__(handle, (kept, sender))
        self._from = sender

    @property
    def source(self) -> Optional[int]:
        """The rank that sent the message; None until test() or wait() has seen it."""
        return None if self._handle or self._error is not None else int(self._from.value)


class RequestSet:
    """Requests that one thread waits for. Each has a place, a number from 0 on."""

    def __init__(self) -> None:
        self._handles = (_abi.Handle * 16)()
        self._requests: List[Optional[Request]] = [None] * 16
        self._free = list(range(16))
        self._ended: List[int] = []

    def add(self, request: Request) -> int:
        if not self._free:
            size = len(self._requests)
            self._handles = (_abi.Handle * (2 * size))(*self._handles)
            self._requests += [None] * size
            self._free = list(range(size, 2 * size))
        place = self._free.pop()
        self._requests[place], self._handles[place] = request, request._handle
        if not request._handle:
            self._ended.append(place)
        return place

    def wait_for_one(self, seconds: float) -> Optional[int]:
        """The place of one that has completed and is no longer in the set: its wait() returns or raises its error. None if none has
        after this time."""
        status = OK
        if self._ended:
            place = self._ended.pop()
        else:
            place, status = self._wait_in_library(seconds) if seconds > 0 else self._test_each()
            if status == PENDING:
                return None
        request, self._requests[place] = self._requests[place], None
        assert request is not None
        if request._handle:
            request._ended(status)
        self._handles[place] = 0
        self._free.append(place)
        return place

    def _wait_in_library(self, seconds: float) -> Tuple[int, int]:
        """The place of one that has completed, and its status."""
        none = len(self._handles)
        index = c.c_size_t(none)
        status = library().aiacc_wait_any(none, self._handles, math.ceil(seconds * 1000), c.byref(index))
        if status == PENDING or index.value != none:
            return index.value, status
        if status == InvalidHandle.status:  # of one of them; of all of them once the library is over
            return self._test_each()
        raise error(library(), status)

    def _test_each(self) -> Tuple[int, int]:
        for place, handle in enumerate(self._handles):
            if handle and (status := library().aiacc_test(handle)) != PENDING:
                return place, status
        return len(self._handles), PENDING


def _checked(requests: Iterable[Request]) -> List[Request]:
    given = several("requests", requests, "a list of what calls with wait=False returned")
    for request in given:
        if not isinstance(request, Request):
            raise refused("a request", request, "what a call with wait=False returned")
    return given


def wait_any(requests: Iterable[Request], timeout: Optional[float] = None) -> int:
    """The place in the list of one that has completed: its wait() returns or raises its error at once. To get another one the next time
    the caller takes it out of the list. After `timeout` seconds raises Timeout; the requests stay."""
    end = None if timeout is None or milliseconds(timeout) < 0 else time.monotonic() + number("timeout", timeout)
    given, waiting = _checked(requests), RequestSet()
    if not given:
        raise ValueError("requests is empty: there is nothing to wait for")
    index_of = {waiting.add(request): index for index, request in enumerate(given)}
    while True:
        left = _TICK_MS / 1000 if end is None else max(0.0, end - time.monotonic())
        place = waiting.wait_for_one(min(left, _TICK_MS / 1000))
        if place is not None:
            return index_of[place]
        if end is not None and time.monotonic() >= end:
            raise Timeout(f"none of {len(given)} operations has completed within {timeout} s, and they go on")


def wait_all(requests: Iterable[Request]) -> None:
    """Waits for all of them, also after an error; then raises the first one."""
    first: Optional[Exception] = None
    given = _checked(requests)
    for request in given:
        try:
            request.wait()
        except Exception as failure:  # noqa: BLE001: the others are waited for all the same
            first = first or failure
    if first is not None:
        raise first
