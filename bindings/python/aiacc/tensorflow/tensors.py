"""Tensors as the library wants them: dense, of a type that it knows. Operations have their elements as arrays of a kernel's execution."""
from __future__ import annotations

import ctypes as c
from typing import Any, List

import numpy
import tensorflow as tf

from aiacc._arguments import refused
from aiacc._horovod.channel import canonical  # noqa: F401
from aiacc.buffers import Buffer, DType
from aiacc.tensorflow._kernel import TYPES, Array

FRAMEWORK = "aiacc.tensorflow"


def check(given: Any, what: str = "tensor") -> tf.Tensor:
    """As a tensor. Refuses what cannot be sent, before anything has begun."""
    if isinstance(given, (tf.SparseTensor, tf.RaggedTensor, tf.IndexedSlices)):
        raise ValueError(f"{what} is a {type(given).__name__}: operations take dense tensors")
    try:
        found = tf.convert_to_tensor(given)
    except (TypeError, ValueError):
        raise refused(what, given, "a tensor, a variable, or what tf.convert_to_tensor takes") from None
    if found.dtype != found.dtype.base_dtype:  # a variable of TensorFlow 1, which is no resource
        found = tf.identity(found)
    if found.dtype not in TYPES:
        raise ValueError(f"{what} is of {found.dtype.name}; the types are {', '.join(kind.name for kind in TYPES)}")
    return found


# --- what operations.py asks of arrays

def element_type(array: Array) -> DType:
    return array.dtype


def is_packed(array: Array) -> bool:
    return True


def packed(array: Array) -> Array:
    return array


def buffer_of(array: Array) -> Buffer:
    return array.buffer()


def describe(array: Array) -> List[Any]:
    return [array.type_name, *array.shape]


def rows_like(array: Array, rows: int) -> Array:
    """The result for this input."""
    assert array.call is not None
    return array.call.output(array.index, (rows, *array.shape[1:]))


def copy(to: Array, given: Array) -> None:
    c.memmove(to.address, given.address, given.count * given.dtype.itemsize)


def integers(values: List[int]) -> List[int]:
    return values


class Zeros:
    """What stands in for the tensor of a rank that has joined."""

    def __init__(self, description: List[Any]) -> None:
        self.type_name, *self.shape = description
        self.dtype = next(dtype for kind, dtype in TYPES.items() if kind.name == self.type_name)
        self.count = int(numpy.prod(self.shape, dtype=numpy.int64))
        self._memory = numpy.zeros(self.count * self.dtype.itemsize, numpy.uint8)

    def buffer(self) -> Buffer:
        return Buffer(self._memory.ctypes.data, self.count, self.dtype, self._memory)


def described(description: List[Any]) -> Zeros:
    return Zeros(description)
