"""Groups of ranks and the collectives on them."""
from __future__ import annotations

import ctypes as c
import enum
from typing import Any, List, Optional, Sequence, Tuple, Union

from aiacc import _abi
from aiacc._library import library
from aiacc.buffers import Buffer, DType, Like, Op, buffer
from aiacc.requests import Request
from aiacc.runtime import int_array, size_array

Started = Optional[Request]
Seconds = Optional[float]


class TrafficClass(enum.IntEnum):
    """Which of a rank's messages to another host go first, with the marks of AIACC_TC_*."""
    DEFAULT = 0  # short messages as LATENCY, long ones as BULK
    CONTROL = 1
    LATENCY = 2
    BULK = 3
    BACKGROUND = 4  # what nobody waits for


def _attr(name: Optional[str], timeout: Seconds, prescale: float = 1.0, postscale: float = 1.0) -> Any:
    if name is None and timeout is None and prescale == 1.0 and postscale == 1.0:
        return None
    made = _abi.Attr(size=c.sizeof(_abi.Attr), name=name.encode() if name else None, prescale=prescale, postscale=postscale)
    if timeout is not None:
        made.timeout_ms = -1 if timeout == float("inf") else max(1, int(timeout * 1000))
    return made


def _same_type(send: Buffer, recv: Buffer) -> DType:
    if send.dtype != recv.dtype:
        raise TypeError(f"send has elements of {DType(send.dtype).name} and recv of {DType(recv.dtype).name}: they are of one type")
    return send.dtype


def _room(what: str, have: Buffer, need: int) -> None:
    if have.count < need:
        raise ValueError(f"{what} has room for {have.count} elements, and the call needs {need}")


class Group:
    """Ranks that call collectives together.

    A collective is called by every rank of the group, in the same order on each. It blocks; with `wait=False` it is started
    and returns a Request. Buffers have the buffer protocol (numpy arrays do; numpy is not needed) or are a `Buffer`. With
    `recv` None the result replaces `send`. `timeout` is in seconds (default: AIACC_TIMEOUT), `name` is for messages.
    Errors are those of aiacc.errors: after any but InvalidArgument the group is over, on all its ranks.
    """

    def __init__(self, handle: int) -> None:
        self.handle = handle

    # --- who is who

    def _number(self, function: Any) -> int:
        value = c.c_int()
        function(self.handle, c.byref(value))
        return value.value

    @property
    def rank(self) -> int:
        return self._number(library().aiacc_rank)

    @property
    def size(self) -> int:
        return self._number(library().aiacc_size)

    @property
    def local_rank(self) -> int:
        """Among the ranks of the group on this host."""
        return self._number(library().aiacc_local_rank)

    @property
    def local_size(self) -> int:
        return self._number(library().aiacc_local_size)

    @property
    def host_index(self) -> int:
        """Of this rank's host among the hosts of the group."""
        return self._number(library().aiacc_host_index)

    @property
    def sequence(self) -> int:
        """How many collectives this rank has begun here."""
        value = c.c_uint64()
        library().aiacc_group_sequence(self.handle, c.byref(value))
        return value.value

    def __repr__(self) -> str:
        return f"<aiacc.Group {self.handle:#x}>"

    # --- groups of these ranks

    def create(self, ranks: Sequence[int], *, name: Optional[str] = None, key: int = 0, timeout: Seconds = None,
               traffic_class: TrafficClass = TrafficClass.DEFAULT) -> Group:
        """The group of these ranks, in this order. Called by them and by nobody else; no message is sent. `key` tells apart
        groups of equal members that several threads make; `timeout` and `traffic_class` are those of its operations."""
        made = _abi.Handle()
        library().aiacc_group_create(self.handle, len(ranks), int_array(ranks), self._group_attr(name, key, timeout, traffic_class), c.byref(made))
        return Group(made.value)

    def split(self, color: Optional[int], key: int = 0, *, name: Optional[str] = None, timeout: Seconds = None,
              traffic_class: TrafficClass = TrafficClass.DEFAULT) -> Optional[Group]:
        """Ranks of one color are a group, ordered by key, then by rank. None with color None. Collective."""
        made = _abi.Handle()
        library().aiacc_group_split(self.handle, -1 if color is None else color, key, self._group_attr(name, 0, timeout, traffic_class),
                                    c.byref(made))
        return Group(made.value) if made.value else None

    @staticmethod
    def _group_attr(name: Optional[str], key: int, timeout: Seconds, traffic_class: TrafficClass) -> Any:
        attr = _abi.GroupAttr(size=c.sizeof(_abi.GroupAttr), name=name.encode() if name else None, key=key, traffic_class=traffic_class)
        if timeout is not None:
            attr.timeout_ms = -1 if timeout == float("inf") else max(1, int(timeout * 1000))
        return attr

    def translate(self, ranks: Sequence[int], to: Group) -> List[int]:
        """These ranks of this group as ranks of `to`; -1 for no member."""
        found = (c.c_int * len(ranks))()
        library().aiacc_group_translate(self.handle, len(ranks), int_array(ranks), to.handle, found)
        return list(found)

    def free(self) -> None:
        """The handle is gone; what runs goes on to its end. Local."""
        library().aiacc_group_free(self.handle)

    def abort(self, reason: str = "") -> None:
        """Ends the group on all its members. Local."""
        library().aiacc_group_abort(self.handle, reason.encode())

    # --- collectives

    def _start(self, function: Any, kept: Any, arguments: Tuple[Any, ...], attr: Any, wait: bool) -> Started:
        request = _abi.Handle()
        function(*arguments, self.handle, attr, c.byref(request))
        made = Request(request.value, kept)
        if not wait:
            return made
        made.wait()
        return None

    def allreduce(self, send: Like, recv: Optional[Like] = None, op: Union[Op, int] = Op.SUM, *, prescale: float = 1.0, postscale: float = 1.0,
                  dtype: Optional[DType] = None, name: Optional[str] = None, timeout: Seconds = None, wait: bool = True) -> Started:
        """recv[i] = op over ranks of send[i]."""
        given, result = self._pair(send, recv, dtype)
        _room("recv", result, given.count)
        return self._start(library().aiacc_allreduce, (given, result), (given.address, result.address, given.count, _same_type(given, result), op),
                           _attr(name, timeout, prescale, postscale), wait)

    def allreduce_grouped(self, sends: Sequence[Like], recvs: Optional[Sequence[Like]] = None, op: Union[Op, int] = Op.SUM, *,
                          prescale: float = 1.0, postscale: float = 1.0, dtype: Optional[DType] = None, name: Optional[str] = None,
                          timeout: Seconds = None, wait: bool = True) -> Started:
        """Allreduce of several buffers of one type as one operation."""
        if recvs is not None and len(sends) != len(recvs):
            raise ValueError(f"{len(sends)} sends and {len(recvs)} recvs: they belong together")
        pairs = [self._pair(send, recvs[i] if recvs is not None else None, dtype) for i, send in enumerate(sends)]
        types = {_same_type(*pair) for pair in pairs}
        if len(types) > 1:
            raise TypeError(f"the buffers are of types {', '.join(sorted(one.name for one in types))}: one call takes one type")
        for given, result in pairs:
            _room("recv", result, given.count)
        n = len(pairs)
        arguments = (n, (c.c_void_p * n)(*(pair[0].address for pair in pairs)), (c.c_void_p * n)(*(pair[1].address for pair in pairs)),
                     size_array([pair[0].count for pair in pairs]), types.pop() if types else DType.FLOAT32, op)
        return self._start(library().aiacc_allreduce_grouped, pairs, arguments, _attr(name, timeout, prescale, postscale), wait)

    def reduce(self, send: Like, recv: Optional[Like] = None, op: Union[Op, int] = Op.SUM, root: int = 0, *, prescale: float = 1.0,
               postscale: float = 1.0, dtype: Optional[DType] = None, name: Optional[str] = None, timeout: Seconds = None, wait: bool = True) -> Started:
        """As allreduce, at `root` only; elsewhere `recv` is not looked at."""
        given, result = self._pair(send, recv if self.rank == root else None, dtype)
        _room("recv", result, given.count)
        return self._start(library().aiacc_reduce, (given, result),
                           (given.address, result.address if self.rank == root else None, given.count, _same_type(given, result), op, root),
                           _attr(name, timeout, prescale, postscale), wait)

    def broadcast(self, data: Like, root: int = 0, *, dtype: Optional[DType] = None, name: Optional[str] = None, timeout: Seconds = None,
                  wait: bool = True) -> Started:
        """The buffer of `root` to all."""
        all_of = buffer(data, dtype, writable=True)
        return self._start(library().aiacc_broadcast, all_of, (all_of.address, all_of.count, all_of.dtype, root), _attr(name, timeout), wait)

    def allgather(self, send: Like, recv: Like, *, counts: Optional[Sequence[int]] = None, dtype: Optional[DType] = None, name: Optional[str] = None,
                  timeout: Seconds = None, wait: bool = True) -> Started:
        """The blocks of all ranks one after another, on all ranks; with `counts` rank r's block has counts[r] elements."""
        given, result = self._pair(send, recv, dtype)
        kind = _same_type(given, result)
        if counts is None:
            _room("recv", result, given.count * self.size)
            return self._start(library().aiacc_allgather, (given, result), (given.address, result.address, given.count, kind), _attr(name, timeout), wait)
        _room("recv", result, sum(counts))
        return self._start(library().aiacc_allgatherv, (given, result), (given.address, given.count, result.address, size_array(counts), None, kind),
                           _attr(name, timeout), wait)

    def reduce_scatter(self, send: Like, recv: Like, op: Union[Op, int] = Op.SUM, *, counts: Optional[Sequence[int]] = None, prescale: float = 1.0,
                       postscale: float = 1.0, dtype: Optional[DType] = None, name: Optional[str] = None, timeout: Seconds = None,
                       wait: bool = True) -> Started:
        """This rank's block of the reduction of `send`, which holds the blocks of all ranks; with `counts` of counts[r] elements."""
        given, result = self._pair(send, recv, dtype)
        kind, attr = _same_type(given, result), _attr(name, timeout, prescale, postscale)
        if counts is None:
            _room("send", given, result.count * self.size)
            return self._start(library().aiacc_reduce_scatter, (given, result), (given.address, result.address, result.count, kind, op), attr, wait)
        _room("send", given, sum(counts))
        _room("recv", result, counts[self.rank])
        return self._start(library().aiacc_reduce_scatterv, (given, result), (given.address, result.address, size_array(counts), kind, op), attr, wait)

    def alltoall(self, send: Like, recv: Like, *, send_counts: Optional[Sequence[int]] = None, recv_counts: Optional[Sequence[int]] = None,
                 dtype: Optional[DType] = None, name: Optional[str] = None, timeout: Seconds = None, wait: bool = True) -> Started:
        """A block for each pair of ranks; with counts, of that many elements to and from each rank."""
        given, result = self._pair(send, recv, dtype)
        kind, attr = _same_type(given, result), _attr(name, timeout)
        if send_counts is None and recv_counts is None:
            if given.count % self.size:
                raise ValueError(f"send has {given.count} elements for {self.size} ranks: blocks are equal, or send_counts= says how long they are")
            _room("recv", result, given.count)
            return self._start(library().aiacc_alltoall, (given, result), (given.address, result.address, given.count // self.size, kind), attr, wait)
        if send_counts is None or recv_counts is None:
            raise ValueError("send_counts and recv_counts are given together, or neither")
        _room("send", given, sum(send_counts))
        _room("recv", result, sum(recv_counts))
        arguments = (given.address, size_array(send_counts), None, result.address, size_array(recv_counts), None, kind)
        return self._start(library().aiacc_alltoallv, (given, result), arguments, attr, wait)

    def gather(self, send: Like, recv: Optional[Like] = None, root: int = 0, *, counts: Optional[Sequence[int]] = None, dtype: Optional[DType] = None,
               name: Optional[str] = None, timeout: Seconds = None, wait: bool = True) -> Started:
        """As allgather, at `root` only; elsewhere `recv` and `counts` are not looked at, but `counts` is given or not as there."""
        given = buffer(send, dtype)
        result = buffer(recv, dtype, writable=True) if self.rank == root and recv is not None else Buffer(0, 0, given.dtype)
        kind, attr = _same_type(given, result), _attr(name, timeout)
        if self.rank == root:
            _room("recv", result, given.count * self.size if counts is None else sum(counts))
        if counts is None:
            return self._start(library().aiacc_gather, (given, result), (given.address, result.address, given.count, kind, root), attr, wait)
        arguments = (given.address, given.count, result.address, size_array(counts), None, kind, root)
        return self._start(library().aiacc_gatherv, (given, result), arguments, attr, wait)

    def scatter(self, send: Optional[Like], recv: Like, root: int = 0, *, counts: Optional[Sequence[int]] = None, dtype: Optional[DType] = None,
                name: Optional[str] = None, timeout: Seconds = None, wait: bool = True) -> Started:
        """Block r of the root's `send` to rank r; elsewhere `send` and `counts` are not looked at, but `counts` is given or not as there."""
        result = buffer(recv, dtype, writable=True)
        given = buffer(send, dtype) if self.rank == root and send is not None else Buffer(0, 0, result.dtype)
        kind, attr = _same_type(given, result), _attr(name, timeout)
        if self.rank == root:
            _room("send", given, result.count * self.size if counts is None else sum(counts))
        if counts is None:
            return self._start(library().aiacc_scatter, (given, result), (given.address, result.address, result.count, kind, root), attr, wait)
        arguments = (given.address, size_array(counts), None, result.address, result.count, kind, root)
        return self._start(library().aiacc_scatterv, (given, result), arguments, attr, wait)

    def barrier(self, *, name: Optional[str] = None, timeout: Seconds = None, wait: bool = True) -> Started:
        """Returns on each rank after all have called it."""
        return self._start(library().aiacc_barrier, None, (), _attr(name, timeout), wait)

    # --- messages

    def send(self, data: Like, to: int, tag: int = 0, *, dtype: Optional[DType] = None, timeout: Seconds = None, wait: bool = True) -> Started:
        """Matched by (sender, tag) in the order of the calls; sizes agree."""
        given = buffer(data, dtype)
        return self._start(library().aiacc_send, given, (given.address, given.count, given.dtype, to, tag), _attr(None, timeout), wait)

    def recv(self, data: Like, source: int, tag: int = 0, *, dtype: Optional[DType] = None, timeout: Seconds = None, wait: bool = True) -> Started:
        result = buffer(data, dtype, writable=True)
        return self._start(library().aiacc_recv, result, (result.address, result.count, result.dtype, source, tag), _attr(None, timeout), wait)

    def sendrecv(self, send: Like, to: int, recv: Like, source: int, tag: int = 0, *, dtype: Optional[DType] = None, timeout: Seconds = None,
                 wait: bool = True) -> Started:
        """A send and a recv side by side: neither waits for the other."""
        given, result = buffer(send, dtype), buffer(recv, dtype, writable=True)
        arguments = (given.address, given.count, to, tag, result.address, result.count, source, tag, _same_type(given, result))
        return self._start(library().aiacc_sendrecv, (given, result), arguments, _attr(None, timeout), wait)

    @staticmethod
    def _pair(send: Like, recv: Optional[Like], dtype: Optional[DType]) -> Tuple[Buffer, Buffer]:
        if recv is None:
            both = buffer(send, dtype, writable=True)
            return both, both
        return buffer(send, dtype), buffer(recv, dtype, writable=True)


WORLD = Group(1)
