"""The process as one rank: init, finalize and who is who."""
from __future__ import annotations

import atexit
import builtins
import ctypes as c
import functools
import json
import os
import sys
import threading
from opcode import opname
from typing import Any, Callable, List, NoReturn, Optional, Protocol, Sequence, Set, Union

from aiacc import _abi
from aiacc._arguments import number, refused, text, whole
from aiacc._library import library

_MOST_MS = 2**31 - 1  # of aiacc_init_attr_t
_stores: List[Any] = []  # callbacks of stores live as long as the process
_initializer: Optional[int] = None  # the process that called init
_gone_on_without: Set[int] = set()  # lost ranks that the program has dealt with


class Store(Protocol):
    """A key-value store that all ranks see, such as torch.distributed's. Keys are text; `get` waits for the key."""

    def set(self, key: str, value: bytes) -> Any: ...

    def get(self, key: str) -> bytes: ...


def _guarded(function: Callable[..., None]) -> Callable[..., int]:
    def call(*arguments: Any) -> int:
        try:
            function(*arguments)
        except Exception:  # noqa: BLE001: it cannot pass through C; aiacc_init says that the store failed
            import traceback
            traceback.print_exc()
            return 1
        return 0
    return call


def _c_store(store: Store) -> _abi.Store:
    def put(_: Any, key: bytes, value: int, size: int) -> None:
        store.set(key.decode(), c.string_at(value, size))

    def get(_: Any, key: bytes, value: int, capacity: int, size: Any, timeout: int) -> None:
        found = store.get(key.decode())
        c.memmove(value, found, min(capacity, len(found)))
        size[0] = len(found)

    def wait(_: Any, keys: Any, count: int, timeout: int) -> None:
        for i in range(count):
            store.get(keys[i].decode())

    made = _abi.Store(c.sizeof(_abi.Store), None, _abi.PUT(_guarded(put)), _abi.GET(_guarded(get)), _abi.WAIT(_guarded(wait)))
    _stores.append(made)
    return made


def init(*, rank: Optional[int] = None, size: Optional[int] = None, store: Optional[Store] = None, job: Optional[str] = None,
         timeout: Optional[float] = None) -> None:
    """Makes this process a rank. Collective over the job.

    Rank and size come from the arguments, from aiaccrun, from AIACC_RENDEZVOUS, or (a world of one) from nothing at all.
    `timeout`: seconds until all ranks must have come. The process leaves the job in order when Python exits, unless it has
    called finalize before. It is an error to call init twice. Under aiaccrun, init may follow finalize if all ranks call it again.
    """
    if (rank is None) != (size is None):
        raise ValueError("rank and size are given together, or neither")
    attr = _abi.InitAttr(size=c.sizeof(_abi.InitAttr))
    if rank is not None and size is not None:
        attr.world_size_set, attr.rank, attr.world_size = 1, whole("rank", rank), whole("size", size)
    if timeout is not None:
        attr.timeout_ms = int(min(number("timeout", timeout) * 1000, _MOST_MS))
    if job is not None:
        attr.job = (text("job", job) or "").encode()
    if store is not None:
        attr.store = c.pointer(_c_store(store))
    library().aiacc_init(c.byref(attr))
    global _initializer
    _initializer = os.getpid()
    _exits.watch()
    at_end(_at_exit)


class _Exits:
    """Knows whether the main thread ends by sys.exit, exit or quit with a failure. Python tells nobody: exit functions see no status."""

    def __init__(self) -> None:
        self._watched = False
        self._last: Any = None  # the program's outermost frame, and where it was

    def watch(self) -> None:
        if self._watched:
            return
        self._watched = True
        original = sys.exit

        @functools.wraps(original)
        def exit(status: Any = None, /) -> NoReturn:  # noqa: A001
            self.note(status)
            original(status)
        sys.exit = exit
        quitter: Any = type(getattr(builtins, "exit", None))  # of the module site, which python -S leaves out
        if quitter.__name__ == "Quitter":
            quit_of_site = quitter.__call__

            def quit(this: Any, code: Any = None) -> None:  # noqa: A001
                self.note(code)
                quit_of_site(this, code)
            quitter.__call__ = quit

    def note(self, status: Any) -> None:
        self._last = None
        if status not in (None, 0) and threading.current_thread() is threading.main_thread():
            outermost: Any = sys._getframe()
            while outermost.f_back is not None:
                outermost = outermost.f_back
            self._last = outermost, outermost.f_lasti

    def failed(self) -> bool:
        """Where the exception was caught instead, the program has gone on from there."""
        if self._last is None:
            return False
        frame, place = self._last
        code, at = frame.f_code.co_code, frame.f_lasti
        name = opname[code[at]]  # of the end of a `with` or `finally`, or of a `raise` of what is being handled, whose argument is 0
        return bool(at == place or name in ("RERAISE", "END_FINALLY") or (name == "RAISE_VARARGS" and code[at + 1] == 0))


_exits = _Exits()
note_exit = _exits.note


def at_end(function: Callable[[], None]) -> None:
    """Calls it when Python exits, and when a process of multiprocessing ends, which runs no exit functions."""
    atexit.register(function)
    if (ends := _ends_of_multiprocessing()) is not None:
        ends.Finalize(None, function, exitpriority=10)


def _ends_of_multiprocessing() -> Any:
    """None: this is no such process."""
    processes = sys.modules.get("multiprocessing.process")
    return sys.modules.get("multiprocessing.util") if processes is not None and processes.parent_process() is not None else None


def _code_of_multiprocessing() -> int:
    """The exit code of a process of multiprocessing that ends; since Python 3.13 its exception is over when its exit functions run."""
    if _ends_of_multiprocessing() is not None:
        frame: Any = sys._getframe()
        while (frame := frame.f_back) is not None:
            if frame.f_globals.get("__name__") in ("multiprocessing.popen_fork", "multiprocessing.forkserver") and "code" in frame.f_locals:
                return int(frame.f_locals["code"])
    return 0


def leaves_in_order() -> bool:
    """Whether the interpreter ends by something else than an exception that nobody caught, or sys.exit with a failure. After
    these, other ranks may wait for what this rank will never do: it ends without finalize, which fails the job at once."""
    raised = sys.exc_info()[1]  # where a process of multiprocessing ends, before Python 3.13
    if raised is not None and not (isinstance(raised, SystemExit) and raised.code in (None, 0)):
        return False
    if sys.version_info >= (3, 13) and _code_of_multiprocessing() != 0:
        return False
    return getattr(sys, "last_type", None) is None and not _exits.failed()


def _at_exit() -> None:
    # A forked child runs the exit functions of its parent.
    if _initializer == os.getpid() and initialized() and leaves_in_order():
        try:
            finalize()
        except RuntimeError as failure:
            if getattr(failure, "rank", -1) in _gone_on_without:
                return
            print(f"aiacc: leaving the job: {failure}", file=sys.stderr)


def go_on_without(rank: int) -> None:
    """The program has dealt with the loss of this rank: leaving the job says no more of it."""
    _gone_on_without.add(rank)


def finalize() -> None:
    """Leaves the job in order: waits for this rank's operations. Collective."""
    library().aiacc_finalize()


def initialized() -> bool:
    return bool(library().aiacc_initialized())


HOSTS_REMOVED, HOSTS_ADDED = 1, 2


def hosts_updated() -> int:
    """Whether the next world of an elastic job has other ranks than this one: 0, or the sum of HOSTS_REMOVED and HOSTS_ADDED. Local, and
    ranks learn of it at different times: they agree before all call finalize and init."""
    what = c.c_int()
    library().aiacc_hosts_updated(c.byref(what))
    return what.value


def version() -> str:
    """That of the library."""
    return library().aiacc_version().decode()


def info() -> Any:
    """What aiacc-info prints, as dictionaries: this host, devices, settings and their origins, limits that will hurt."""
    needed = c.c_size_t()
    library().aiacc_info(None, 0, c.byref(needed))
    text = c.create_string_buffer(needed.value + 4096)  # the text differs from call to call
    library().aiacc_info(text, len(text), c.byref(needed))
    return json.loads(text.value)


def metrics() -> Any:
    """What the gradient engines of this rank have counted, as dictionaries (aiacc_metrics(3))."""
    needed = c.c_size_t()
    library().aiacc_metrics(0, None, 0, c.byref(needed))
    while True:
        text = c.create_string_buffer(needed.value)  # numbers grow meanwhile
        library().aiacc_metrics(0, text, len(text), c.byref(needed))
        if needed.value <= len(text):
            return json.loads(text.value)


def start_timeline(file: Optional[Union[str, os.PathLike[str]]] = None) -> None:
    """Begins a trace of the gradients of all ranks that call it, which rank 0 writes to `file` (aiacc_timeline_start(3))."""
    library().aiacc_timeline_start(0, None if file is None else path("file", file))


def stop_timeline() -> None:
    """Ends it: called by rank 0 on all ranks, else on this one. Without a timeline it does nothing."""
    library().aiacc_timeline_stop(0)


def path(name: str, given: Any) -> bytes:
    try:
        return os.fsencode(given)
    except TypeError:
        raise refused(name, given, "the path of a file") from None


class Memory:
    """`size` bytes that the ranks of this host share: collectives on them move the fewest bytes. memoryview(memory) and
    `memory.array` are over them; they are freed by `free`, or at finalize."""

    def __init__(self, size: int) -> None:
        size = whole("size", size)
        if size < 0:
            raise ValueError(f"size is {size}: it is a number of bytes")
        address = c.c_void_p()
        library().aiacc_mem_alloc(0, size, c.byref(address))
        self.address = address.value or 0
        self.array = (c.c_ubyte * size).from_address(self.address) if size else (c.c_ubyte * 0)()

    def free(self) -> None:
        """No operation and no view may use the memory any more, on any rank."""
        if self.address:
            library().aiacc_mem_free(self.address)
            self.address = 0


def int_array(values: Sequence[int], name: str = "ranks") -> Any:
    try:
        return (c.c_int * len(values))(*values)
    except TypeError:
        raise refused(name, values, "a list of whole numbers") from None


def size_array(values: Sequence[int], name: str = "counts") -> Any:
    try:
        if not len(values) or min(values) >= 0:
            return (c.c_size_t * len(values))(*values)
    except TypeError:
        raise refused(name, values, "a list of whole numbers") from None
    raise ValueError(f"{name} is {list(values)}: it is of numbers from 0")
