"""The row-sparse gradient of a parameter, which the gradient engine reduces as rows of a table."""
from __future__ import annotations

import ctypes as c
from typing import Any

import mxnet as mx
import numpy
from mxnet.gluon.parameter import Parameter

from aiacc.buffers import Buffer, DType, Op
from aiacc.gradients import Engine
from aiacc.mxnet import tensors


def _copy(address: int, shape: Any, kind: Any) -> numpy.ndarray:
    """Of memory of the library."""
    found = numpy.empty(shape, dtype=kind)
    c.memmove(found.ctypes.data, address, found.nbytes)
    return found


class Table:
    def __init__(self, parameter: Parameter, engine: Engine, name: str, prescale: float) -> None:
        self.parameter = parameter
        given = parameter.list_grad()[0]
        self._row_shape, self._type = given.shape[1:], numpy.dtype(given.dtype)
        self._element = tensors.element_type(given)
        self.index = engine.add(name, given.shape[0], self._element, Op.SUM, prescale,
                                row_elements=int(numpy.prod(self._row_shape, dtype=numpy.int64)))

    def submit(self, engine: Engine) -> None:
        """Waits for backward if the gradient is not complete."""
        gradient = self.parameter.list_grad()[0]
        rows = numpy.ascontiguousarray(gradient.indices.asnumpy(), dtype=numpy.int64)
        values = numpy.ascontiguousarray(gradient.data.asnumpy(), dtype=self._type)
        engine.submit_rows(self.index, Buffer(rows.ctypes.data, rows.size, DType.INT64, rows),
                           Buffer(values.ctypes.data, values.size, self._element, values), wants_request=False)

    def give(self, engine: Engine) -> None:
        """The rows of all ranks are the parameter's gradient."""
        own = self.parameter.list_grad()[0]
        count, rows, values = engine.rows(self.index)
        if count == 0:
            mx.nd.sparse.zeros("row_sparse", own.shape, dtype=own.dtype).copyto(own)
            return
        elements = _copy(values, (count, *self._row_shape), self._type).astype(own.dtype, copy=False)
        mx.nd.sparse.row_sparse_array((elements, _copy(rows, (count,), numpy.int64)), shape=own.shape, dtype=own.dtype).copyto(own)

    def leave(self) -> None:
        """Nothing of the parameter's is in the engine's memory."""


def is_sparse(parameter: Any) -> bool:
    return parameter._grad_stype == "row_sparse"
