"""Memory that operations take: what has the buffer protocol (bytearray, array, memoryview, numpy arrays ...), or an address."""
from __future__ import annotations

import ctypes as c
import enum
from typing import Any, Optional, Union

from aiacc._arguments import refused


class DType(enum.IntEnum):
    """Element types, with the numbers of aiacc.h."""
    INT8 = 0
    UINT8 = 1
    INT16 = 2
    UINT16 = 3
    INT32 = 4
    UINT32 = 5
    INT64 = 6
    UINT64 = 7
    FLOAT16 = 8
    BFLOAT16 = 9
    FLOAT32 = 10
    FLOAT64 = 11
    BOOL = 12

    @property
    def itemsize(self) -> int:
        return _SIZES[self]


class Op(enum.IntEnum):
    """Reductions, with the numbers of aiacc.h."""
    SUM = 0
    AVG = 1
    PROD = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7


_SIZES = dict(zip(DType, (1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 1)))
_INTEGERS = {1: DType.INT8, 2: DType.INT16, 4: DType.INT32, 8: DType.INT64}
_FLOATS = {"e": DType.FLOAT16, "f": DType.FLOAT32, "d": DType.FLOAT64, "?": DType.BOOL, "c": DType.UINT8}


class Buffer:
    """`count` elements at `address`. The memory must live until the operation has completed; `owner` keeps it so."""
    __slots__ = ("address", "count", "dtype", "owner")

    def __init__(self, address: int, count: int, dtype: DType, owner: Any = None) -> None:
        self.address, self.count, self.dtype, self.owner = address, count, dtype, owner


class _View(c.Structure):
    """Py_buffer of the buffer protocol (PEP 3118)."""
    _fields_ = [("buf", c.c_void_p), ("obj", c.py_object), ("len", c.c_ssize_t), ("itemsize", c.c_ssize_t), ("readonly", c.c_int),
                ("ndim", c.c_int), ("format", c.c_char_p), ("shape", c.c_void_p), ("strides", c.c_void_p), ("suboffsets", c.c_void_p),
                ("internal", c.c_void_p)]

    def __del__(self) -> None:
        _release(c.byref(self))  # which does nothing for a view that was never got


_WRITABLE, _FORMAT, _C_CONTIGUOUS = 0x1, 0x4, 0x38
_get = c.pythonapi.PyObject_GetBuffer
_get.argtypes, _get.restype = (c.py_object, c.POINTER(_View), c.c_int), c.c_int
_release = c.pythonapi.PyBuffer_Release
_release.argtypes, _release.restype = (c.c_void_p,), None

Like = Union[Buffer, Any]


def _dtype_of(text: str, itemsize: int) -> Optional[DType]:
    code = text.lstrip("@=<|")
    if code in _FLOATS:
        return _FLOATS[code]
    if len(code) == 1 and code in "bhilqn":
        return _INTEGERS[itemsize]
    if len(code) == 1 and code in "BHILQN":
        return DType(_INTEGERS[itemsize] + 1)
    return None


def buffer(value: Like, dtype: Optional[DType] = None, writable: bool = False, name: str = "the buffer") -> Buffer:
    """`value` as a Buffer. `dtype` is needed where the buffer protocol has no name for the type, as for bfloat16. `name`: of the argument."""
    if isinstance(value, Buffer):
        return value
    view = _View()
    try:
        _get(value, c.byref(view), _C_CONTIGUOUS | _FORMAT | (_WRITABLE if writable else 0))
    except TypeError:
        raise refused(name, value, "memory with the buffer protocol, as a bytearray or an array of numpy has, or a Buffer") from None
    except (BufferError, ValueError) as error:
        wanted = "contiguous, and may be written" if writable else "contiguous"
        raise type(error)(f"{name} is of {type(value).__name__} and is to be {wanted}: {error}") from None
    if dtype is not None and not isinstance(dtype, DType):
        raise refused("dtype", dtype, "a DType")
    text = (view.format or b"B").decode()
    found = dtype if dtype is not None else _dtype_of(text, view.itemsize)
    if found is None:
        raise TypeError(f"elements of format {text!r} are no type of aiacc: give dtype=, one of {', '.join(DType.__members__)}")
    if view.len % found.itemsize:
        raise ValueError(f"{view.len} bytes are no whole number of {found.name} elements")
    return Buffer(view.buf or 0, view.len // found.itemsize, found, view)
