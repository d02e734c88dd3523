"""Row-sparse gradients of a gluon Trainer, reduced beside the gradient engine.

Ranks reduce them in one order, which they have agreed on, so nothing is negotiated. The rows of all ranks are gathered, and those that
several ranks have are summed in the order of ranks, so that all ranks have the same bits.
"""
from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

import mxnet as mx
import numpy
from mxnet.gluon.parameter import Parameter

from aiacc._horovod.channel import Channel, Operation
from aiacc.buffers import Buffer
from aiacc.mxnet import tensors


def _buffer(array: numpy.ndarray) -> Buffer:
    return Buffer(array.ctypes.data, array.size, tensors.element_type(array), array)  # type: ignore[arg-type]


def _gathered(channel: Channel, own: numpy.ndarray, numbers: List[int]) -> numpy.ndarray:
    """The rows of all ranks; `numbers` are how many each has."""
    result = numpy.empty((sum(numbers), *own.shape[1:]), dtype=own.dtype)
    each = int(numpy.prod(own.shape[1:], dtype=numpy.int64))
    if result.size:
        channel.group.allgather(_buffer(own), _buffer(result), counts=[each * number for number in numbers])
    return result


class SparseAllreduce(Operation):
    """The sum of a row-sparse array over the ranks: (ascending numbers of rows, their values)."""
    kind = "sparse allreduce"

    def __init__(self, name: str, gradient: mx.nd.sparse.RowSparseNDArray, prescale: float) -> None:
        super().__init__(name)
        self._rows, self._values = gradient.indices.asnumpy().astype(numpy.int64), gradient.data.asnumpy()
        self._described = [tensors.type_name(gradient), *gradient.shape]
        self._prescale, self.own_number = prescale, len(self._rows)

    def description(self) -> Dict[str, Any]:
        return {**super().description(), "type and shape": self._described}

    def run(self, channel: Channel, numbers: List[int]) -> None:
        rows, values = (_gathered(channel, numpy.ascontiguousarray(one), numbers) for one in (self._rows, self._values))
        found, places = numpy.unique(rows, return_inverse=True)
        # In fp32 at least, as the engine sums 16-bit floats.
        kind = numpy.float32 if values.dtype == numpy.float16 else values.dtype.type
        summed = numpy.zeros((len(found), *values.shape[1:]), dtype=kind)
        begin = 0
        for number in numbers:  # a rank has a row once
            summed[places[begin:begin + number]] += values[begin:begin + number]
            begin += number
        self.output = found, (summed * kind(self._prescale)).astype(values.dtype, copy=False)


class SparseReducer:
    """`named`: parameters with row-sparse gradients, in the same order on all ranks."""

    def __init__(self, channel: Channel, named: List[Tuple[str, Parameter]], prescale: float) -> None:
        self._channel, self._named, self._prescale = channel, named, prescale
        self._started: List[SparseAllreduce] = []

    def start(self) -> None:
        """Waits for backward where a gradient is not complete."""
        self._started = []
        for name, parameter in self._named:
            operation = SparseAllreduce(name, parameter.list_grad()[0], self._prescale)
            self._started.append(operation)
            self._channel.start(operation, steps_aside=False)

    def finish(self) -> None:
        """Gradients become those of all ranks. Waits for all of them, also after an error; then raises the first one."""
        first: Optional[BaseException] = None
        for (_, parameter), operation in zip(self._named, self._started):
            try:
                rows, values = self._channel.wait(operation)
            except BaseException as error:  # noqa: BLE001: the others are waited for all the same
                first = first or error
                continue
            own = parameter.list_grad()[0]
            if len(rows):
                mx.nd.sparse.row_sparse_array((values, rows), shape=own.shape, dtype=own.dtype).copyto(own)
            else:
                mx.nd.sparse.zeros("row_sparse", own.shape, dtype=own.dtype).copyto(own)
        self._started = []
        if first is not None:
            raise first


def is_sparse(parameter: Any) -> bool:
    return parameter._grad_stype == "row_sparse"
