"""Sets of ranks that run operations among themselves."""
from __future__ import annotations

import math
import threading
from typing import Any, Callable, Dict, List, Optional, Sequence, Union

from aiacc._arguments import refused, several
from aiacc._horovod.channel import Channel
from aiacc._horovod.named import Engines, NamedAllreduces
from aiacc._horovod.operations import Agreement
from aiacc._horovod.unnegotiated import Unnegotiated
from aiacc.groups import WORLD, Group
from aiacc.syncbn import SyncBN


class ProcessSet:
    """Some of the ranks. `process_set_id` is None until it is registered by init or add_process_set."""

    def __init__(self, ranks_or_comm: Optional[Sequence[int]]) -> None:
        self.process_set_id: Optional[int] = None
        self.mpi_comm = None
        self.ranks: Optional[List[int]] = None
        if ranks_or_comm is not None:
            if not isinstance(ranks_or_comm, (list, tuple, range, set)) or not all(isinstance(one, int) for one in ranks_or_comm):
                raise ValueError(f"a process set is given by a list of ranks, not by {ranks_or_comm!r}")
            self.ranks = sorted(ranks_or_comm)
        self._making = threading.RLock()  # of what follows, which threads make with their first operation
        self._channels: Dict[str, Any] = {}
        self._engines = Engines(self._channel)
        self._norms: Dict[str, SyncBN] = {}
        self._unnegotiated: Dict[str, Unnegotiated] = {}  # by framework's layer
        self._inner: Dict[Any, ProcessSet] = {}  # of some of its members, which no program knows (torch/gossip.py)
        self._optimizers: List[Any] = []  # what join takes part in, of each DistributedOptimizer
        self._begun_at_join = 0  # reductions on engines, when the ranks last joined
        self._own_rank = 0

    def _registered(self) -> List[int]:
        if self.process_set_id is None or self.ranks is None:
            raise ValueError(f"{self} is not registered: call init, or add_process_set")
        return self.ranks

    def size(self) -> int:
        return len(self._registered())

    def rank(self) -> int:
        """Of this process within the set."""
        if not self.included():
            raise ValueError(f"rank {self._own_rank} is no member of {self}")
        return self._registered().index(self._own_rank)

    def included(self) -> bool:
        return self._own_rank in self._registered()

    def _reduced_ranks(self) -> int:
        """Of how many ranks this one's gradients are combined: a rank that is no member keeps its own."""
        return self.size() if self.included() else 1

    def _register(self, number: int, own_rank: int) -> None:
        self.process_set_id, self._own_rank = number, own_rank

    def _unregister(self, reason: str) -> None:
        for channel in list(self._channels.values()):
            channel.close(reason)
        self._engines.close()
        inner, self._inner = self._inner, {}
        for one in inner.values():
            one._unregister(reason)
        optimizers, self._optimizers = self._optimizers, []
        for optimizer in optimizers:
            optimizer.close()  # one that is used after the next init stays in the list
        for norms in self._norms.values():
            try:
                norms.free()
            except RuntimeError:
                pass  # the world is over already
        for layer in self._unnegotiated.values():
            layer.close()
        self._channels, self._norms, self._unnegotiated = {}, {}, {}
        self._begun_at_join = 0
        self.process_set_id = None

    def _channel(self, purpose: str = "calls") -> Channel:
        """Each purpose has an order of its own. Made with its first operation, in the same order on all members."""
        with self._making:
            found = self._channels.get(purpose)
            if found is None:
                ranks = self._registered()
                if self._own_rank not in ranks:
                    raise ValueError(f"rank {self._own_rank} is no member of {self} and cannot call its operations")
                found = self._channels[purpose] = Channel(self._group(purpose), ranks, self._engines if purpose == "calls" else None)
            return found

    def _group(self, purpose: str) -> Group:
        """Sets of equal members are made by one thread each; purposes are told apart by the key."""
        key = int.from_bytes(purpose.encode()[:8], "little")
        return _parent.create(self._registered(), name=f"aiacc {purpose} of {self}", key=key)

    def _named(self, tensors: Any) -> NamedAllreduces:
        """Those of the framework whose module `tensors` is given."""
        with self._making:
            return self._engines.of(tensors)

    def _sync_batch_norm(self, name: str) -> SyncBN:
        """What serves the SyncBatchNorm layers whose calls are in one order on all ranks, on a group of its own."""
        with self._making:
            if name not in self._norms:
                self._norms[name] = SyncBN(self._channel().group, name)
            return self._norms[name]

    def _in_model_order(self, layer: str) -> Unnegotiated:
        """What the calls of a kind of layers are made on, which join knows: "SyncBatchNorm" or "ShardedSoftmax"."""
        with self._making:
            if layer not in self._unnegotiated:
                parent = self._channel().group  # which refuses those that are no members
                if layer == "SyncBatchNorm":
                    self._unnegotiated[layer] = Unnegotiated(lambda: SyncBN(parent, "aiacc.torch"), lambda norms: norms.join())
                else:
                    self._unnegotiated[layer] = Unnegotiated(lambda: self._group("sharded"), lambda group: group.barrier(name="join", timeout=math.inf))
            return self._unnegotiated[layer]

    def __deepcopy__(self, memo: Any) -> ProcessSet:
        return self  # what has it, as layers do, is copied with models

    def __reduce__(self) -> Any:
        return _of_ranks, (None if self is global_process_set else self.ranks,)

    def __repr__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, ProcessSet) and self.ranks == other.ranks and self.process_set_id == other.process_set_id)

    def __hash__(self) -> int:
        return id(self)


def checked_set(process_set: Any) -> ProcessSet:
    if not isinstance(process_set, ProcessSet):
        raise refused("process_set", process_set, "a ProcessSet, as add_process_set returns it for a list of ranks")
    return process_set


def _of_ranks(ranks: Optional[List[int]]) -> ProcessSet:
    """A registered one if there is one."""
    if ranks is None:
        return global_process_set
    return next((one for one in _registered if one.ranks == ranks), None) or ProcessSet(ranks)


global_process_set = ProcessSet(None)
_registered: List[ProcessSet] = []
_next_number = 1
_parent: Group = WORLD  # another one after each init, so that groups of one time and of the next are never the same


_LAYERS = ("SyncBatchNorm", "ShardedSoftmax")


def _joins_in_model_order() -> List[Any]:
    """What a rank does that has joined, for each set that it is in. The same on all members of a set, used before or not."""
    sets = [one for one in _registered if one.included() and one.size() > 1]
    return [one._in_model_order(layer).join for one in sets for layer in _LAYERS]


def _setup(parent: Group, process_sets: Any) -> None:
    global _next_number, _parent
    _parent = parent
    global_process_set.ranks = list(range(parent.size))
    global_process_set._register(0, parent.rank)
    _registered[:] = [global_process_set]
    _next_number = 1
    if isinstance(process_sets, str) and process_sets != "dynamic":
        raise ValueError(f"process_sets is {process_sets!r}: it is a list of process sets, or 'dynamic'")
    if process_sets is not None and not isinstance(process_sets, str):
        for one in several("process_sets", process_sets, "a list of process sets, or 'dynamic'"):
            add_process_set(one)


def _teardown(reason: str) -> None:
    for one in _registered:
        one._unregister(reason)
    _registered.clear()
    try:
        _parent.free()
    except RuntimeError:
        pass  # the world is over already


def _unless_over(call: Callable[..., Any], *arguments: Any) -> None:
    try:
        call(*arguments)
    except RuntimeError:
        pass  # it is over


def _inner_sets() -> List[ProcessSet]:
    return [inner for one in _registered for inner in one._inner.values()]


def _leave(reason: str) -> None:
    """As _abort, also of sets whose operations this rank has never called: members may wait for it there."""
    for one in _registered:
        if one.included() and one.size() > 1:
            purposes = ["calls", *filter(None, (getattr(joined, "purpose", None) for joined in one._optimizers))]
            for purpose in purposes:
                _unless_over(one._channel, purpose)
            for layer in _LAYERS:
                _unless_over(lambda of=one, kind=layer: of._in_model_order(kind).get())
    for one in _inner_sets():
        _unless_over(one._channel)
    _abort(reason)


def _abort(reason: str) -> None:
    """Members that wait in an operation of any set raise, also those of engines."""
    for one in [*_registered, *_inner_sets()]:
        for channel in list(one._channels.values()):
            _unless_over(channel.group.abort, reason)
        layers: List[Any] = [*one._unnegotiated.values(), *one._norms.values()]
        for calls in layers:
            _unless_over(calls.abort, reason)


def give_up_steps() -> None:
    """What optimizers have begun and not ended is not waited for: the model goes back to an earlier state."""
    for one in _registered:
        for optimizer in one._optimizers:
            getattr(optimizer, "give_up", lambda: None)()


def add_process_set(process_set: Union[ProcessSet, Sequence[int]]) -> ProcessSet:
    """Registers a set. Called by all ranks, in the same order. Works at any time: no dynamic mode is needed."""
    global _next_number
    made = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    size = global_process_set.size()
    if made.ranks is None or not made.ranks:
        raise ValueError("a process set has at least one rank")
    if made.ranks[0] < 0 or made.ranks[-1] >= size or len(set(made.ranks)) < len(made.ranks):
        raise ValueError(f"a process set of ranks {made.ranks}: they are different, and from 0 to {size - 1}")
    if any(one.ranks == made.ranks for one in _registered):
        raise ValueError(f"a process set of ranks {made.ranks} is registered already")
    global_process_set._channel().run(Agreement("add_process_set", made.ranks))
    made._register(_next_number, global_process_set._own_rank)
    _next_number += 1
    _registered.append(made)
    return made


def remove_process_set(process_set: ProcessSet) -> bool:
    """Called by all ranks, in the same order. False for the global set, and for one that is not registered."""
    if checked_set(process_set) is global_process_set or not any(one is process_set for one in _registered):
        return False
    global_process_set._channel().run(Agreement("remove_process_set", process_set.ranks))
    process_set._unregister(f"{process_set} was removed")
    _registered[:] = [one for one in _registered if one is not process_set]
    return True
