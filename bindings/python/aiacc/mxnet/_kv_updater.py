"""What the servers of a KVStore do with gradients: an optimizer of MXNet by the store's own updaters, or by Python on each server."""
from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any, Callable, Dict, Optional, Tuple

import mxnet as mx
import numpy
from mxnet import autograd
from mxnet.ndarray import NDArray

from aiacc.kvstore import Update
from aiacc.mxnet import tensors
from aiacc.mxnet._kv_entry import Entry, Key


def settings_of(optimizer: Any) -> Optional[Dict[str, Any]]:
    """The arguments of aiacc.kvstore.KVStore.set_optimizer that do the same with values of float32 and float64; None: there are none,
    because the optimizer is another one, or its learning rate or weight decay depends on time or on the key."""
    # 0 has another meaning in some of the store's settings.
    if optimizer.lr_scheduler is not None or optimizer.multi_precision or not optimizer.lr or not optimizer.rescale_grad:
        return None
    of_parameters = list(optimizer.param_dict.values())
    if any(one != 1 for one in (*optimizer.lr_mult.values(), *(parameter.lr_mult for parameter in of_parameters))):
        return None
    if optimizer.wd and any(one != 1 for one in (*optimizer.wd_mult.values(), *(parameter.wd_mult for parameter in of_parameters))):
        return None
    common = {"rate": optimizer.lr, "weight_decay": optimizer.wd, "rescale": optimizer.rescale_grad, "clip": optimizer.clip_gradient or 0.0}
    if type(optimizer) is mx.optimizer.SGD:
        return {"kind": Update.SGD, "momentum": optimizer.momentum, **common}
    if type(optimizer) is mx.optimizer.Adam and optimizer.beta1 and optimizer.beta2 and optimizer.epsilon:
        return {"kind": Update.ADAM, "beta1": optimizer.beta1, "beta2": optimizer.beta2, "epsilon": optimizer.epsilon, **common}
    return None


def multipliers(optimizer: Any) -> Dict[Key, Tuple[float, float]]:
    """Of the learning rate and the weight decay of each key that is a parameter: pickle leaves them behind."""
    return {key: (parameter.lr_mult, parameter.wd_mult) for key, parameter in optimizer.param_dict.items()}


def updates_pushed_rows_only(optimizer: Any) -> bool:
    """Whether rows without a gradient may stay as they are."""
    return getattr(optimizer, "lazy_update", False) or (type(optimizer) is mx.optimizer.SGD and not optimizer.momentum and not optimizer.wd)


def watched(optimizer: Any) -> Tuple[float, ...]:
    """What programs change while they train."""
    return (optimizer.lr, optimizer.wd, optimizer.rescale_grad)


def _over(view: memoryview, entry: Entry) -> NDArray:
    """An array over a server's memory: of the whole value, or of a part of it."""
    elements = numpy.frombuffer(view, dtype=entry.dtype)
    whole = elements.size == numpy.prod(entry.shape, dtype=numpy.int64)
    return mx.nd.from_numpy(elements.reshape(entry.shape) if whole else elements, zero_copy=True)


class ServerUpdater:
    """Called by the thread that serves, with a part of a value. `keys` are those that this rank has initialised."""

    def __init__(self, update: Callable[[Key, int, NDArray, NDArray], None], keys: Dict[Key, Entry]) -> None:
        self._update, self._keys = update, keys

    def __call__(self, key: Key, first: int, gradient: memoryview, value: memoryview) -> None:
        entry = self._keys[key]
        arrays = [_over(view, entry) for view in (gradient, value)]
        with autograd.pause():  # the thread may be one that records
            self._update(key, first, *arrays)
        for one in arrays:
            tensors.settle(one)  # the memory is the store's again


class OptimizerOnServer:
    """A copy of an optimizer, with the states of the parts that this server has."""

    def __init__(self, optimizer: Any, before: Optional[OptimizerOnServer] = None, of_keys: Optional[Dict[Key, Tuple[float, float]]] = None) -> None:
        """`before`: the one whose training goes on. `of_keys`: multipliers() of the optimizer that was sent from another rank."""
        self.optimizer = pickle.loads(pickle.dumps(optimizer))
        if of_keys is None:
            self.optimizer.param_dict = dict(optimizer.param_dict)  # for their lr_mult and wd_mult
        else:
            self.optimizer.param_dict = {key: SimpleNamespace(lr_mult=lr, wd_mult=wd) for key, (lr, wd) in of_keys.items()}
        self.states: Dict[str, Any] = {}
        if before is not None and type(before.optimizer) is type(optimizer):
            self._take(before.states, before._counts())

    def update(self, key: Key, first: int, gradient: NDArray, value: NDArray) -> None:
        part = f"{key} from {first}"
        if part not in self.states:
            self.states[part] = self.optimizer.create_state_multi_precision(part, value)
        # Each part counts its updates; the learning rate and the weight decay are the key's.
        if key in self.optimizer.param_dict:
            self.optimizer.param_dict[part] = self.optimizer.param_dict[key]
        else:
            self.optimizer.idx2name[part] = self.optimizer.idx2name.get(key, key)
        self.optimizer.update_multi_precision(part, value, gradient, self.states[part])

    def _counts(self) -> Any:
        return self.optimizer._all_index_update_counts, self.optimizer.num_update

    def _take(self, states: Dict[str, Any], counts: Any) -> None:
        self.states = states
        self.optimizer._all_index_update_counts, self.optimizer.num_update = counts
        self.optimizer._set_current_context(0)

    def save(self, path: str) -> None:
        with open(path, "wb") as file:
            pickle.dump((type(self.optimizer).__name__, self.states, self._counts()), file)

    def load(self, path: str) -> None:
        with open(path, "rb") as file:
            kind, states, counts = pickle.load(file)
        if kind != type(self.optimizer).__name__:
            raise ValueError(f"{path} has the states of {kind}, and the optimizer is {type(self.optimizer).__name__}")
        self._take(states, counts)
