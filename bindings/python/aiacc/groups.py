"""Groups of ranks and the collectives on them."""
from __future__ import annotations

import ctypes as c
import enum
from typing import Any, List, Literal, Optional, Sequence, Tuple, Union, overload

from aiacc import _abi
from aiacc._arguments import member, milliseconds, number, refused, several, text, whole
from aiacc._library import library
from aiacc.buffers import Buffer, DType, Like, Op, buffer
from aiacc.requests import AnySourceRequest, Request
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
    made = _abi.Attr(size=c.sizeof(_abi.Attr), name=_encoded(name), prescale=number("prescale", prescale), postscale=number("postscale", postscale))
    if timeout is not None:
        made.timeout_ms = milliseconds(timeout)
    return made


def _encoded(name: Optional[str]) -> Optional[bytes]:
    checked = text("name", name)
    return checked.encode() if checked else None


def handle_of(name: str, group: Any) -> int:
    if not isinstance(group, Group):
        raise refused(name, group, "a Group")
    return group.handle


def _same_type(send: Buffer, recv: Buffer) -> DType:
    if send.dtype != recv.dtype:
        raise TypeError(f"send has elements of {DType(send.dtype).name} and recv of {DType(recv.dtype).name}: they are of one type")
    return send.dtype


def _room(what: str, have: Buffer, need: int) -> None:
    if have.count < need:
        raise ValueError(f"{what} has room for {have.count} elements, and the call needs {need}")


def _total(name: str, counts: Sequence[int]) -> int:
    try:
        return sum(counts)
    except TypeError:
        raise refused(name, counts, "a list of a whole number for each rank") from None


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
        ranks = several("ranks", ranks, "a list of ranks")
        library().aiacc_group_create(self.handle, len(ranks), int_array(ranks), self._group_attr(name, key, timeout, traffic_class), c.byref(made))
        return Group(made.value)

    def split(self, color: Optional[int], key: int = 0, *, name: Optional[str] = None, timeout: Seconds = None,
              traffic_class: TrafficClass = TrafficClass.DEFAULT) -> Optional[Group]:
        """Ranks of one color are a group, ordered by key, then by rank. None with color None. Collective."""
        made = _abi.Handle()
        color, key = -1 if color is None else whole("color", color), whole("key", key)
        library().aiacc_group_split(self.handle, color, key, self._group_attr(name, 0, timeout, traffic_class), c.byref(made))
        return Group(made.value) if made.value else None

    @staticmethod
    def _group_attr(name: Optional[str], key: int, timeout: Seconds, traffic_class: TrafficClass) -> Any:
        attr = _abi.GroupAttr(size=c.sizeof(_abi.GroupAttr), name=_encoded(name), key=whole("key", key),
                              traffic_class=member("traffic_class", traffic_class, TrafficClass))
        if timeout is not None:
            attr.timeout_ms = milliseconds(timeout)
        return attr

    def translate(self, ranks: Sequence[int], to: Group) -> List[int]:
        """These ranks of this group as ranks of `to`; -1 for no member."""
        ranks = several("ranks", ranks, "a list of ranks")
        found = (c.c_int * len(ranks))()
        library().aiacc_group_translate(self.handle, len(ranks), int_array(ranks), handle_of("to", to), found)
        return list(found)

    def free(self) -> None:
        """The handle is gone; what runs goes on to its end. Local."""
        library().aiacc_group_free(self.handle)

    def abort(self, reason: str = "") -> None:
        """Ends the group on all its members. Local."""
        library().aiacc_group_abort(self.handle, (text("reason", reason) or "").encode())

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
        arguments = (given.address, result.address, given.count, _same_type(given, result), member("op", op, Op))
        return self._start(library().aiacc_allreduce, (given, result), arguments, _attr(name, timeout, prescale, postscale), wait)

    def allreduce_grouped(self, sends: Sequence[Like], recvs: Optional[Sequence[Like]] = None, op: Union[Op, int] = Op.SUM, *,
                          prescale: float = 1.0, postscale: float = 1.0, dtype: Optional[DType] = None, name: Optional[str] = None,
                          timeout: Seconds = None, wait: bool = True) -> Started:
        """Allreduce of several buffers of one type as one operation."""
        sends = several("sends", sends, "a list of buffers")
        recvs = None if recvs is None else several("recvs", recvs, "a list of buffers")
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
                     size_array([pair[0].count for pair in pairs]), types.pop() if types else DType.FLOAT32, member("op", op, Op))
        return self._start(library().aiacc_allreduce_grouped, pairs, arguments, _attr(name, timeout, prescale, postscale), wait)

    def reduce(self, send: Like, recv: Optional[Like] = None, op: Union[Op, int] = Op.SUM, root: int = 0, *, prescale: float = 1.0,
               postscale: float = 1.0, dtype: Optional[DType] = None, name: Optional[str] = None, timeout: Seconds = None, wait: bool = True) -> Started:
        """As allreduce, at `root` only; elsewhere `recv` is not looked at."""
        root = whole("root", root)
        given, result = self._pair(send, recv if self.rank == root else None, dtype)
        _room("recv", result, given.count)
        at_root = result.address if self.rank == root else None
        arguments = (given.address, at_root, given.count, _same_type(given, result), member("op", op, Op), root)
        return self._start(library().aiacc_reduce, (given, result), arguments, _attr(name, timeout, prescale, postscale), wait)

    def broadcast(self, data: Like, root: int = 0, *, dtype: Optional[DType] = None, name: Optional[str] = None, timeout: Seconds = None,
                  wait: bool = True) -> Started:
        """The buffer of `root` to all."""
        all_of = buffer(data, dtype, writable=True, name="data")
        arguments = (all_of.address, all_of.count, all_of.dtype, whole("root", root))
        return self._start(library().aiacc_broadcast, all_of, arguments, _attr(name, timeout), wait)

    def allgather(self, send: Like, recv: Like, *, counts: Optional[Sequence[int]] = None, dtype: Optional[DType] = None, name: Optional[str] = None,
                  timeout: Seconds = None, wait: bool = True) -> Started:
        """The blocks of all ranks one after another, on all ranks; with `counts` rank r's block has counts[r] elements."""
        given, result = self._pair(send, recv, dtype)
        kind = _same_type(given, result)
        if counts is None:
            _room("recv", result, given.count * self.size)
            return self._start(library().aiacc_allgather, (given, result), (given.address, result.address, given.count, kind), _attr(name, timeout), wait)
        _room("recv", result, _total("counts", counts))
        return self._start(library().aiacc_allgatherv, (given, result), (given.address, given.count, result.address, size_array(counts), None, kind),
                           _attr(name, timeout), wait)

    def reduce_scatter(self, send: Like, recv: Like, op: Union[Op, int] = Op.SUM, *, counts: Optional[Sequence[int]] = None, prescale: float = 1.0,
                       postscale: float = 1.0, dtype: Optional[DType] = None, name: Optional[str] = None, timeout: Seconds = None,
                       wait: bool = True) -> Started:
        """This rank's block of the reduction of `send`, which holds the blocks of all ranks; with `counts` of counts[r] elements."""
        given, result = self._pair(send, recv, dtype)
        kind, attr, op = _same_type(given, result), _attr(name, timeout, prescale, postscale), member("op", op, Op)
        if counts is None:
            _room("send", given, result.count * self.size)
            return self._start(library().aiacc_reduce_scatter, (given, result), (given.address, result.address, result.count, kind, op), attr, wait)
        _room("send", given, _total("counts", counts))
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
        _room("send", given, _total("send_counts", send_counts))
        _room("recv", result, _total("recv_counts", recv_counts))
        arguments = (given.address, size_array(send_counts, "send_counts"), None, result.address, size_array(recv_counts, "recv_counts"), None, kind)
        return self._start(library().aiacc_alltoallv, (given, result), arguments, attr, wait)

    def gather(self, send: Like, recv: Optional[Like] = None, root: int = 0, *, counts: Optional[Sequence[int]] = None, dtype: Optional[DType] = None,
               name: Optional[str] = None, timeout: Seconds = None, wait: bool = True) -> Started:
        """As allgather, at `root` only; elsewhere `recv` and `counts` are not looked at, but `counts` is given or not as there."""
        root = whole("root", root)
        given = buffer(send, dtype, name="send")
        result = buffer(recv, dtype, writable=True, name="recv") if self.rank == root and recv is not None else Buffer(0, 0, given.dtype)
        kind, attr = _same_type(given, result), _attr(name, timeout)
        if self.rank == root:
            _room("recv", result, given.count * self.size if counts is None else _total("counts", counts))
        if counts is None:
            return self._start(library().aiacc_gather, (given, result), (given.address, result.address, given.count, kind, root), attr, wait)
        arguments = (given.address, given.count, result.address, size_array(counts), None, kind, root)
        return self._start(library().aiacc_gatherv, (given, result), arguments, attr, wait)

    def scatter(self, send: Optional[Like], recv: Like, root: int = 0, *, counts: Optional[Sequence[int]] = None, dtype: Optional[DType] = None,
                name: Optional[str] = None, timeout: Seconds = None, wait: bool = True) -> Started:
        """Block r of the root's `send` to rank r; elsewhere `send` and `counts` are not looked at, but `counts` is given or not as there."""
        root = whole("root", root)
        result = buffer(recv, dtype, writable=True, name="recv")
        given = buffer(send, dtype, name="send") if self.rank == root and send is not None else Buffer(0, 0, result.dtype)
        kind, attr = _same_type(given, result), _attr(name, timeout)
        if self.rank == root:
            _room("send", given, result.count * self.size if counts is None else _total("counts", counts))
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
        given = buffer(data, dtype, name="data")
        arguments = (given.address, given.count, given.dtype, whole("to", to), whole("tag", tag))
        return self._start(library().aiacc_send, given, arguments, _attr(None, timeout), wait)

    def recv(self, data: Like, source: int, tag: int = 0, *, dtype: Optional[DType] = None, timeout: Seconds = None, wait: bool = True) -> Started:
        result = buffer(data, dtype, writable=True, name="data")
        arguments = (result.address, result.count, result.dtype, whole("source", source), whole("tag", tag))
        return self._start(library().aiacc_recv, result, arguments, _attr(None, timeout), wait)

    @overload
    def recv_any(self, data: Like, tag: int = 0, *, dtype: Optional[DType] = None, timeout: Seconds = None, wait: Literal[True] = True) -> int: ...

    @overload
    def recv_any(self, data: Like, tag: int = 0, *, dtype: Optional[DType] = None, timeout: Seconds = None,
                 wait: Literal[False]) -> AnySourceRequest: ...

    @overload
    def recv_any(self, data: Like, tag: int = 0, *, dtype: Optional[DType] = None, timeout: Seconds = None,
                 wait: bool) -> Union[int, AnySourceRequest]: ...

    def recv_any(self, data: Like, tag: int = 0, *, dtype: Optional[DType] = None, timeout: Seconds = None,
                 wait: bool = True) -> Union[int, AnySourceRequest]:
        """The next message with `tag` of whichever rank, this one included: returns that rank, and with wait=False a request that has it
        as `source`. A recv from the sender's rank takes precedence."""
        result, sender, request = buffer(data, dtype, writable=True, name="data"), c.c_int(-1), _abi.Handle()
        library().aiacc_recv_any(result.address, result.count, result.dtype, c.byref(sender), whole("tag", tag), self.handle, _attr(None, timeout),
                                 c.byref(request))
        made = AnySourceRequest(request.value, result, sender)
        if not wait:
            return made
        made.wait()
        return sender.value

    def sendrecv(self, send: Like, to: int, recv: Like, source: int, tag: int = 0, *, dtype: Optional[DType] = None, timeout: Seconds = None,
                 wait: bool = True) -> Started:
        """A send and a recv side by side: neither waits for the other."""
        given, result = buffer(send, dtype, name="send"), buffer(recv, dtype, writable=True, name="recv")
        to, source, tag = whole("to", to), whole("source", source), whole("tag", tag)
        arguments = (given.address, given.count, to, tag, result.address, result.count, source, tag, _same_type(given, result))
        return self._start(library().aiacc_sendrecv, (given, result), arguments, _attr(None, timeout), wait)

    @staticmethod
    def _pair(send: Like, recv: Optional[Like], dtype: Optional[DType]) -> Tuple[Buffer, Buffer]:
        if recv is None:
            both = buffer(send, dtype, writable=True, name="send")
            return both, both
        return buffer(send, dtype, name="send"), buffer(recv, dtype, writable=True, name="recv")


WORLD = Group(1)
