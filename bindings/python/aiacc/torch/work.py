"""Operations of torch.distributed that were started: Work, its future and its errors."""
from __future__ import annotations

import atexit
import ctypes as c
import itertools
import os
import queue
import sys
import threading
import time
from datetime import timedelta
from typing import Any, Callable, Dict, List, Optional, Sequence, Type, Union

import torch
import torch.distributed as dist

import aiacc
from aiacc import _abi
from aiacc._library import library
from aiacc.errors import OK, PENDING, error
from aiacc.errors import _CLASSES as _ERRORS
from aiacc.torch._compile import never_compiled
from aiacc.torch._typed_future import TypedFuture

_BASE: Type[Exception] = getattr(dist, "DistBackendError", RuntimeError)
_NO_TIME = timedelta(0)
_LONG_MS = 1 << 30
_TICK_MS = 250  # a wait in C sees no signal of Python (Ctrl-C): it returns this often
_LONGEST_END_S = 5.0  # of threads, at the end of Python: one may wait for an operation that never ends
_mixed: Dict[type, type] = {}
_completing = threading.local()  # whether this thread ends a future with devices, which looks for tensors, too
_STREAMED = ("cuda", "xpu")  # whose streams torch's futures know


def failure(found: aiacc.Error) -> Exception:
    """The same error as one that users of torch.distributed catch."""
    # Users, and torch's own tests, know a time-out by this word.
    sentence = f"the timeout has passed: {found}" if isinstance(found, aiacc.Timeout) else str(found)
    return _mixed_failure(type(found), sentence, found.status, found.rank)


def _mixed_failure(kind: Type[aiacc.Error], sentence: str, status: int, rank: int) -> Exception:
    if kind not in _mixed:
        bases = (kind,) if issubclass(kind, _BASE) else (_BASE, kind)
        _mixed[kind] = type(kind.__name__, bases, {"__doc__": kind.__doc__, "__module__": "aiacc", "__reduce__": _reduced})
    made = _mixed[kind](sentence)
    made.status, made.rank = status, rank
    return made


def _reduced(one: Any) -> Any:
    """torch looks for tensors in what a future has by pickling it, and DistributedDataParallel would take an error for tensors: raised here, it
    is what backward raises."""
    if sys._getframe(1).f_code.co_name == "_extract_tensors" and not getattr(_completing, "yes", False):
        raise _BASE(str(one))
    kind = next(each for each in type(one).__mro__[1:] if issubclass(each, aiacc.Error))
    return _mixed_failure, (kind, str(one), one.status, one.rank)


class _Future(torch.futures.Future):  # type: ignore[type-arg]
    """The future of a Work. What users attach to it may wait for further operations, so it does not run on the one thread by which the
    library tells of ends."""

    def __init__(self, devices: List[torch.device]) -> None:
        super().__init__(devices=[*devices] or None)  # on whose streams what is attached runs, behind the result
        self._has_devices = bool(devices)
        self._order = threading.Lock()
        self._attached = self._completing = False

    def _attach(self) -> None:
        with self._order:
            self._attached = True
            completing = self._completing
        while completing and not super().done():  # by another thread, at once: nothing was attached
            pass

    def then(self, callback: Any) -> Any:
        self._attach()
        return super().then(callback)

    def add_done_callback(self, callback: Any) -> None:
        self._attach()
        super().add_done_callback(callback)

    @property
    def future(self) -> torch.futures.Future[Any]:
        return self

    def complete(self, results: Any, error: Optional[Exception]) -> None:
        with self._order:
            attached = self._attached
            self._completing = not attached
        if attached:
            threading.Thread(target=self._set, args=(results, error), name="aiacc future").start()
        else:
            self._set(results, error)

    def _set(self, results: Any, error: Optional[Exception]) -> None:
        if error is not None:
            _completing.yes = self._has_devices
            try:
                self.set_exception(error)
            finally:
                _completing.yes = False
        else:
            self.set_result(results)


def _devices_of(results: Any) -> List[torch.device]:
    """Those of the tensors that have streams."""
    if isinstance(results, torch.Tensor):
        return [results.device] if results.device.type in _STREAMED else []
    return list({device for one in results or () for device in _devices_of(one)})


def _may_be_of_a_hook(results: Any) -> bool:
    """Of DDP's in C++ that compresses to fp16; on the CPU, as its future has no device."""
    return isinstance(results, list) and len(results) == 1 and isinstance(results[0], torch.Tensor) and results[0].dtype == torch.float16 and \
        results[0].is_cpu  # type: ignore[attr-defined]  # missing in annotations of torch 1


class Work(dist._Work if hasattr(dist, "_Work") else torch._C._distributed_c10d.Work):  # type: ignore[misc]
    """One operation. It keeps the tensors alive until it has completed. Any thread may wait."""

    # Defaults of the class, as most operations are short and need none of these.
    _request = 0
    _has_ended = False
    _end_event: Optional[threading.Event] = None  # of threads that wait for it, but not in the library
    _error: Optional[Exception] = None
    _future: Union[None, _Future, TypedFuture] = None
    _number = 0
    _hook: Optional[Callable[[], None]] = None
    asked: Optional[Callable[[Work], None]] = None  # told once it has ended and somebody knows

    def __init__(self, results: Any, kept: Any, finish: Optional[Callable[[], None]], source: Any = None) -> None:
        super().__init__()
        self._results, self._kept, self._finish, self._source = results, kept, finish, source
        self._lock = threading.Lock()

    @classmethod
    def done(cls, results: Any) -> Work:
        """One that has completed."""
        made = cls(results, None, None)
        made._end(None)
        return made

    @classmethod
    def all(cls, works: Sequence[Work], results: Any) -> Work:
        """One that completes with the last of `works`."""
        return _AllWork(works, results)

    def began(self, request: int) -> None:
        self._request = request

    def _end(self, failed: Optional[Exception]) -> None:
        """Told by whoever hears of it first: a wait, or the library's callback."""
        with self._lock:
            if self._has_ended:
                return
            if failed is None and self._finish is not None:
                try:
                    with torch.inference_mode():  # on any thread: the tensors may be parameters, or made in this mode
                        self._finish()
                except Exception as broken:  # noqa: BLE001: it is the operation's error
                    failed = broken
            self._error, self._kept, self._finish = failed, None, None
            hook, self._hook = self._hook, None
            if hook is not None:
                hook()
            self._has_ended = True
            future, event = self._future, self._end_event
        if event is not None:
            event.set()
        if future is not None:
            future.complete(self._results, self._error)
            self._known()

    def when_ended(self, hook: Callable[[], None]) -> None:
        """Calls it before anybody learns of the end, or now."""
        with self._lock:
            if not self._has_ended:
                self._hook = hook
                return
        hook()

    # --- what torch calls

    @never_compiled
    def is_completed(self) -> bool:
        if not self._has_ended and self._request:
            self._take(library().aiacc_wait_for(self._request, 0))
        return self._has_ended

    @never_compiled
    def is_success(self) -> bool:
        return self.is_completed() and self._error is None

    def exception(self) -> Optional[Exception]:
        return self._error

    def result(self) -> Any:
        return self._results

    def source_rank(self) -> int:
        return self._source.value if self._source is not None else -1

    _source_rank = source_rank

    @never_compiled
    def synchronize(self) -> None:
        self.wait()

    @never_compiled
    def wait(self, timeout: timedelta = _NO_TIME) -> bool:
        left = int(timeout.total_seconds() * 1000) if timeout > _NO_TIME else None
        while not self._has_ended:
            tick = _TICK_MS if left is None else min(_TICK_MS, left)
            if self._request:
                self._take(library().aiacc_wait_for(self._request, tick))
            else:
                self._wait_for_end(tick / 1000)
            if left is not None and not self._has_ended and (left := left - tick) <= 0:
                raise failure(aiacc.Timeout(f"the operation did not complete within {timeout}, and goes on"))
        if self.asked is not None:
            self._known()
        if self._error is not None:
            raise self._error
        return True

    @never_compiled
    def get_future(self) -> torch.futures.Future[Any]:
        with self._lock:
            if self._future is not None:
                return self._future.future
            new = self._future = TypedFuture(self._results) if _may_be_of_a_hook(self._results) else _Future(_devices_of(self._results))
            ended = self._has_ended
        if ended:
            new.complete(self._results, self._error)
            self._known()
        elif self._request and not self._number and not self.is_completed():
            Waiters.wait_for(self)
        return new.future

    def _known(self) -> None:
        if self.asked is not None:
            told, self.asked = self.asked, None
            told(self)

    def _end_in_library(self) -> None:
        """On a thread of its own."""
        status = PENDING
        while status == PENDING and self._request and not self._has_ended:
            status = library().aiacc_wait_for(self._request, _LONG_MS)
        self._take(status)

    def _wait_for_end(self, seconds: Optional[float]) -> None:
        with self._lock:
            if self._has_ended:
                return
            if self._end_event is None:
                self._end_event = threading.Event()
        self._end_event.wait(seconds)

    def _take(self, status: int) -> None:
        if status == PENDING:
            return
        if status == aiacc.InvalidHandle.status:  # another thread has waited for it, and ends this
            self._wait_for_end(10)
            if self._has_ended:
                return
        self._request = 0
        self._end(None if status == OK else failure(error(library(), status)))

    def __del__(self) -> None:
        try:
            if self._request and aiacc.initialized():
                if not self._number:
                    Dropped.keep(self._request, self._kept)
                else:
                    library().aiacc_request_free(self._request)
        except Exception:  # noqa: BLE001: at the end of Python modules are gone before objects
            pass


class _AllWork(Work):
    """Of several operations. Its future is complete when it has been waited for, or when the last callback came."""

    def __init__(self, works: Sequence[Work], results: Any) -> None:
        super().__init__(results, None, None)
        self._works = list(works)
        if not works:
            self._end(None)

    @never_compiled
    def is_completed(self) -> bool:
        if all([one.is_completed() for one in self._works]) and not self._has_ended:
            self._end(next((one._error for one in self._works if one._error is not None), None))
        return self._has_ended

    @never_compiled
    def wait(self, timeout: timedelta = _NO_TIME) -> bool:
        first: Optional[Exception] = None
        for one in self._works:
            try:
                one.wait(timeout)
            except Exception as failed:  # noqa: BLE001: the others are waited for all the same
                first = first or failed
        self._end(first)
        self._known()
        if self._error is not None:
            raise self._error
        return True

    @never_compiled
    def get_future(self) -> torch.futures.Future[Any]:
        with self._lock:
            begun = self._future is not None
        future = super().get_future()
        if not begun and self._works:
            torch.futures.collect_all([one.get_future() for one in self._works]).add_done_callback(lambda _: self.is_completed())
        return future


class Waiters:
    """Threads that wait for operations of which the future was asked for. There are as many as ever were waited for at a time."""
    _asked: queue.SimpleQueue[Any] = queue.SimpleQueue()
    _free = 0  # those that wait for nothing
    _threads: List[threading.Thread] = []
    _process = 0
    _lock = threading.Lock()

    @classmethod
    def wait_for(cls, work: Work) -> None:
        with cls._lock:
            if cls._process != os.getpid():
                cls._begin_anew()
            cls._free -= 1
            if cls._free < 0:
                cls._free = 0
                cls._threads.append(threading.Thread(target=cls._serve, args=(cls._asked,), name="aiacc future", daemon=True))
                cls._threads[-1].start()
            cls._asked.put(work)

    @classmethod
    def _begin_anew(cls) -> None:
        cls._process, cls._free, cls._asked, cls._threads = os.getpid(), 0, queue.SimpleQueue(), []

    @classmethod
    def _serve(cls, asked: queue.SimpleQueue[Any]) -> None:
        while True:
            work = asked.get()
            if work is None:
                return
            work._end_in_library()
            del work
            with cls._lock:
                if asked is cls._asked:
                    cls._free += 1

    @classmethod
    def end(cls) -> None:
        """A thread that frees a tensor while Python ends is ended within C++ of torch, which aborts the process."""
        with cls._lock:
            if cls._process != os.getpid():
                return
            asked, threads = cls._asked, cls._threads
            cls._begin_anew()
        for _ in threads:
            asked.put(None)
        limit = time.monotonic() + _LONGEST_END_S
        for thread in threads:
            thread.join(max(0, limit - time.monotonic()))


atexit.register(Waiters.end)


class Dropped:
    """What operations use that nobody can wait for any more, until they have ended."""
    _kept: Dict[int, Any] = {}
    _lock = threading.RLock()  # the collector of garbage may drop one at any time

    @classmethod
    def keep(cls, request: int, kept: Any) -> None:
        with cls._lock:
            if library().aiacc_test(request) == PENDING:
                cls._kept[request] = kept

    @classmethod
    def look(cls) -> None:
        """At two of them, before each operation."""
        if cls._kept:
            with cls._lock:
                for request in list(itertools.islice(cls._kept, 2)):
                    kept = cls._kept.pop(request)
                    cls.keep(request, kept)


class Started:
    """Operations whose end the library tells by its callback. They live here until then, whoever drops them."""
    _works: Dict[int, Work] = {}
    _next = 0
    _lock = threading.Lock()

    @classmethod
    def add(cls, work: Work) -> int:
        with cls._lock:
            cls._next += 1
            cls._works[cls._next] = work
            work._number = cls._next
            return cls._next

    @classmethod
    def forget(cls, work: Work) -> None:
        with cls._lock:
            cls._works.pop(work._number, None)

    @staticmethod
    @_abi.CALLBACK
    def callback(status: int, sentence: bytes, number: int) -> None:
        with Started._lock:
            work = Started._works.pop(number, None)
        if work is None:
            return
        found = None
        if status != OK:
            plain = _ERRORS.get(status, aiacc.Error)(sentence.decode(errors="replace"))
            plain.status = status
            found = failure(plain)
        work._end(found)
