"""Calls that every rank of a process set takes part in without a comparison before: those of SyncBatchNorm and ShardedSoftmax, whose order
is the model's.

A rank that has joined can take no part in them. It waits at a barrier where they are made, so that a call of another rank meets that and
not nobody: the library tells all of them at once that they differ. The call raises, what they were made on is over, and every rank makes
another one, on which the joined rank waits again. So a process set stays usable, as with the other operations that cannot go on then. Ranks of
one host compare calls when each of them has made one, so those that have not joined all call the layer, as the model says, or join.
"""
from __future__ import annotations

import threading
from typing import Any, Callable, List, Optional

from aiacc._horovod.exceptions import HorovodInternalError
from aiacc.errors import Aborted, Mismatch

_LEFT = "a rank has left: "  # begins the reason of an abort, whose message may name the barrier that it ended


class Unnegotiated:
    """`make` gives what the calls are made on, local and in the same order on all ranks, with abort() and free(); `barrier` waits on it for all ranks."""

    def __init__(self, make: Callable[[], Any], barrier: Callable[[Any], Any]) -> None:
        self._make, self._barrier = make, barrier
        self._lock = threading.Lock()
        self._made: Optional[Any] = None
        self._closed = False
        self._over: List[Any] = []  # not freed before the end, so that ranks that come late hear why

    def get(self) -> Any:
        with self._lock:
            if self._closed:
                raise HorovodInternalError("the process set is over")
            if self._made is None:
                self._made = self._make()
            return self._made

    def call(self, what: str, function: Callable[[Any], Any]) -> Any:
        made = self.get()
        try:
            return function(made)
        except ValueError:
            raise  # of what is wrong on all ranks alike: nothing is over
        except RuntimeError as failure:
            if not _is_of_join(failure):
                raise HorovodInternalError(f"{what}: {failure}") from failure
            self._give_up(made)
            raise HorovodInternalError(f"{what} while a rank has joined: only sums and averages go on then ({failure})") from failure

    def join(self) -> None:
        """Returns when all ranks have joined."""
        while True:
            made = self.get()
            try:
                self._barrier(made)
                return
            except RuntimeError as failure:
                if not _is_of_join(failure):
                    raise
            self._give_up(made)

    def abort(self, reason: str) -> None:
        """Who waits in a call raises."""
        with self._lock:
            self._closed, made = True, self._made
        if made is not None:
            made.abort(_LEFT + reason)

    def close(self) -> None:
        with self._lock:
            every, self._over, self._made = [*self._over, self._made], [], None
        for made in every:
            try:
                if made is not None:
                    made.free()
            except RuntimeError:
                pass  # the world is over already

    def _give_up(self, made: Any) -> None:
        with self._lock:
            if self._made is made:
                self._made = None
                self._over.append(made)


def _is_of_join(failure: BaseException) -> bool:
    """Nothing but join makes barriers there. A rank that comes later hears that the ranks' calls have differed before."""
    return isinstance(failure, (Mismatch, Aborted)) and "barrier" in str(failure) and _LEFT not in str(failure)
