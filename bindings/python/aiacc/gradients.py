"""The gradient engine of aiacc/gradient.h: allreduces of named tensors that ranks submit in any order."""
from __future__ import annotations

import ctypes as c
import enum
import os
from typing import Any, Dict, List, Optional, Tuple

from aiacc import _abi
from aiacc._library import library
from aiacc.buffers import Buffer, DType, Op
from aiacc.errors import PENDING
from aiacc.groups import Group
from aiacc.requests import _TICK_MS, Request, on_a_thread


def checks_nan() -> bool:
    """Whether AIACC_NAN_CHECK is set: steps with gradients that are not finite are left out."""
    given = os.environ.get("AIACC_NAN_CHECK") or os.environ.get("PERSEUS_ALLREDUCE_NANCHECK") or ""
    return given.lower() in ("1", "yes", "true", "on")


def sets_fusion_bytes() -> bool:
    """Whether the user has chosen how many bytes of gradients are reduced together."""
    return any(os.environ.get(name) for name in ("AIACC_FUSION_BYTES", "HOROVOD_FUSION_THRESHOLD"))


class Wire(enum.IntEnum):
    """In what the elements of fp32 gradients travel that are summed or averaged; of 16-bit ones the sum is in fp32."""
    DEFAULT = 0
    FLOAT32 = 1
    FLOAT16 = 2
    BFLOAT16 = 3
    MIXED = 4


class Engine:
    """Belongs to the ranks of a group, each of which makes it; engines of one group have different names."""

    def __init__(self, group: Group, name: str, fusion_bytes: int = 0) -> None:
        """`fusion_bytes`: tensors are merged up to this size, and larger ones split by it; 0: AIACC_FUSION_BYTES."""
        made = _abi.Handle()
        attr = _abi.GradientAttr(size=c.sizeof(_abi.GradientAttr), name=name.encode(), fusion_bytes=fusion_bytes)
        library().aiacc_gradient_create(group.handle, c.byref(attr), c.byref(made))
        self.handle = made.value
        self._kinds: Dict[int, Tuple[DType, int]] = {}  # type, and elements of a row, 0 if it is no table
        self._submitted: List[int] = []  # tensors whose end wait() alone tells

    def add(self, name: str, count: int, dtype: DType, op: Op = Op.SUM, prescale: float = 1.0, postscale: float = 1.0,
            wire: Wire = Wire.DEFAULT, priority: int = 0, row_elements: int = 0) -> int:
        """A tensor, equal on all ranks; the number by which this rank calls it. In the order in which gradients are expected. Of those that
        wait to be reduced the one with the highest `priority` comes first. With `row_elements` above 0 it is a table of `count` rows with so
        many elements each, of which ranks submit some (submit_rows); it has no slot, and is a sum or an average."""
        tensor = _abi.Tensor(size=c.sizeof(_abi.Tensor), name=name.encode(), count=count, dtype=dtype, op=op, prescale=prescale, postscale=postscale,
                             wire=wire, priority=priority, row_elements=row_elements)
        index = c.c_uint32()
        library().aiacc_gradient_add(self.handle, 1, c.byref(tensor), c.byref(index))
        self._kinds[index.value] = dtype, row_elements
        return index.value

    def memory(self, index: int) -> int:
        """The address of the tensor's slot, which may be written but between a submission and its completion; 0 without elements."""
        address = c.c_void_p()
        library().aiacc_gradient_memory(self.handle, index, c.byref(address))
        return address.value or 0

    def in_place(self, index: int) -> bool:
        """Whether the tensor is reduced where it is given, if its result is wanted there too; otherwise it is copied into its slot and
        out of it. With 256 KiB and more of any type and no 16-bit wire, where no host has two ranks, without AIACC_NAN_CHECK."""
        found = c.c_int()
        library().aiacc_gradient_in_place(self.handle, index, c.byref(found))
        return found.value != 0

    def submit(self, index: int, given: Optional[Buffer] = None, result: Optional[Buffer] = None, kept: Any = None,
               wants_request: bool = True) -> Optional[Request]:
        """The tensor is ready on this rank: in its slot, or at `given`, which is copied at once. The result goes to `result`, or stays
        in the slot; an error leaves `result` as it was. If both are the same memory, it is the engine's until the tensor is reduced. If
        in_place() says so the tensor is not copied: the memory is read and written until then, the slot is not used, and after an error
        the memory's contents are undefined."""
        request = _abi.Handle()
        library().aiacc_gradient_submit(self.handle, index, given.address if given is not None else None, result.address if result is not None else None,
                                        c.byref(request) if wants_request else None)
        if wants_request:
            return Request(request.value, (given, result, kept))
        self._submitted.append(index)
        return None

    def submit_rows(self, index: int, rows: Buffer, values: Buffer, wants_request: bool = True) -> Optional[Request]:
        """The gradient of a table is ready on this rank: the numbers of its rows, of 64 bits, and their elements. In any order, also
        several times, which are added up. Both are copied at once."""
        dtype, row_elements = self._kinds.get(index, (values.dtype, 0))  # the library refuses another index
        if rows.dtype != DType.INT64 or values.dtype != dtype or values.count != rows.count * row_elements:
            raise ValueError(f"{rows.count} {rows.dtype.name} and {values.count} {values.dtype.name} are not the numbers and elements of rows with "
                             f"{row_elements} {dtype.name}")
        request = _abi.Handle()
        library().aiacc_gradient_submit_rows(self.handle, index, rows.count, rows.address, values.address,
                                             c.byref(request) if wants_request else None)
        if wants_request:
            return Request(request.value, None)
        self._submitted.append(index)
        return None

    def rows(self, index: int) -> Tuple[int, int, int]:
        """The result of a table's last submission: how many rows some rank has, and the addresses of their numbers, which ascend, and of
        their elements: memory of the engine, until the table is submitted again."""
        count, rows, values = c.c_size_t(), c.c_void_p(), c.c_void_p()
        library().aiacc_gradient_rows(self.handle, index, c.byref(count), c.byref(rows), c.byref(values))
        return count.value, rows.value or 0, values.value or 0

    def flush(self) -> None:
        """This rank submits no more for now."""
        library().aiacc_gradient_flush(self.handle)

    def wait(self) -> None:
        """Until all that this rank has submitted is reduced: the end of a step. Raises the first error of these; NotFinite on all ranks
        if AIACC_NAN_CHECK is set and a gradient of the step is not finite on some rank. The engine goes on after that."""
        while self._submitted:
            if self.wait_for(self._submitted[-1], _TICK_MS):
                self._submitted.pop()
        library().aiacc_gradient_wait(self.handle)

    def wait_for(self, index: int, timeout_ms: int) -> bool:
        """Until what this rank has submitted of the tensor is reduced; False: it is not, after this time. Python sees no signal (Ctrl-C)
        meanwhile. wait() tells of what is not finite."""
        return library().aiacc_gradient_wait_for(self.handle, index, timeout_ms) != PENDING

    def join(self) -> int:
        """This rank has run out of data: takes part with zeros until all have joined. The rank that joined last."""
        last = c.c_int()
        on_a_thread(lambda: library().aiacc_gradient_join(self.handle, c.byref(last)))
        return last.value

    def stats(self) -> Dict[str, int]:
        found = _abi.GradientStats(size=c.sizeof(_abi.GradientStats))
        library().aiacc_gradient_get_stats(self.handle, c.byref(found))
        return {field[0]: getattr(found, field[0]) for field in found._fields_[1:]}

    def free(self) -> None:
        """The slots are gone. Waits for allreduces that are running."""
        self._submitted = []
        library().aiacc_gradient_free(self.handle)
