"""One exception for each status of aiacc.h. Its text is the library's sentence."""
from __future__ import annotations

from typing import Any, Dict, Type

OK = 0
PENDING = 12


class Error(RuntimeError):
    """A call failed. `status` is its number in aiacc.h, `rank` the rank that it was about (-1: none)."""
    status = 13
    rank = -1


class InvalidArgument(Error, ValueError):
    """Nothing was started, and the group stays usable."""
    status = 1


class InvalidHandle(Error, ValueError):
    status = 2


class InvalidState(Error):
    """Before init, after finalize, or in a forked child."""
    status = 3


class Unsupported(Error, NotImplementedError):
    status = 4


class OutOfMemory(Error, MemoryError):
    status = 5


class SystemFailure(Error):
    """The operating system refused something."""
    status = 6


class Timeout(TimeoutError, Error):
    status = 7


class PeerFailed(Error):
    """A rank that the call needs is lost."""
    status = 8


class Mismatch(Error):
    """Ranks called different things, or with different arguments."""
    status = 9


class Aborted(Error):
    """An earlier error ended the group."""
    status = 10


class ProtocolError(Error):
    status = 11


class InternalError(Error):
    status = 13


class Unreachable(Error):
    """The network between two ranks was broken for AIACC_PATH_TIMEOUT."""
    status = 14


class NotFinite(Error, ArithmeticError):
    """A gradient is not finite on some rank (AIACC_NAN_CHECK): all ranks leave out the step."""
    status = 15


_CLASSES: Dict[int, Type[Error]] = {one.status: one for one in (
    InvalidArgument, InvalidHandle, InvalidState, Unsupported, OutOfMemory, SystemFailure, Timeout, PeerFailed, Mismatch, Aborted,
    ProtocolError, InternalError, Unreachable, NotFinite)}


def error(library: Any, status: int) -> Error:
    """The exception for the last failed call of this thread."""
    made = _CLASSES.get(status, Error)(library.aiacc_last_error().decode(errors="replace"))
    made.status, made.rank = status, library.aiacc_last_error_rank()
    return made


def check(library: Any, status: int) -> int:
    if status not in (OK, PENDING):
        raise error(library, status)
    return status
