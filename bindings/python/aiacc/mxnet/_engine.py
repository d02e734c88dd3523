"""Asynchronous operations in MXNet's dependency engine, by its C API.

An operation is pushed to the engine with the arrays that it reads and those that it writes. The engine calls back when they are
free, from a thread of its own, and goes on at once; it holds the arrays until the operation calls `complete`. So whatever the
program does with an array afterwards waits for the operation, and the program itself waits only where it reads a value.

- Operations without a name run in the order in which the program calls them, one after another, on the channel of their process
  set: not in the order in which their arrays become free, which differs between ranks.
- Allreduces with a name and operations of a KVStore begin when their arrays are free, in any order; a thread of this module waits
  for them.
- An error becomes MXNet's: reading the array raises MXNetError with the library's sentence.
"""
from __future__ import annotations

import ctypes as c
import itertools
import os
import queue
import threading
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import mxnet as mx
from mxnet.base import _LIB, check_call
from mxnet.ndarray import NDArray

from aiacc._arguments import whole
from aiacc._horovod import basics, handles
from aiacc._horovod.channel import Operation
from aiacc._horovod.process_sets import ProcessSet, checked_set
from aiacc.mxnet import tensors
from aiacc.requests import Request, RequestSet

Complete = Callable[[Optional[BaseException]], None]


class _OnComplete(c.Structure):
    """What the engine passes by pointer and frees when the callback returns."""
    _fields_ = [("function", c.c_void_p), ("engine", c.c_void_p), ("operation", c.c_void_p)]


class _Context(c.Structure):
    _fields_ = [("device_type", c.c_int), ("device_id", c.c_int32)]


_ASYNC = c.c_int(5)  # FnProperty::kAsync: the callback does not block
_CPU = _Context(1, 0)
_COMPLETED = c.CFUNCTYPE(None, c.c_void_p, c.c_void_p, c.c_void_p)
_BEGIN = c.CFUNCTYPE(None, c.c_void_p, c.c_void_p, c.c_void_p)
_numbers = itertools.count(1)
_to_begin: Optional[queue.SimpleQueue[Any]] = None
_begun: Dict[int, Tuple[Callable[[Complete], None], Any]] = {}  # what to call, and the arrays, which live as long


class _Text:
    """A std::runtime_error, of which the engine makes its own error."""

    def __init__(self, text: str) -> None:
        library = c.CDLL("libstdc++.so.6")
        self._memory = c.create_string_buffer(64)
        self._destroy = library._ZNSt13runtime_errorD1Ev
        self._destroy.argtypes, self._destroy.restype = (c.c_void_p,), None
        make = library._ZNSt13runtime_errorC1EPKc
        make.argtypes, make.restype = (c.c_void_p, c.c_char_p), None
        self.address = c.addressof(self._memory)
        make(self.address, text.encode())

    def close(self) -> None:
        self._destroy(self.address)


def _completer(number: int, on_complete: int) -> Complete:
    three = _OnComplete.from_address(on_complete)
    function, engine, operation = _COMPLETED(three.function), three.engine, three.operation

    def complete(error: Optional[BaseException]) -> None:
        _begun.pop(number, None)
        if error is None:
            function(engine, operation, None)
            return
        text = _Text(str(error))
        function(engine, operation, text.address)
        text.close()
    return complete


def _begin(number: int, complete: Complete) -> None:
    try:
        _begun[number][0](complete)
    except BaseException as error:  # noqa: BLE001: it cannot pass through C
        complete(error)


def _on_begin(_: Any, on_complete: int, number: int) -> None:
    complete = _completer(number, on_complete)
    if _to_begin is None:
        _begin(number, complete)
    else:
        _to_begin.put((number, complete))


_on_begin_callback = _BEGIN(_on_begin)


def _handles(arrays: Sequence[NDArray]) -> Any:
    return (c.c_void_p * len(arrays))(*(array.handle for array in arrays))


def _push(reads: Sequence[NDArray], writes: Sequence[NDArray], name: str, priority: int, begin: Callable[[Complete], None]) -> None:
    """`begin` gets what it calls when the arrays are done with. It must not block."""
    number = next(_numbers)
    _begun[number] = (begin, (reads, writes))
    # An array that oneDNN lays out its own way is put in order now: while the operation holds it nobody can.
    for array in (*reads, *writes):
        if tensors.may_be_blocked(array):
            tensors.settle(array)
    check_call(_LIB.MXEnginePushAsyncND(_on_begin_callback, c.c_void_p(number), None, c.byref(_CPU), _handles(reads), len(reads), _handles(writes),
                                        len(writes), c.byref(_ASYNC), c.c_int(priority), name.encode(), c.c_bool(False)))


def _is_naive() -> bool:
    """This engine of MXNet runs everything at once, for debugging, and knows no asynchronous operations."""
    return os.environ.get("MXNET_ENGINE_TYPE", "").startswith("Naive")


def start(process_set: ProcessSet, operation: Operation, reads: Sequence[NDArray], writes: Sequence[NDArray], priority: int) -> None:
    """Behind what was called before. An array stands in one of the lists, and once."""
    basics._known()
    channel, priority = checked_set(process_set)._channel(), whole("priority", priority)
    if _is_naive():
        channel.run(operation)
        return
    free = threading.Event()
    completers: List[Complete] = []

    def begin(complete: Complete) -> None:
        completers.append(complete)
        free.set()

    def prepare() -> None:
        free.wait()

    def ended(error: Optional[BaseException]) -> None:
        free.wait()
        completers[0](error)
    _push(reads, writes, str(operation), priority, begin)
    operation.prepare, operation.ended = prepare, ended  # type: ignore[method-assign]
    try:
        channel.start(operation, steps_aside=False)  # nobody waits for it through the channel
    except BaseException as error:
        ended(error)
        raise


def begin_in_own_thread() -> None:
    """From now on no thread of MXNet's engine calls the library. What the library does in such a call may be the updater of a server, in
    Python, which waits for that very thread."""
    global _to_begin

    def serve(waiting: queue.SimpleQueue[Any]) -> None:
        while True:
            _begin(*waiting.get())
    with _lock:
        if _to_begin is None:
            _to_begin = queue.SimpleQueue()
            threading.Thread(target=serve, args=(_to_begin,), name="aiacc.mxnet begin", daemon=True).start()


# --- operations in any order

_LOOKS_AGAIN_S = 0.005  # for operations that have begun while it waits for others
_pending: queue.SimpleQueue[Any] = queue.SimpleQueue()
_waiter: Optional[threading.Thread] = None
_lock = threading.Lock()


def _wait_for_pending() -> None:
    """For all of them at once: they end in another order than they begin, by their priorities."""
    begun: Dict[int, Tuple[Any, Complete]] = {}
    requests = RequestSet()
    while True:
        while not begun or not _pending.empty():
            pending, complete = _pending.get()
            begun[requests.add(pending.begin_wait())] = pending, complete
        ended = requests.wait_for_one(_LOOKS_AGAIN_S)
        if ended is None:
            continue
        pending, complete = begun.pop(ended)
        error: Optional[BaseException] = None
        try:
            pending.end_wait()
        except BaseException as failure:  # noqa: BLE001: it is the array's
            error = failure
        complete(error)


class OfStore:
    """An operation of a KVStore."""

    def __init__(self, request: Request) -> None:
        self._request = request

    def begin_wait(self) -> Request:
        return self._request

    def end_wait(self) -> None:
        self._request.wait()


def start_pending(make: Callable[[], Any], reads: Sequence[NDArray], writes: Sequence[NDArray], name: str, priority: int) -> None:
    """`make` begins the operation, when the arrays are free. What it returns has begin_wait(), which returns a request, and end_wait(), for when
    that has completed, which raises the operation's error."""
    global _waiter
    basics._known()
    if _is_naive():
        for array in (*reads, *writes):
            tensors.settle(array)
        pending = make()
        pending.begin_wait()
        pending.end_wait()
        return
    with _lock:
        if _waiter is None:
            _waiter = threading.Thread(target=_wait_for_pending, name="aiacc.mxnet", daemon=True)
            _waiter.start()
    _push(reads, writes, name, priority, lambda complete: _pending.put((make(), complete)))


class _Named:
    """An allreduce that has a name until its end."""

    def __init__(self, key: handles.Key, make: Callable[[], Any]) -> None:
        self._key = key
        handles.take_name(key)
        try:
            self._pending = make()
        except BaseException:
            handles.give_back_name(key)
            raise

    def begin_wait(self) -> Request:
        return self._pending.begin_wait()

    def end_wait(self) -> None:
        self._pending.end_wait()
        try:
            self._pending.wait()
        finally:
            handles.give_back_name(self._key)


def start_named(process_set: ProcessSet, name: str, given: NDArray, result: NDArray, op: int, prescale: float, postscale: float, priority: int) -> None:
    """In any order. `result` may be `given`."""
    basics._known()
    priority = whole("priority", priority)
    process_set._channel()  # which refuses those that are no members
    key = (process_set.process_set_id, "allreduce", name)

    def make() -> _Named:
        return _Named(key, lambda: process_set._named(tensors).start(name, given, result, op, prescale, postscale, priority=priority))
    start_pending(make, [] if given is result else [given], [result], f"allreduce {name}", priority)


def finish() -> None:
    """Everything that the program has called is done."""
    try:
        mx.nd.waitall()
    except mx.base.MXNetError:
        pass  # which nobody has read


basics._before_shutdown.append(finish)
