"""The keys of a KVStore, and the arrays that it is called with."""
from __future__ import annotations

from typing import Any, List, Optional, Union

import mxnet as mx
import numpy
from mxnet.ndarray import NDArray

from aiacc.mxnet import tensors

Key = Union[int, str]
LONGEST_ROW = 512 * 1024  # bytes, of the store


def listed(given: Any) -> List[Any]:
    return list(given) if isinstance(given, (list, tuple)) else [given]


def is_sparse(given: Any) -> bool:
    return isinstance(given, mx.nd.sparse.RowSparseNDArray)


def copy_to(result: NDArray, outs: List[NDArray]) -> None:
    for one in outs:
        if one is not result:
            result.copyto(one)


class Entry:
    def __init__(self, value: NDArray, is_parameter: bool) -> None:
        self.shape, self.dtype = tuple(value.shape), value.dtype
        self.is_parameter = is_parameter
        self.order = mx.nd.zeros((1,))  # written by each operation on the key
        self.reduced: Optional[NDArray] = None  # what an allreduce put in the value's place

    @property
    def rows(self) -> Optional[int]:
        """How many the store shall know, so that some can be pushed and pulled."""
        row_bytes = int(numpy.prod(self.shape[1:], dtype=numpy.int64)) * numpy.dtype(self.dtype).itemsize
        return self.shape[0] if len(self.shape) > 1 and row_bytes <= LONGEST_ROW else None

    @property
    def learns(self) -> bool:
        """Whether the store's own optimizers are for its type; no optimizer changes what is no parameter."""
        return not self.is_parameter or tensors.type_name(self) in ("float32", "float64")  # type: ignore[arg-type]

    def _describe(self) -> str:
        return f"{tensors.type_name(self)} {self.shape}"  # type: ignore[arg-type]

    def check_pushed(self, key: Key, given: NDArray) -> None:
        if tuple(given.shape) != self.shape or given.dtype != self.dtype:
            raise ValueError(f"key {key!r} has a value of {self._describe()}, and {tensors.type_name(given)} {tuple(given.shape)} is pushed")

    def check_out(self, key: Key, out: NDArray) -> None:
        """Of another type is possible: the value is cast."""
        if tuple(out.shape) != self.shape:
            raise ValueError(f"key {key!r} has a value of {self._describe()}, and out is {tuple(out.shape)}")
