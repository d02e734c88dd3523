"""The KVStores `dist_sync_aiacc` and `dist_async_aiacc`, for Module, gluon.Trainer and programs of their own.

Values are on servers, which the ranks are too (aiacc/kvstore.py): each has some of them, and updates them once an optimizer is set.
Or some ranks only serve (_kv_servers.py).
Two operations take another path, an allreduce: pushpull of a sync store that has no optimizer, and all of a key that is no parameter.
Everything is an operation of MXNet's dependency engine. Those on one key run one after another, because each has the key's own
array, `order`, among those that it writes.
"""
from __future__ import annotations

import enum
import functools
import itertools
import pickle
import sys
import warnings
from typing import Any, Callable, Dict, List, Optional

import mxnet as mx
import numpy
from mxnet import autograd
from mxnet.kvstore import KVStore as _KVStoreOfMXNet
from mxnet.kvstore import KVStoreBase
from mxnet.ndarray import NDArray

from aiacc import kvstore
from aiacc._horovod import basics
from aiacc._horovod.operations import Max, Sum
from aiacc.kvstore import Mode
from aiacc.mxnet import _engine, _kv_servers, _kv_updater, mpi_ops, tensors
from aiacc.mxnet._kv_entry import LONGEST_ROW, Entry, Key, copy_to, is_sparse, listed
from aiacc.requests import wait_all

_MODES = {"sync": Mode.SYNC, "async": Mode.ASYNC}
_names = {f"dist{gap}{mode}{gap}{whose}": _MODES[mode] for mode in _MODES for whose in ("aiacc", "perseus") for gap in "_-"}
# MXNet's stores have names for summing on its GPUs first, in two orders; where a rank has one device they are the same.
_of_devices = {f"dist_{words}_{whose}": _MODES[mode] for mode in _MODES for words in (f"device_{mode}", f"{mode}_device")
               for whose in ("aiacc", "perseus")}
_numbers = itertools.count()


class PerseusOp(enum.IntEnum):
    """What a push does with the values of the ranks."""
    Sum = Sum
    Max = Max


class KVStore(_KVStoreOfMXNet):
    """Made by all ranks, and used by all with the same keys, in any order of keys; init, set_optimizer, set_gradient_compression,
    barrier and the two of states are called by all at the same point. Values are sums, not averages.

    With `servers` the last ranks only serve: they make the first store as the others do, and that call ends their program when that of
    rank 0 ends. With `replicas` of 2 the next server has each value too, and goes on with it if a server is lost. `process_set` has the
    ranks that work. None: what AIACC_KV_SERVERS and AIACC_KV_REPLICAS say."""

    def __init__(self, mode: Mode = Mode.SYNC, servers: Optional[int] = None, replicas: Optional[int] = None) -> None:
        basics.init()  # MXNet's has a handle of its C API, and no other state
        count = _kv_servers.checked(servers)
        copies = _kv_servers.number("AIACC_KV_REPLICAS", 1) if replicas is None else replicas
        if copies not in (1, 2):
            raise ValueError(f"replicas is {copies}: one or two servers have a value")
        if copies == 2 and (count or basics.size()) < 2:
            raise ValueError("replicas is 2, and one rank serves only: two need two (AIACC_KV_SERVERS)")
        roles = _kv_servers.roles(count)
        if roles.serves:
            roles.serve(_Served(roles))
        self._number = roles.next_store()
        roles.tell("create", self._number, int(mode), copies)
        self._make(mode, roles, copies)

    def _make(self, mode: Mode, roles: _kv_servers.Roles, replicas: int) -> None:
        self._roles = roles
        self._name = f"KVStore {next(_numbers)}"
        ranks: Dict[str, Any] = {"servers": roles.servers or roles.workers, "workers": roles.workers}
        self._store = kvstore.KVStore(mode, name=f"aiacc.mxnet {self._name}", replicas=replicas, **ranks)
        if roles.count and replicas > 1:
            roles.forgive_losses()
        self._sync = mode == Mode.SYNC
        self._keys: Dict[Key, Entry] = {}
        self._compressed = False
        self._optimizer: Optional[Any] = None
        self._on_server: Optional[_kv_updater.OptimizerOnServer] = None
        self._updates = False  # whether servers have an updater
        self._in_library = False  # and it is one of the store's own
        self._takes_rows = True  # and it leaves rows alone that nobody pushes
        self._watched: Any = None

    def __del__(self) -> None:
        pass  # aiacc.finalize frees the store: all ranks must, at the same time

    type = property(lambda self: self._store.type)
    rank = property(lambda self: basics.rank())
    num_workers = property(lambda self: len(self._roles.workers))
    process_set = property(lambda self: self._roles.process_set)
    local_rank = property(lambda self: basics.local_rank())
    local_size = property(lambda self: basics.local_size())
    _updater = property(lambda self: self)  # Trainer.load_states looks for its `optimizer`
    optimizer = property(lambda self: self._optimizer)

    @staticmethod
    def is_capable(capability: str) -> bool:
        if capability.lower() == KVStoreBase.OPTIMIZER:
            return True
        raise ValueError(f"capability {capability!r} is unknown: it is 'optimizer'")

    def _send_command_to_servers(self, head: int, body: str) -> None:
        raise ValueError(f"{self.type} has no servers of MXNet's to send commands to")

    # --- values

    def _each(self, function: Callable[..., None], key: Any, *values: Any, **keywords: Any) -> None:
        """For one key, or for a list of keys with a list of values of each."""
        with autograd.pause():  # a layer may pull its weight while it is recorded
            if not isinstance(key, (list, tuple)):
                function(key, *values, **keywords)
                return
            if any(one is not None and (not isinstance(one, (list, tuple)) or len(one) != len(key)) for one in values):
                raise ValueError(f"{len(key)} keys: give a list of as many values")
            for i, one in enumerate(key):
                function(one, *(value[i] if value is not None else None for value in values), **keywords)

    def init(self, key: Any, value: Any, param_only: Any = False) -> None:
        """Begins keys with the values of rank 0. Returns when all ranks have called it. `param_only` is Perseus's, of values that are no
        parameters: what is pushed to them is reduced over the ranks at once, and no optimizer changes them."""
        requests: List[Any] = []
        try:
            self._each(self._init, key, value, is_parameter=not param_only, requests=requests)
            wait_all(requests)
        finally:
            mpi_ops.barrier(self.process_set) if self._roles.count else self._store.barrier()

    def _init(self, key: Key, value: Any, is_parameter: bool, requests: List[Any]) -> None:
        if key in self._keys:
            raise ValueError(f"key {key!r} was initialised before")
        first = listed(value)[0]
        given = tensors.settle(tensors.check(first.tostype("default") if is_sparse(first) else first, f"the value of key {key!r}"))
        entry = Entry(given, is_parameter)
        if self._in_library and not entry.learns:
            raise ValueError(f"key {key!r} is {tensors.type_name(given)}: servers update that by an optimizer with multi_precision=True")
        self._keys[key] = entry
        if not is_parameter:  # servers know nothing of it
            entry.reduced = mpi_ops.broadcast(given, 0, process_set=self.process_set)
            return
        self._roles.tell("key", self._number, key, entry.shape, numpy.dtype(entry.dtype).str)
        requests.append(self._store.init(key, tensors.buffer_of(given), rows=entry.rows, wait=False))

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        self.init(key, value)
        self.pull(key, out, priority)

    def _entry(self, key: Key) -> Entry:
        if key not in self._keys:
            raise ValueError(f"key {key!r} has not been initialised: call init or broadcast first")
        return self._keys[key]

    def _start(self, what: str, key: Key, make: Callable[[], Any], reads: List[NDArray], writes: List[NDArray], priority: int) -> None:
        _engine.start_pending(lambda: _engine.OfStore(make()), reads, [*writes, self._keys[key].order], f"{what} {key}", priority)

    def push(self, key: Any, value: Any, priority: int = 0, op: Any = PerseusOp.Sum) -> None:
        """The value becomes the sum of what the ranks push, or is updated with it; `dist_async` updates it with each push by itself.
        Row-sparse arrays are read at the call; of the others some may be row-sparse and others dense."""
        self._each(self._push, key, value, priority=priority, op=op)

    def _push(self, key: Key, value: Any, priority: int, op: Any) -> None:
        entry = self._entry(key)
        if op != PerseusOp.Sum or not entry.is_parameter:
            given = self._whole(key, value)
            entry.reduced = mpi_ops.allreduce(given, name=f"{self._name}.{int(op)}.{key}", priority=priority, op=int(op),
                                              process_set=self.process_set)
            return
        self._before_push()
        entry.reduced = None
        arrays = listed(value)
        if all(is_sparse(one) for one in arrays) and self._takes_rows and entry.rows is not None:
            for one in arrays:
                entry.check_pushed(key, one)
            rows = numpy.concatenate([one.indices.asnumpy().astype(numpy.int64) for one in arrays])
            values = numpy.concatenate([one.data.asnumpy().reshape(-1) for one in arrays])
            self._start("push", key, lambda: self._store.row_sparse_push(key, rows, values, priority=priority, wait=False), [], [], priority)
            return
        given = self._whole(key, arrays)
        self._start("push", key, lambda: self._store.push(key, tensors.buffer_of(given), priority=priority, wait=False), [given], [], priority)

    def _whole(self, key: Key, value: Any) -> NDArray:
        """The sum of what this rank pushes."""
        given = [tensors.check(one.tostype("default") if is_sparse(one) else one, f"what is pushed to key {key!r}") for one in listed(value)]
        for one in given:
            self._entry(key).check_pushed(key, one)
        return given[0] if len(given) == 1 else mx.nd.add_n(*given)

    def pull(self, key: Any, out: Any = None, priority: int = 0, ignore_sparse: bool = True) -> None:
        """The value, into `out`. Row-sparse arrays are left out, or get all rows if `ignore_sparse` is False."""
        self._each(self._pull, key, out, priority=priority, ignore_sparse=ignore_sparse)

    def _pull(self, key: Key, out: Any, priority: int, ignore_sparse: bool = True) -> None:
        entry = self._entry(key)
        outs = [one for one in listed(out) if not is_sparse(one)]
        for one in outs:
            entry.check_out(key, one)
        if entry.reduced is not None:
            copy_to(entry.reduced, outs)
        elif outs:
            target = self._target(entry, outs)
            self._start("pull", key, lambda: self._store.pull(key, tensors.buffer_of(target), priority=priority, wait=False), [], [target], priority)
            copy_to(target, outs)
        sparse = [one for one in listed(out) if is_sparse(one)]
        if sparse and not ignore_sparse:
            self._row_sparse_pull(key, sparse, mx.nd.arange(entry.shape[0], dtype="int64"), priority)

    @staticmethod
    def _target(entry: Entry, outs: List[NDArray]) -> NDArray:
        """The first of `outs`, if it has the value's type."""
        return tensors.check(outs[0], "out") if outs[0].dtype == entry.dtype else mx.nd.empty(entry.shape, dtype=entry.dtype)

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """Without `out` the result replaces `value`. In a sync store without an optimizer it is the sum, and is kept nowhere else."""
        self._each(self._pushpull, key, value, out, priority=priority)

    def _pushpull(self, key: Key, value: Any, out: Any, priority: int) -> None:
        entry = self._entry(key)
        outs = listed(value if out is None else out)
        for one in (*listed(value), *outs):
            entry.check_out(key, tensors.check(one, f"what pushpull takes for key {key!r}"))
        given = self._whole(key, value)
        if not entry.is_parameter or (self._sync and not self._updates and not self._compressed):
            self._allreduce(key, given, outs, priority)
            return
        self._before_push()
        entry.reduced = None
        target = self._target(entry, outs)
        reads = [] if given is target else [given]

        def make() -> Any:
            return self._store.pushpull(key, tensors.buffer_of(given), tensors.buffer_of(target), priority=priority, wait=False)
        self._start("pushpull", key, make, reads, [target], priority)
        copy_to(target, outs)

    def _allreduce(self, key: Key, given: NDArray, outs: List[NDArray], priority: int) -> None:
        how = {"name": f"{self._name}.{int(Sum)}.{key}", "priority": priority, "op": Sum, "process_set": self.process_set}
        if len(outs) == 1 and outs[0] is given:
            mpi_ops.allreduce_(given, **how)
        else:
            copy_to(mpi_ops.allreduce(given, **how), outs)

    def row_sparse_pull(self, key: Any, out: Any = None, priority: int = 0, row_ids: Any = None) -> None:
        """Some rows of the value, into row-sparse arrays; one array of `row_ids` for each, or one for all. Returns when they are there."""
        if row_ids is None:
            raise ValueError("row_sparse_pull needs row_ids, an array of the rows' numbers")
        self._each(self._row_sparse_pull, key, out, row_ids, priority=priority)

    def _row_sparse_pull(self, key: Key, out: Any, row_ids: Any, priority: int) -> None:
        entry, outs, ids = self._entry(key), listed(out), listed(row_ids)
        if len(ids) not in (1, len(outs)):
            raise ValueError(f"key {key!r}: {len(outs)} arrays take rows, and there are {len(ids)} of row_ids: give one, or as many")
        if entry.rows is None:
            raise ValueError(f"key {key!r} has a value {entry.shape}: rows are of two or more dimensions, and of at most {LONGEST_ROW} bytes")
        for one in outs:
            if not is_sparse(one):
                raise ValueError(f"out of row_sparse_pull is {getattr(one, 'stype', type(one).__name__)}: it is row_sparse; pull takes others")
            entry.check_out(key, one)
        for one, of_one in zip(outs, ids * len(outs) if len(ids) == 1 else ids):
            rows = numpy.unique(of_one.asnumpy().astype(numpy.int64).reshape(-1))
            values = mx.nd.empty((len(rows), *entry.shape[1:]), dtype=entry.dtype)
            self._start("row_sparse_pull", key, functools.partial(self._pull_rows, key, values, rows, priority), [], [values], priority)
            mx.nd.sparse.row_sparse_array((values, rows), shape=entry.shape, dtype=one.dtype).copyto(one)

    def _pull_rows(self, key: Key, values: NDArray, rows: numpy.ndarray, priority: int) -> Any:
        return self._store.row_sparse_pull(key, tensors.buffer_of(values), rows, priority=priority, wait=False)

    # --- what servers do with what is pushed

    def set_optimizer(self, optimizer: Any) -> None:
        """Servers update the values from now on. SGD and Adam with one learning rate and one weight decay run in the library; another
        optimizer, or another updater, in Python on each server, in MXNet's engine there."""
        if not isinstance(optimizer, mx.optimizer.Optimizer):
            raise ValueError(f"optimizer is of {type(optimizer).__name__}: it is an mx.optimizer.Optimizer, as mx.optimizer.create makes")
        self._finish()
        settings = _kv_updater.settings_of(optimizer) if all(entry.learns for entry in self._keys.values()) else None
        self._takes_rows = settings is not None and _kv_updater.updates_pushed_rows_only(optimizer)
        if settings is not None:
            self._roles.tell("optimizer", self._number, settings)
            self._store.set_optimizer(**settings)
            self._on_server = None
        else:
            self._tell_updater("python optimizer", optimizer, _kv_updater.multipliers(optimizer))
            made = _kv_updater.OptimizerOnServer(optimizer, self._on_server)
            self._set_function(made.update)
            self._on_server = made
        self._optimizer, self._watched, self._updates, self._in_library = optimizer, _kv_updater.watched(optimizer), True, settings is not None

    def _tell_updater(self, what: str, *details: Any) -> None:
        try:
            self._roles.tell(what, self._number, *details)
        except (AttributeError, TypeError, pickle.PicklingError) as error:
            raise ValueError(f"ranks that only serve get an updater by pickle, which cannot send this one: {error}") from error

    def _set_function(self, update: Callable[[Key, int, NDArray, NDArray], None]) -> None:
        _engine.begin_in_own_thread()
        self._store.set_updater(_kv_updater.ServerUpdater(update, self._keys))

    def set_updater(self, updater: Callable[[Key, NDArray, NDArray], None]) -> None:
        """updater(key, gradient, value) changes `value` in place, on each server. A value of more than 512 KiB comes in parts."""
        self._finish()
        self._tell_updater("updater", updater)
        self._set_function(lambda key, first, gradient, value: updater(key, gradient, value))
        self._optimizer = self._on_server = None
        self._takes_rows, self._updates, self._in_library = False, True, False

    _set_updater = set_updater

    def _before_push(self) -> None:
        """Servers have a copy of the optimizer, of which Trainer.set_learning_rate knows nothing."""
        self._roles.keep_awake()
        if not self._updates and not self._sync:
            raise ValueError(f"{self.type} updates values with each push: call set_optimizer first")
        if self._optimizer is None or _kv_updater.watched(self._optimizer) == self._watched:
            return
        if self._sync:  # all ranks are at this point
            self.set_optimizer(self._optimizer)
            return
        warnings.warn("the optimizer's learning rate, weight decay or rescale_grad has changed, and the servers of a dist_async store do not "
                      "know: call set_optimizer on all ranks", stacklevel=5)
        self._watched = _kv_updater.watched(self._optimizer)

    def set_gradient_compression(self, compression_params: Dict[str, Any]) -> None:
        """{"type": "2bit", "threshold": 0.5} as MXNet's, "fp16", "bf16" or "none": of dense float32 gradients on their way to servers."""
        self._finish()
        self._store.set_gradient_compression(compression_params)
        self._compressed = compression_params["type"] != "none"

    def save_optimizer_states(self, fname: str, dump_optimizer: bool = False) -> None:
        """Each server writes its values and states to `fname`, a dot, and its rank; with an optimizer in Python also a file ".updater"."""
        self._finish()
        self._need_optimizer()
        self._roles.tell("save", self._number, fname)
        self._store.save_optimizer_states(fname)
        if self._on_server is not None and not self._roles.count:
            self._on_server.save(f"{fname}.{self.rank}.updater")

    def load_optimizer_states(self, fname: str) -> None:
        """What save_optimizer_states has written with as many ranks, after the same keys and the optimizer were set."""
        self._finish()
        self._need_optimizer()
        self._roles.tell("load", self._number, fname)
        self._store.load_optimizer_states(fname)
        if self._on_server is not None and not self._roles.count:
            self._on_server.load(f"{fname}.{self.rank}.updater")

    def _need_optimizer(self) -> None:
        if self._optimizer is None:
            raise ValueError("there is no optimizer: call set_optimizer first")

    def _finish(self) -> None:
        """All that this rank has called is done."""
        for entry in self._keys.values():
            entry.order.wait_to_read()

    def barrier(self) -> None:
        """Of all ranks that work. What each has called before is done."""
        self._finish()
        mpi_ops.barrier(self.process_set)

    _barrier = barrier


class _Served:
    """The stores of a rank that only serves, and what it does in them when rank 0 does so."""

    def __init__(self, roles: _kv_servers.Roles) -> None:
        self._roles = roles
        self._stores: Dict[int, KVStore] = {}

    def __call__(self, what: str, number: int, details: Any) -> None:
        try:
            self._do(what, number, *details)
        except RuntimeError as error:  # the ranks that work hear of their own part of it
            print(f"aiacc: rank {basics.rank()}, a server of {what!r} of a KVStore: {error}", file=sys.stderr, flush=True)

    def _do(self, what: str, number: int, *details: Any) -> None:
        if what == "create":
            mode, replicas = details
            made = self._stores[number] = KVStore.__new__(KVStore)
            made._make(Mode(mode), self._roles, replicas)
            return
        store = self._stores[number]
        if what == "key":
            key, shape, dtype = details
            store._keys[key] = Entry(numpy.empty(shape, dtype=dtype), True)
        elif what == "optimizer":
            store._store.set_optimizer(**details[0])
        elif what == "python optimizer":
            store._on_server = _kv_updater.OptimizerOnServer(details[0], store._on_server, details[1])
            store._set_function(store._on_server.update)
        elif what == "updater":
            store._set_function(lambda key, first, gradient, value: details[0](key, gradient, value))
        elif what == "save":
            store._store.save_optimizer_states(details[0])
            if store._on_server is not None:
                store._on_server.save(f"{details[0]}.{basics.rank()}.updater")
        elif what == "load":
            store._store.load_optimizer_states(details[0])
            if store._on_server is not None:
                store._on_server.load(f"{details[0]}.{basics.rank()}.updater")


for _name, _mode in {**_names, **_of_devices}.items():
    KVStoreBase.kv_registry[_name] = functools.partial(KVStore, _mode)


def create(name: str = "dist_sync_aiacc", servers: Optional[int] = None, replicas: Optional[int] = None) -> KVStore:
    """A store by its name, as mx.kv.create makes it. `servers` and `replicas` as in KVStore; mx.kv.create takes what the environment
    says (AIACC_KV_SERVERS, AIACC_KV_REPLICAS)."""
    mode = {**_names, **_of_devices}.get(name.lower())
    if mode is None:
        raise ValueError(f"KVStore {name!r}: aiacc.mxnet has {', '.join(_names)}; another kind is MXNet's own, by mx.kv.create")
    return KVStore(mode, servers, replicas)
