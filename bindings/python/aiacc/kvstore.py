"""The key-value store of aiacc/kv.h: values that ranks push gradients to and pull, as MXNet's kvstore."""
from __future__ import annotations

import ctypes as c
import enum
import sys
import traceback
from typing import Any, Callable, Dict, Iterable, Optional, Sequence, Union

from aiacc import _abi
from aiacc._arguments import member, milliseconds, number, refused, several, text, whole
from aiacc._library import library
from aiacc.buffers import DType, buffer
from aiacc.groups import WORLD, Group, TrafficClass, handle_of
from aiacc.requests import Request, on_a_thread
from aiacc.runtime import int_array
from aiacc.runtime import path as encoded_path

Key = Union[int, str]
_callbacks: Dict[int, Any] = {}  # by store


class Mode(enum.IntEnum):
    """What a push waits for."""
    SYNC = 0  # all workers push: their sum is one round, and a pull sees the rounds that its rank has pushed to
    ASYNC = 1  # each push is applied at once
    BOUNDED = 2  # as ASYNC, but nobody gets further than `staleness` pushes ahead of the slowest


class Wire(enum.IntEnum):
    """In what pushed fp32 elements travel."""
    PLAIN = 0
    FLOAT16 = 1
    BFLOAT16 = 2
    TWO_BIT = 3  # MXNet's: dense pushes of +threshold, 0 and -threshold; the rest is added to the next


class Update(enum.IntEnum):
    """What servers do with a push, or in SYNC with the sum of a round."""
    ASSIGN = 0
    SUM = 1
    SGD = 2
    ADAM = 3


def _key(key: Key) -> _abi.KvKey:
    if isinstance(key, str):
        return _abi.KvKey(name=key.encode())
    return _abi.KvKey(number=whole("key", key))


def _rows(name: str, rows: Iterable[int]) -> Any:
    try:
        view = memoryview(rows)  # type: ignore[arg-type]
    except TypeError:
        view = memoryview(b"")
    if view.format in ("l", "q") and view.itemsize == 8 and view.c_contiguous:
        return (c.c_int64 * (view.nbytes // 8)).from_buffer_copy(view.cast("B"))
    numbers = several(name, rows, "numbers of rows")
    try:
        return (c.c_int64 * len(numbers))(*numbers)
    except TypeError:
        raise refused(name, rows, "whole numbers of rows") from None


class KVStore:
    """Belongs to the ranks of a group, each of which makes it, with equal arguments; waits until all have. Arguments that take an
    array take what collectives do: a Buffer, or what has the buffer protocol. Without servers and workers all ranks are both, or those
    that the job says (aiaccrun --servers); one that only serves makes the store, does what all ranks do together, and frees it, which
    takes until the workers have freed it.

    Calls return a Request if `wait` is False, and else when they have ended. Those on one key take effect in their order without
    waiting; what of different keys waits to be sent goes by `priority`, the higher first. Numbers of rows are any integers; an array
    of 64-bit ones is copied as it is. With replicas=2 the next server has each value too, and goes on with it if a server is lost. `traffic_class` is that of
    all its messages between hosts; the default is BULK."""

    def __init__(self, mode: Mode = Mode.SYNC, group: Group = WORLD, name: str = "", staleness: int = 0, split_elements: int = 0,
                 servers: Sequence[int] = (), workers: Sequence[int] = (), wire: Wire = Wire.PLAIN, threshold: float = 0.5,
                 timeout: Optional[float] = None, replicas: int = 1, traffic_class: TrafficClass = TrafficClass.DEFAULT) -> None:
        made = _abi.Handle()
        servers, workers = several("servers", servers, "a list of ranks"), several("workers", workers, "a list of ranks")
        ranks = int_array(servers, "servers"), int_array(workers, "workers")
        attr = _abi.KvAttr(size=c.sizeof(_abi.KvAttr), name=(text("name", name) or "").encode(), mode=member("mode", mode, Mode),
                           wire=member("wire", wire, Wire), staleness=whole("staleness", staleness), threshold=number("threshold", threshold),
                           split_elements=whole("split_elements", split_elements), n_servers=len(servers), servers=ranks[0], n_workers=len(workers),
                           workers=ranks[1], timeout_ms=0 if timeout is None else milliseconds(timeout), replicas=whole("replicas", replicas),
                           traffic_class=member("traffic_class", traffic_class, TrafficClass))
        library().aiacc_kv_create(handle_of("group", group), c.byref(attr), c.byref(made))
        self.handle, self.group, self.mode = made.value, group, Mode(mode)
        roles = [c.c_int() for _ in range(4)]
        library().aiacc_kv_roles(self.handle, *(c.byref(one) for one in roles))
        self._worker, self._workers, self._server, _ = (one.value for one in roles)

    @property
    def type(self) -> str:
        """As MXNet's scripts look for it: contains dist, and _sync or _async."""
        return "dist_sync_aiacc" if self.mode == Mode.SYNC else "dist_async_aiacc"

    @property
    def rank(self) -> int:
        """Of this rank among the workers; -1 if it only serves."""
        return self._worker

    @property
    def num_workers(self) -> int:
        return self._workers

    @property
    def is_server(self) -> bool:
        return self._server >= 0

    def _call(self, name: str, key: Key, *arguments: Any, priority: int, timeout: Optional[float], wait: bool, kept: Any) -> Optional[Request]:
        attr = _abi.Attr(size=c.sizeof(_abi.Attr), priority=whole("priority", priority), timeout_ms=0 if timeout is None else milliseconds(timeout))
        made = _abi.Handle()
        getattr(library(), f"aiacc_kv_{name}")(self.handle, _key(key), *arguments, c.byref(attr), c.byref(made))
        request = Request(made.value, kept)
        if not wait:
            return request
        request.wait()
        return None

    def init(self, key: Key, value: Any, rows: Optional[int] = None, priority: int = 0, timeout: Optional[float] = None,
             wait: bool = True) -> Optional[Request]:
        """Begins a key; the first worker's `value` counts, of the others its type and length. `rows`: of a value whose rows are pushed
        and pulled by number."""
        given = buffer(value, name="value")
        rows = None if rows is None else whole("rows", rows)
        shape = (given.count, 1) if rows is None else (rows, given.count // rows if rows else 1)
        if shape[0] * shape[1] != given.count:
            raise ValueError(f"{given.count} elements do not make {rows} rows")
        return self._call("init", key, given.dtype, *shape, given.address, priority=priority, timeout=timeout, wait=wait, kept=(value, given))

    def push(self, key: Key, value: Any, priority: int = 0, timeout: Optional[float] = None, wait: bool = True) -> Optional[Request]:
        """A gradient for the whole value."""
        given = buffer(value, name="value")
        return self._call("push", key, given.count, given.address, priority=priority, timeout=timeout, wait=wait, kept=(value, given))

    def pull(self, key: Key, out: Any, priority: int = 0, timeout: Optional[float] = None, wait: bool = True) -> Optional[Request]:
        """The whole value, into `out`."""
        taken = buffer(out, writable=True, name="out")
        return self._call("pull", key, taken.count, taken.address, priority=priority, timeout=timeout, wait=wait, kept=(out, taken))

    def pushpull(self, key: Key, value: Any, out: Any = None, priority: int = 0, timeout: Optional[float] = None, wait: bool = True) -> Optional[Request]:
        """Both with one message each way; the value goes to `out`, or to where the gradient was."""
        given = buffer(value, name="value")
        taken = buffer(value, writable=True, name="value") if out is None else buffer(out, writable=True, name="out")
        if given.count != taken.count:
            raise ValueError(f"the gradient has {given.count} elements, and `out` {taken.count}")
        return self._call("pushpull", key, given.count, given.address, taken.address, priority=priority, timeout=timeout, wait=wait,
                          kept=(value, out, given, taken))

    def broadcast(self, key: Key, value: Any, out: Any, priority: int = 0) -> None:
        """Begins a key, and gives all workers the first one's value."""
        buffer(out, writable=True, name="out")  # before anything has begun
        self.init(key, value, priority=priority)
        self.pull(key, out, priority=priority)

    def row_sparse_push(self, key: Key, rows: Iterable[int], values: Any, priority: int = 0, timeout: Optional[float] = None,
                        wait: bool = True) -> Optional[Request]:
        """A gradient for some rows; those that come twice are summed. In SYNC it is this worker's push of the round."""
        numbers, given = _rows("rows", rows), buffer(values, name="values")
        return self._call("push_rows", key, len(numbers), numbers, given.address, priority=priority, timeout=timeout, wait=wait, kept=(values, given, numbers))

    def row_sparse_pull(self, key: Key, out: Any, row_ids: Iterable[int], priority: int = 0, timeout: Optional[float] = None,
                        wait: bool = True) -> Optional[Request]:
        """Some rows, one after the other, into `out`."""
        numbers, taken = _rows("row_ids", row_ids), buffer(out, writable=True, name="out")
        return self._call("pull_rows", key, len(numbers), numbers, taken.address, priority=priority, timeout=timeout, wait=wait, kept=(out, taken, numbers))

    def set_optimizer(self, kind: Update, rate: float = 0.01, momentum: float = 0.0, beta1: float = 0.9, beta2: float = 0.999,
                      epsilon: float = 1e-8, weight_decay: float = 0.0, rescale: float = 1.0, clip: float = 0.0) -> None:
        """What servers do with pushes. All ranks of the group call it, with replicas all that are left, with nothing outstanding."""
        numbers = {"rate": rate, "momentum": momentum, "beta1": beta1, "beta2": beta2, "epsilon": epsilon, "weight_decay": weight_decay,
                   "rescale": rescale, "clip": clip}
        self._set(_abi.KvUpdater(kind=member("kind", kind, Update), **{name: number(name, value) for name, value in numbers.items()}))

    def set_updater(self, updater: Callable[[Key, int, memoryview, memoryview], None]) -> None:
        """updater(key, first, gradient, value) changes `value` in place; both are memoryviews of the elements from number `first` of
        the key's on. It runs on each server, on another thread, and must not call the store. One that raises fails the pushes, and
        its traceback is printed on the server. All ranks of the group call it."""
        if not callable(updater):
            raise refused("updater", updater, "a function of key, first, gradient and value")

        def call(_: Any, key: _abi.KvKey, first: int, count: int, dtype: int, gradient: int, value: int) -> int:
            try:
                kind = DType(dtype)
                views = [memoryview((c.c_char * (count * kind.itemsize)).from_address(place)).cast("B") for place in (gradient, value)]
                updater(key.name.decode() if key.name is not None else key.number, first, *(_typed(view, kind) for view in views))
                return 0
            except BaseException:  # noqa: BLE001: nothing may pass through C
                traceback.print_exc(file=sys.stderr)
                return 1
        callback = _abi.KV_UPDATE(call)
        self._set(_abi.KvUpdater(kind=4, update=callback), callback)

    def _set(self, updater: _abi.KvUpdater, callback: Any = None) -> None:
        updater.size = c.sizeof(_abi.KvUpdater)
        library().aiacc_kv_set_updater(self.handle, c.byref(updater))
        _callbacks[self.handle] = callback  # until the store is freed, or another one is set

    def set_gradient_compression(self, compression: Dict[str, Any]) -> None:
        """{"type": "2bit", "threshold": 0.5} as MXNet, "fp16", "bf16" or "none": of what this rank pushes from now on."""
        kinds = {"2bit": Wire.TWO_BIT, "fp16": Wire.FLOAT16, "bf16": Wire.BFLOAT16, "none": Wire.PLAIN}
        if not isinstance(compression, dict):
            raise refused("compression", compression, "a dict, as {'type': '2bit', 'threshold': 0.5}")
        if compression.get("type") not in kinds:
            raise ValueError(f"compression type {compression.get('type')!r}: one of {', '.join(kinds)}")
        library().aiacc_kv_set_wire(self.handle, kinds[compression["type"]], number("threshold", compression.get("threshold", 0.5)))

    def save_optimizer_states(self, path: str) -> None:
        """Each server writes its values and the optimizer's states to `path`, a dot, and its rank. All ranks of the group call it,
        with nothing outstanding; with replicas all that are left, and who goes on for a lost server writes its file too. What an
        updater of Python remembers is the updater's to save."""
        library().aiacc_kv_save(self.handle, encoded_path("path", path))

    def load_optimizer_states(self, path: str) -> None:
        """Each server reads what it wrote, once the same keys are initialised and the optimizer is set. All ranks of the group call it."""
        library().aiacc_kv_load(self.handle, encoded_path("path", path))

    def barrier(self) -> None:
        """Of all ranks of the group."""
        self.group.barrier()

    def free(self) -> None:
        """All ranks of the group call it; a rank serves until then."""
        on_a_thread(lambda: library().aiacc_kv_free(self.handle))  # a server waits for all workers
        _callbacks.pop(self.handle, None)


_FORMATS: Dict[DType, Any] = {DType.INT8: "b", DType.UINT8: "B", DType.INT16: "h", DType.UINT16: "H", DType.INT32: "i", DType.UINT32: "I",
                              DType.INT64: "q", DType.UINT64: "Q", DType.FLOAT32: "f", DType.FLOAT64: "d", DType.BOOL: "?"}


def _typed(view: memoryview, kind: DType) -> memoryview:
    """Of 16-bit floats as unsigned integers: Python has no others."""
    return view.cast(_FORMATS.get(kind, "H"))


__all__ = ["KVStore", "Key", "Mode", "Update", "Wire"]
