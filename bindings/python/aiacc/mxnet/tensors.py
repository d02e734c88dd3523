"""NDArrays as the library wants them: on the CPU, dense, of a type that it knows, in MXNet's default layout."""
from __future__ import annotations

import ctypes as c
from typing import Any, List

import mxnet as mx
import numpy
from mxnet.base import _LIB, check_call
from mxnet.ndarray import NDArray

from aiacc._horovod.channel import canonical  # noqa: F401
from aiacc.buffers import Buffer, DType

FRAMEWORK = "aiacc.mxnet"
_TYPES = {"float32": DType.FLOAT32, "float64": DType.FLOAT64, "float16": DType.FLOAT16, "uint8": DType.UINT8, "int8": DType.INT8, "int32": DType.INT32,
          "int64": DType.INT64, "bool": DType.BOOL}


def type_name(array: NDArray) -> str:
    kind = numpy.dtype(array.dtype)
    return "bfloat16" if kind.names == ("bfloat16",) else kind.name


def element_type(array: NDArray) -> DType:
    name = type_name(array)
    return DType.BFLOAT16 if name == "bfloat16" else _TYPES[name]


def is_dense(array: NDArray) -> bool:
    return array.stype == "default"


def check(array: Any, what: str = "tensor") -> NDArray:
    """Refuses what cannot be sent, before anything has begun."""
    if not isinstance(array, NDArray):
        raise ValueError(f"{what} is of {type(array).__name__}, not an NDArray of MXNet")
    if not is_dense(array):
        raise ValueError(f"{what} is {array.stype}: operations take dense arrays; use tostype('default') on it")
    if array.context.device_type not in ("cpu", "cpu_pinned", "cpu_shared"):
        raise ValueError(f"{what} is on {array.context}: this version of aiacc moves arrays of the CPU only; use as_in_context(mx.cpu()) on it")
    if type_name(array) not in _TYPES and type_name(array) != "bfloat16":
        raise ValueError(f"{what} is of {type_name(array)}; the types are {', '.join(_TYPES)} and bfloat16")
    return array


def count(array: NDArray) -> int:
    return int(numpy.prod(array.shape, dtype=numpy.int64))


def address(array: NDArray) -> int:
    """Of the elements. Nothing may be writing them; after an operation of oneDNN they are put in MXNet's layout first."""
    found = c.c_void_p()
    check_call(_LIB.MXNDArrayGetData(array.handle, c.byref(found)))
    return found.value or 0


def buffer_of(array: NDArray) -> Buffer:
    return Buffer(address(array), count(array), element_type(array), array)


def settle(array: NDArray) -> NDArray:
    """Waits until MXNet neither writes nor reads the array, and has it in the default layout."""
    check_call(_LIB.MXNDArrayWaitToWrite(array.handle))
    address(array)
    return array


def may_be_blocked(array: NDArray) -> bool:
    """Whether oneDNN may have its own layout of the elements. Only an array that nothing uses can be put back."""
    return len(array.shape) > 1 and type_name(array) in ("float32", "bfloat16", "int8", "uint8", "int32")


def is_packed(array: NDArray) -> bool:
    return True  # views of MXNet are rows without gaps


def packed(array: NDArray) -> NDArray:
    return array


def _empty(shape: Any, like_array: NDArray) -> NDArray:
    if 0 in shape:
        with mx.util.np_shape(True):
            return mx.nd.zeros(shape, dtype=like_array.dtype, ctx=mx.cpu())
    made = mx.nd.empty(shape, dtype=like_array.dtype, ctx=mx.cpu())
    return made.as_np_ndarray() if isinstance(like_array, mx.np.ndarray) else made


def like(array: NDArray) -> NDArray:
    return _empty(array.shape, array)


def rows_like(array: NDArray, rows: int) -> NDArray:
    return _empty((rows, *array.shape[1:]), array)


def copy(to: NDArray, given: NDArray) -> None:
    """On addresses: an engine's operation would wait for the one that copies."""
    c.memmove(address(to), address(given), count(given) * element_type(given).itemsize)


def describe(array: NDArray) -> List[Any]:
    """What ranks compare."""
    return [type_name(array), *array.shape]


def integers(values: List[int]) -> NDArray:
    return mx.nd.array(values, dtype="int32")


def at_address(where: int, shape: Any, dtype: Any) -> NDArray:
    """An NDArray over memory of the library, which outlives it."""
    kind = numpy.dtype(dtype)
    elements = int(numpy.prod(shape, dtype=numpy.int64))
    memory: Any = (c.c_ubyte * (elements * kind.itemsize)).from_address(where)
    return mx.nd.from_numpy(numpy.frombuffer(memory, dtype=kind).reshape(shape), zero_copy=True)
