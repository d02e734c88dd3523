"""Operations of torch.distributed in torch's profilers: an event aiacc:all_reduce and its like, as Gloo and NCCL record theirs, and
in the counts of CommDebugMode."""
from __future__ import annotations

import functools
import os
import queue
import threading
from typing import Any, Callable, List, Optional, Sequence

import torch

from aiacc.torch._compile import never_compiled
from aiacc.torch._counted import counting_modes, told

_enabled: Callable[[], bool] = torch.autograd._profiler_enabled
_nested = threading.local()
_ends: Optional[queue.SimpleQueue[Any]] = None
_process = 0
_lock = threading.Lock()


def _serve(ends: queue.SimpleQueue[Any]) -> None:
    while True:
        future, done = ends.get()
        future.set_result(None)
        done.set()


def _begin(name: str, tensors: List[torch.Tensor]) -> Callable[[], None]:
    """Begins an event, and returns what ends it. Profilers before torch 2.12 keep what they record in the state of a thread, and lose an event
    that ends without it: a future, with which torch lets events end, brings it along."""
    event = torch._C._autograd._record_function_with_args_enter(name, *tensors)  # type: ignore[attr-defined]  # missing in annotations
    future: torch.futures.Future[Any] = torch.futures.Future()
    torch.ops.profiler._call_end_callbacks_on_jit_fut._RecordFunction(event, future)
    return lambda: _complete(future)


def _complete(future: torch.futures.Future[Any]) -> None:
    """By a thread of its own: profilers call an event asynchronous if it ends on another thread than it began on."""
    global _ends, _process
    with _lock:
        if _ends is None or _process != os.getpid():
            _ends, _process = queue.SimpleQueue(), os.getpid()
            threading.Thread(target=_serve, args=(_ends,), name="aiacc profile", daemon=True).start()
    done = threading.Event()
    _ends.put((future, done))
    done.wait()


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
            end = _begin(f"aiacc:{name}", _flat(shown))
            _nested.yes = True
            try:
                work = function(self, *arguments, **keywords)
            except BaseException:
                end()
                raise
            finally:
                _nested.yes = False
            work.when_ended(end)
            return work
        return never_compiled(call)
    return decorate
