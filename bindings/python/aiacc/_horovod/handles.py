"""Handles of asynchronous operations: the numbers that users get."""
from __future__ import annotations

import itertools
import threading
from typing import Any, Callable, Dict, Hashable, Optional, Tuple

from aiacc._arguments import refused
from aiacc._horovod.channel import Channel, Operation

Key = Tuple[Optional[int], str, str]  # process set, kind, name


class Pending:
    """An operation that was started. `finish` makes the user's output of the operation's."""

    def __init__(self, channel: Channel, operation: Operation, finish: Callable[[Any], Any], key: Optional[Key]) -> None:
        self.channel, self.operation, self.finish, self.key = channel, operation, finish, key

    def done(self) -> bool:
        return self.operation.finished.is_set()

    def wait(self) -> Any:
        return self.finish(self.channel.wait(self.operation))


_lock = threading.Lock()
_pending: Dict[int, Any] = {}
_names: Dict[Key, Any] = {}  # in flight, and what has each; None: it blocks, or is about to be started
_numbers = itertools.count()


def take_name(key: Optional[Key]) -> None:
    """A name is in flight once at a time: until what has it has completed, synchronized or not."""
    if key is None:
        return
    with _lock:
        if key in _names and (_names[key] is None or not _names[key].done()):
            raise ValueError(f"{key[1]} '{key[2]}' was submitted twice: the first one has not completed yet; give the tensors different names")
        _names[key] = None


def give_back_name(key: Optional[Key], pending: Any = None) -> None:
    """Unless another one has it by now."""
    with _lock:
        if key is not None and key in _names and _names[key] is pending:
            del _names[key]


def add(pending: Any) -> int:
    with _lock:
        handle = next(_numbers)
        _pending[handle] = pending
        if pending.key is not None:
            _names[pending.key] = pending
    return handle


def _check(handle: Any) -> None:
    if not isinstance(handle, Hashable):
        raise refused("handle", handle, "what an asynchronous operation returned")


def poll(handle: int) -> bool:
    """Whether it has completed, so that synchronize will not wait."""
    _check(handle)
    with _lock:
        pending = _pending.get(handle)
    if pending is None:
        raise ValueError(f"handle {handle} was not created, or was synchronized already")
    return pending.done()


def synchronize(handle: Any) -> Any:
    """Waits for the operation and returns its output; None for a handle that is unknown or was synchronized already. What
    sparse_allreduce_async returned is accepted too."""
    if callable(handle):
        return handle()
    _check(handle)
    with _lock:
        pending = _pending.pop(handle, None)
    if pending is None:
        return None
    try:
        return pending.wait()
    finally:
        give_back_name(pending.key, pending)


def drop(handle: int) -> None:
    """Nobody waits for it any more. Its name is taken until it has completed."""
    with _lock:
        _pending.pop(handle, None)


def forget_all() -> None:
    global _numbers
    with _lock:
        _pending.clear()
        _names.clear()
        _numbers = itertools.count()
