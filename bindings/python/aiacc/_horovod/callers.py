"""Which threads of the program use a channel, and which of these wait in it."""
from __future__ import annotations

import contextlib
import threading
import time
from typing import Any, Dict, Iterator, List

# How long threads that have used no operation so far are expected to begin with one.
NEW_THREADS_S = 60.0
_MANY = 64


class Callers:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waits: Dict[threading.Thread, int] = {}  # of each thread that has used an operation, how many calls of it wait
        self._changed = time.monotonic()

    def note(self) -> None:
        """The calling thread uses operations."""
        self._count(0)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """The calling thread starts nothing meanwhile."""
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def _count(self, waits: int) -> None:
        thread = threading.current_thread()
        if isinstance(thread, threading._DummyThread):
            return  # not of Python's making: nobody knows when it ends
        with self._lock:
            self._waits[thread] = self._waits.get(thread, 0) + waits
            self._changed = time.monotonic()
            if len(self._waits) > _MANY:
                self._forget_ended()

    def _forget_ended(self) -> None:
        for thread in [one for one in self._waits if not one.is_alive()]:
            del self._waits[thread]

    def may_start_more(self) -> bool:
        """Whether some thread may start another operation before those end that others wait for: one that has used operations and does
        not wait, or, for a while, one that has not. Daemon threads that have used none serve something else."""
        with self._lock:
            self._forget_ended()
            if not all(self._waits.values()):
                return True
            known: Dict[Any, int] = dict(self._waits)
            changed = self._changed
        return time.monotonic() - changed < NEW_THREADS_S and bool(_new_threads(known))


def _new_threads(known: Dict[Any, int]) -> List[threading.Thread]:
    return [one for one in threading.enumerate()
            if one not in known and not one.daemon and not one.name.startswith("aiacc") and not isinstance(one, threading._DummyThread)]
