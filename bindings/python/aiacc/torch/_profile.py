"""Operations of torch.distributed in torch's profilers: an event aiacc:all_reduce and its like, as Gloo and NCCL record theirs, and
in the counts of CommDebugMode."""
from __future__ import annotations

import contextlib
import functools
import os
import queue
import sys
import threading
from typing import Any, Callable, Iterable, List, Optional, Sequence, Set, Tuple

import torch

from aiacc.torch._compile import never_compiled
from aiacc.torch._counted import counting_modes, told

_enabled: Callable[[], bool] = torch.autograd._profiler_enabled
_nested = threading.local()
_lock = threading.RLock()  # of all below, and held while an event ends and while a profiler stops
_live: Set[_Event] = set()
_ends: Optional[queue.SimpleQueue[Any]] = None
_server: Optional[threading.Thread] = None
_of_parents: List[Any] = []


class _Event:
    __slots__ = ("future",)

    def __init__(self, future: torch.futures.Future[Any]) -> None:
        self.future: Optional[torch.futures.Future[Any]] = future

    def end(self) -> None:
        if _cannot_wait():
            return
        with _lock:
            if self in _live:
                _end([self])


def _end(events: Iterable[_Event]) -> None:
    """By a thread of its own: profilers call an event asynchronous if it ends on another thread than it began on. It also drops the
    futures: torch's half of an event must not be freed on a thread where it finds the state of another profiler."""
    assert _ends is not None
    futures = []
    for event in list(events):
        _live.discard(event)
        futures.append(event.future)
        event.future = None
    done = threading.Event()
    _ends.put((futures, done))
    done.wait()


def _serve(ends: queue.SimpleQueue[Any]) -> None:
    while True:
        futures, done = ends.get()
        try:
            while futures:
                with contextlib.suppress(Exception):  # an event that torch does not end is nothing to the operation
                    futures.pop().set_result(None)
        finally:
            done.set()


def _serves() -> bool:
    global _ends, _server
    if _ends is None:
        ends: queue.SimpleQueue[Any] = queue.SimpleQueue()
        server = threading.Thread(target=_serve, args=(ends,), name="aiacc profile", daemon=True)
        try:
            server.start()
        except RuntimeError:  # no thread can be made
            return False
        _ends, _server = ends, server
    return True


def _cannot_wait() -> bool:
    """Whether nothing would end an event: Python's other threads have stopped, or this is that thread, in a finalizer."""
    return sys.is_finalizing() or threading.current_thread() is _server


def _after_fork() -> None:
    """The child has no thread that ends events. Those of its parent are kept, as freeing them would end them."""
    global _lock, _ends, _server
    _lock, _ends, _server = threading.RLock(), None, None
    for event in _live:
        _of_parents.append(event.future)
        event.future = None
    _live.clear()


os.register_at_fork(after_in_child=_after_fork)


@functools.lru_cache(maxsize=None)
def _of_torch() -> Optional[Tuple[Any, Any]]:
    """What begins an event, and what lets it end with a future. None with a torch that lacks them. From then on all events end before a
    profiler stops: torch frees then what the profiler has recorded, and an event that ends later would write there."""
    try:
        enter = torch._C._autograd._record_function_with_args_enter  # type: ignore[attr-defined]  # missing in annotations
        end_with = torch.ops.profiler._call_end_callbacks_on_jit_fut._RecordFunction
        stop = torch.autograd.profiler._disable_profiler
    except (AttributeError, RuntimeError):
        return None

    @functools.wraps(stop)
    def stop_after_events(*arguments: Any, **keywords: Any) -> Any:
        if _cannot_wait():
            return stop(*arguments, **keywords)
        with _lock:
            if _live:
                _end(_live)
            return stop(*arguments, **keywords)
    torch.autograd.profiler._disable_profiler = stop_after_events
    return enter, end_with


def _begin(name: str, tensors: List[torch.Tensor]) -> Optional[_Event]:
    """Profilers before torch 2.12 keep what they record in the state of a thread, and lose an event that ends without it: a future, with
    which torch lets events end, brings it along. None if there can be no event."""
    with _lock:
        calls = _of_torch()
        if calls is None or not _serves() or not _enabled():
            return None
        enter, end_with = calls
        event = _Event(torch.futures.Future())
        end_with(enter(name, *tensors), event.future)
        _live.add(event)
        return event


def _flat(inputs: Any) -> List[torch.Tensor]:
    if isinstance(inputs, torch.Tensor):
        return [inputs]
    return [tensor for one in inputs for tensor in _flat(one)]


def is_observed() -> bool:
    """Whether an event shows the operation that this thread begins."""
    return getattr(_nested, "yes", False)


def is_shown() -> bool:
    """Whether a profiler wants an event of the operation that this thread is about to begin."""
    return _enabled() and not is_observed()


def is_watched() -> bool:
    """Whether somebody else than the caller wants to know of the operation that this thread is about to begin."""
    return bool(counting_modes()) or is_shown()


def recorded(name: str, *inputs: int) -> Callable[[Any], Any]:
    """Of a method that returns a Work; Dynamo leaves it alone. `inputs`: the places of the arguments whose shapes the event shows."""
    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def call(self: Any, *arguments: Any, **keywords: Any) -> Any:
            if modes := counting_modes():
                return told(modes, function.__name__, lambda *given: call(self, *given, **keywords), arguments)
            if not is_shown():
                return function(self, *arguments, **keywords)
            shown: Sequence[Any] = [arguments[i] for i in inputs if i < len(arguments)]
            event = _begin(f"aiacc:{name}", _flat(shown))
            if event is None:
                return function(self, *arguments, **keywords)
            _nested.yes = True
            try:
                work = function(self, *arguments, **keywords)
            except BaseException:
                event.end()
                raise
            finally:
                _nested.yes = False
            work.when_ended(event.end)
            return work
        return never_compiled(call)
    return decorate
