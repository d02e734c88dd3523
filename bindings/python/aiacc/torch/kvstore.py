"""A key-value store of tensors: values that ranks push gradients to and pull, updated by the ranks that serve."""
from __future__ import annotations

import itertools
import weakref
from typing import Any, Dict, Iterable, NamedTuple, Optional, Sequence, Tuple

import torch
from torch.autograd.function import once_differentiable

from aiacc import kvstore
from aiacc._arguments import several, text
from aiacc._horovod.process_sets import ProcessSet, checked_set, global_process_set
from aiacc.groups import TrafficClass
from aiacc.kvstore import Key, Mode, Update, Wire
from aiacc.requests import Request
from aiacc.torch import tensors

_numbers: Any = weakref.WeakKeyDictionary()  # by channel: stores of a process set have numbers of their own, as only its members make them


class _Kept(NamedTuple):
    """What is known of a key's value."""
    shape: Tuple[int, ...]
    dtype: torch.dtype

    def describe(self) -> str:
        return f"{str(self.dtype)[6:]} {self.shape}"


class KVStore(kvstore.KVStore):
    """aiacc.KVStore with tensors of the CPU. All ranks of the process set make it, with equal arguments; hvd.init comes before. Modes,
    servers, workers, replicas and optimizers are those of aiacc.KVStore; ranks are those within the process set.

    A pushed tensor is dense, or sparse_coo with whole rows. It is read until the call has ended, and so is `out`, which is contiguous.
    A pull without `out` waits, and returns a new tensor. lookup() is differentiable."""

    def __init__(self, mode: Mode = Mode.SYNC, name: str = "", staleness: int = 0, split_elements: int = 0, servers: Sequence[int] = (),
                 workers: Sequence[int] = (), wire: Wire = Wire.PLAIN, threshold: float = 0.5, timeout: Optional[float] = None, replicas: int = 1,
                 traffic_class: TrafficClass = TrafficClass.DEFAULT, process_set: ProcessSet = global_process_set) -> None:
        self._kept: Dict[Key, _Kept] = {}
        channel = checked_set(process_set)._channel("kvstore")
        number = next(_numbers.setdefault(channel, itertools.count()))
        super().__init__(mode, channel.group, text("name", name) or f"aiacc.torch {number}", staleness, split_elements, servers, workers, wire,
                         threshold, timeout, replicas, traffic_class)

    def _known(self, key: Key) -> _Kept:
        if key not in self._kept:
            raise ValueError(f"key {key!r} has not been initialised: call init or broadcast first")
        return self._kept[key]

    def _given(self, key: Key, tensor: Any, what: str) -> torch.Tensor:
        kept, given = self._known(key), tensors.check_on_host(tensor, f"{what} of key {key!r}")
        if tuple(given.shape) != kept.shape or given.dtype != kept.dtype:
            raise ValueError(f"key {key!r} has a value of {kept.describe()}, and {what} is {_Kept(tuple(given.shape), given.dtype).describe()}")
        return given

    def _out(self, key: Key, out: Optional[torch.Tensor], wait: bool) -> torch.Tensor:
        if out is None:
            if not wait:
                raise ValueError("a pull that does not wait needs `out`, where the value goes")
            return torch.empty(self._known(key).shape, dtype=self._known(key).dtype, device="cpu")
        if not tensors.is_packed(self._given(key, out, "out")):
            raise ValueError(f"out of key {key!r} is not contiguous")
        return out

    def init(self, key: Key, value: torch.Tensor, rows: Optional[int] = None, priority: int = 0, timeout: Optional[float] = None,
             wait: bool = True) -> Optional[Request]:
        """Begins a key with the first worker's value. Rows of it, which are those of its first dimension, can be pushed and pulled."""
        given = tensors.packed(tensors.check_on_host(value, f"the value of key {key!r}"))
        by_row = (given.shape[0] if given.dim() > 1 else None) if rows is None else rows
        made = super().init(key, tensors.buffer_of(given), by_row if given.numel() else None, priority, timeout, wait)
        self._kept[key] = _Kept(tuple(given.shape), given.dtype)
        return made

    def push(self, key: Key, value: torch.Tensor, priority: int = 0, timeout: Optional[float] = None, wait: bool = True) -> Optional[Request]:
        """A gradient for the whole value, or, if it is sparse, for the rows that it has."""
        if isinstance(value, torch.Tensor) and value.layout == torch.sparse_coo:
            kept, whole = self._known(key), value.detach().coalesce()
            if tuple(whole.shape) != kept.shape or whole.sparse_dim() != 1:
                raise ValueError(f"key {key!r} has a value of {kept.describe()}, and a gradient with rows of it is pushed as a sparse tensor of that "
                                 f"shape with one sparse dimension, not {tuple(whole.shape)} with {whole.sparse_dim()}")
            return self.row_sparse_push(key, whole.indices()[0], whole.values(), priority, timeout, wait)
        given = tensors.packed(self._given(key, value, "the gradient"))
        return super().push(key, tensors.buffer_of(given), priority, timeout, wait)

    def pull(self, key: Key, out: Optional[torch.Tensor] = None, priority: int = 0, timeout: Optional[float] = None, wait: bool = True) -> Any:
        """The value: a new tensor, or into `out`, and then a request if it does not wait."""
        taken = self._out(key, out, wait)
        made = super().pull(key, tensors.buffer_of(taken), priority, timeout, wait)
        return taken if wait else made

    def pushpull(self, key: Key, value: torch.Tensor, out: Optional[torch.Tensor] = None, priority: int = 0, timeout: Optional[float] = None,
                 wait: bool = True) -> Any:
        """Both with one message each way. The value: a new tensor, or into `out`, which may be the gradient."""
        given, taken = tensors.packed(self._given(key, value, "the gradient")), self._out(key, out, wait)
        made = super().pushpull(key, tensors.buffer_of(given), tensors.buffer_of(taken), priority, timeout, wait)
        return taken if wait else made

    def broadcast(self, key: Key, value: torch.Tensor, out: Optional[torch.Tensor] = None,  # type: ignore[override]
                  priority: int = 0) -> torch.Tensor:
        """Begins a key, and gives all workers the first one's value."""
        self.init(key, value, priority=priority)
        return self.pull(key, out, priority)

    def row_sparse_push(self, key: Key, rows: Iterable[int], values: torch.Tensor, priority: int = 0, timeout: Optional[float] = None,
                        wait: bool = True) -> Optional[Request]:
        """A gradient for some rows; those that come twice are summed. In SYNC it is this worker's push of the round."""
        numbers, given = self._row_numbers(key, rows, "rows"), tensors.packed(tensors.check_on_host(values, f"rows of key {key!r}"))
        self._check_rows(key, numbers, given)
        return super().row_sparse_push(key, numbers, tensors.buffer_of(given), priority, timeout, wait)

    def row_sparse_pull(self, key: Key, out: Optional[torch.Tensor] = None, row_ids: Iterable[int] = (), priority: int = 0,
                        timeout: Optional[float] = None, wait: bool = True) -> Any:
        """Some rows, one after the other: a new tensor, or into `out`."""
        numbers, kept = self._row_numbers(key, row_ids, "row_ids"), self._known(key)
        if out is None and not wait:
            raise ValueError("a pull that does not wait needs `out`, where the rows go")
        taken = torch.empty(len(numbers), *kept.shape[1:], dtype=kept.dtype, device="cpu") if out is None else tensors.check_on_host(out, "out")
        self._check_rows(key, numbers, taken)
        if not tensors.is_packed(taken):
            raise ValueError(f"out of key {key!r} is not contiguous")
        made = super().row_sparse_pull(key, tensors.buffer_of(taken), numbers, priority, timeout, wait)
        return taken if wait else made

    def _row_numbers(self, key: Key, rows: Iterable[int], name: str) -> Any:
        if len(self._known(key).shape) < 2:
            raise ValueError(f"key {key!r} has a value of {self._known(key).describe()}: rows are of two or more dimensions")
        return rows.reshape(-1).tolist() if isinstance(rows, torch.Tensor) else several(name, rows, "numbers of rows")

    def _check_rows(self, key: Key, numbers: Any, values: torch.Tensor) -> None:
        kept = self._known(key)
        if tuple(values.shape) != (len(numbers), *kept.shape[1:]) or values.dtype != kept.dtype:
            wanted = _Kept((len(numbers), *kept.shape[1:]), kept.dtype)
            raise ValueError(f"{len(numbers)} rows of key {key!r} are {wanted.describe()}, and {_Kept(tuple(values.shape), values.dtype).describe()} is given")

    def lookup(self, key: Key, ids: torch.Tensor, priority: int = 0) -> torch.Tensor:
        """The rows `ids` of the value, as embedding layers have them: of shape ids.shape + that of a row. Backward pushes their gradient,
        which is this rank's push to the key: in SYNC all workers look up equally often. A row that comes twice is pulled once."""
        if not isinstance(ids, torch.Tensor) or ids.dtype not in (torch.int64, torch.int32):
            raise ValueError(f"ids are {ids.dtype if isinstance(ids, torch.Tensor) else type(ids).__name__}: give a tensor of int64 or int32")
        tensors.check_on_host(ids, "ids")
        if not self._known(key).dtype.is_floating_point:
            raise ValueError(f"key {key!r} has a value of {self._known(key).describe()}, which has no gradient")
        # The pushes happen in backward, whether or not anything that the caller has needs a gradient.
        return _Lookup.apply(torch.empty(0, requires_grad=True, device="cpu"), self, key, ids, priority)


class _Lookup(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, _: torch.Tensor, store: KVStore, key: Key, ids: torch.Tensor, priority: int) -> torch.Tensor:  # type: ignore[override]
        rows, places = torch.unique(ids, return_inverse=True)
        ctx.how = (store, key, rows, places, priority)
        return store.row_sparse_pull(key, row_ids=rows, priority=priority)[places]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
        store, key, rows, places, priority = ctx.how
        shape = store._known(key).shape[1:]
        summed = torch.zeros(len(rows), *shape, dtype=gradient.dtype, device="cpu")
        summed.index_add_(0, places.reshape(-1), gradient.detach().reshape(-1, *shape))
        store.row_sparse_push(key, rows, summed, priority=priority)
        return torch.zeros(0, device="cpu"), None, None, None, None


__all__ = ["KVStore", "Mode", "Update", "Wire"]
