"""One op of TensorFlow, whose kernel calls Python and completes when Python says so: made with TensorFlow's C API, without a compiler.

A kernel's execution is a Call. It holds its inputs until the call is finished, so that no thread of TensorFlow waits meanwhile, whatever a
graph has under way: ranks may execute their nodes in any order. Results are written where TensorFlow wants them: in the input's own memory if
nobody else reads it.
"""
from __future__ import annotations

import ctypes as c
import itertools
import re
import threading
import traceback
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy
import tensorflow as tf
from tensorflow.python.eager import context, execute
from tensorflow.python.framework import op_def_library
from tensorflow.python.framework.func_graph import FuncGraph

from aiacc._horovod.exceptions import HorovodInternalError
from aiacc.buffers import Buffer, DType
from aiacc.tensorflow._c_api import FAILED_PRECONDITION, INVALID_ARGUMENT, UNKNOWN, Compute, Done, Status, api

NAME = "AiaccCall"
TYPES = {tf.float32: DType.FLOAT32, tf.float64: DType.FLOAT64, tf.float16: DType.FLOAT16, tf.bfloat16: DType.BFLOAT16, tf.int8: DType.INT8,
         tf.uint8: DType.UINT8, tf.int16: DType.INT16, tf.uint16: DType.UINT16, tf.int32: DType.INT32, tf.uint32: DType.UINT32,
         tf.int64: DType.INT64, tf.uint64: DType.UINT64, tf.bool: DType.BOOL}
_BY_NUMBER = {kind.as_datatype_enum: (kind.name, dtype) for kind, dtype in TYPES.items()}
_EMPTY = c.create_string_buffer(64)  # what stands for the memory of no elements


# Of what a program calls in a tf.function: AutoGraph is not to look into it.
as_it_is = tf.autograph.experimental.do_not_convert


class Array:
    """Elements of a tensor, with the number of the output that its result is."""
    __slots__ = ("call", "index", "handle", "shape", "type_name", "dtype", "address", "count")

    def __init__(self, call: Optional[Call], index: int, handle: int, number: int, shape: Sequence[int]) -> None:
        self.call, self.index, self.handle, self.shape = call, index, handle, tuple(shape)
        self.type_name, self.dtype = _BY_NUMBER[number]
        self.count = 1
        for size in self.shape:
            self.count *= size
        self.address: int = (api.TensorData(handle) if self.count else 0) or c.addressof(_EMPTY)

    def buffer(self) -> Buffer:
        return Buffer(self.address, self.count, self.dtype, self)


class Call:
    """One execution of the op. Its memory is TensorFlow's from finish() on, which does nothing when it is called again."""

    def __init__(self, kernel: int, done: Done) -> None:
        self._kernel, self._done = kernel, done
        self._status = Status()
        self._held: List[int] = []
        self._finishing = threading.Lock()
        self._is_finished = False
        self.error: Optional[BaseException] = None

    def __len__(self) -> int:
        return api.NumInputs(self._kernel) - 1

    def _check(self) -> None:
        if self._is_finished:
            raise RuntimeError("this execution was interrupted")

    def node(self) -> str:
        """The name of what is executed: another one for each node, also where a function is called several times."""
        return str(api.GetOpKernelName(self._kernel))

    def _get(self, index: int) -> int:
        handle = c.c_void_p()
        api.GetInput(self._kernel, index, c.byref(handle), self._status.handle)
        self._status.check()
        return handle.value or 0

    def key(self) -> int:
        handle = self._get(0)
        found = c.c_int64.from_address(api.TensorData(handle)).value
        api.DeleteTensor(handle)
        return found

    def input(self, index: int) -> Array:
        handle = self._get(1 + index)
        self._held.append(handle)
        return Array(self, index, handle, api.TensorType(handle), [api.Dim(handle, i) for i in range(api.NumDims(handle))])

    def output(self, index: int, shape: Sequence[int]) -> Array:
        """Memory of its own."""
        self._check()
        dims = (c.c_int64 * max(1, len(shape)))(*shape)
        number = api.ExpectedOutputDataType(self._kernel, index)
        size = _BY_NUMBER[number][1].itemsize
        for one in shape:
            size *= one
        handle = api.AllocateOutput(self._kernel, index, number, dims, len(shape), size, self._status.handle)
        return self._made(index, handle, number, shape)

    def pair(self, index: int) -> Tuple[Array, Array]:
        """The input of this number, and the output, of its shape: in the same memory if nobody else has the input."""
        self._check()
        given = self._get(1 + index)
        shape = [api.Dim(given, i) for i in range(api.NumDims(given))]
        number = api.TensorType(given)
        api.DeleteTensor(given)  # only an input that nobody holds is handed on
        dims, candidate, forwarded = (c.c_int64 * max(1, len(shape)))(*shape), (c.c_int * 1)(1 + index), c.c_int(-1)
        handle = api.ForwardInputOrAllocateOutput(self._kernel, candidate, 1, index, dims, len(shape), c.byref(forwarded), self._status.handle)
        result = self._made(index, handle, number, shape)
        return (result if forwarded.value >= 0 else self.input(index)), result

    def _made(self, index: int, handle: Optional[int], number: int, shape: Sequence[int]) -> Array:
        self._status.check()
        assert handle is not None
        self._held.append(handle)
        return Array(self, index, handle, number, shape)

    def finish(self, error: Optional[BaseException] = None, is_used: bool = False) -> None:
        """`is_used`: the memory still is, and is never given back."""
        if not self._finishing.acquire(blocking=False):
            return
        self._is_finished = True
        self.error = error
        if error is not None:
            api.SetStatus(self._status.handle, _code_of(error), f"{type(error).__name__}: {error}".encode())
            api.OpKernelContext_Failure(self._kernel, self._status.handle)
        for handle in self._held if not is_used else ():
            api.DeleteTensor(handle)
        self._done()


def is_disagreement(error: BaseException) -> bool:
    """Of ranks about an operation, after which they can go on."""
    return isinstance(error, HorovodInternalError) and str(error).startswith("ranks disagree")


def _code_of(error: BaseException) -> int:
    if is_disagreement(error):
        return FAILED_PRECONDITION
    return INVALID_ARGUMENT if isinstance(error, ValueError) else UNKNOWN


Body = Callable[[Call], None]  # begins what the op does; must not block unless the program executes it eagerly
_bodies: Dict[int, Body] = {}
_numbers = itertools.count(1)
_lock = threading.Lock()


def _on_compute(_: int, kernel: int, done: int) -> None:
    try:
        call = Call(kernel, Done(done))
        try:
            _bodies[call.key()](call)
        except BaseException as error:  # noqa: BLE001: it cannot pass through C
            call.finish(error, is_used=not isinstance(error, Exception))  # what Ctrl-C has interrupted goes on
    except BaseException:  # noqa: BLE001
        traceback.print_exc()


_on_compute_callback = Compute(_on_compute)


def _register() -> None:
    status = Status()
    builder = api.NewOpDefinitionBuilder(NAME.encode())
    for attribute in (b"Tin: list(type) >= 0", b"Tout: list(type) >= 0"):
        api.OpDefinitionBuilderAddAttr(builder, attribute)
    for given in (b"key: int64", b"inputs: Tin"):
        api.OpDefinitionBuilderAddInput(builder, given)
    api.OpDefinitionBuilderAddOutput(builder, b"outputs: Tout")
    api.OpDefinitionBuilderSetIsStateful(builder, True)
    api.OpDefinitionBuilderSetShapeInferenceFunction(builder, c.cast(api.ShapeInferenceContextSetUnknownShape, c.c_void_p))
    api.RegisterOpDefinition(builder, status.handle)
    status.check()
    api.RegisterKernelBuilder(NAME.encode(), api.NewAsyncKernelBuilder(NAME.encode(), b"CPU", None, _on_compute_callback, None), status.handle)
    status.check()


_register()


def path_of(graph: Any) -> str:
    """Of functions, and branches of them. What a function that Keras traces twice has is the same; what two branches have is not."""
    names: List[str] = []
    while isinstance(graph, FuncGraph):
        names.insert(0, re.sub(r"_\d+$", "", graph.name))
        graph = graph.outer_graph
    return "/".join(names)


def run(body: Body, inputs: Sequence[tf.Tensor], outputs: Sequence[Tuple[tf.DType, Any]], name: str) -> List[tf.Tensor]:
    """Executes the op, or adds it to the graph. `outputs`: type and static shape of each, where None is unknown."""
    types = [kind for kind, _ in outputs]
    if context.executing_eagerly():
        return _run_now(body, inputs, types)
    number = _keep(body)  # for as long as the process: nobody tells when a graph is gone
    with tf.device("/CPU:0"):
        key = tf.constant(number, tf.int64)
        _, _, node, results = op_def_library._apply_op_helper(NAME, name=name, key=key, inputs=list(inputs), Tout=types)
    # Else a tf.function executes one after another what has effects, and those of other ranks may have begun with another one.
    manager = getattr(node.graph, "experimental_acd_manager", None)
    if manager is not None:
        manager.run_independently(node)
    for result, (_, shape) in zip(results, outputs):
        result.set_shape(shape)
    return list(results)


def _keep(body: Body) -> int:
    with _lock:
        number = next(_numbers)
        _bodies[number] = body
    return number


def _run_now(body: Body, inputs: Sequence[tf.Tensor], types: Sequence[tf.DType]) -> List[tf.Tensor]:
    calls: List[Call] = []

    def noted(call: Call) -> None:
        calls.append(call)
        body(call)
    number = _keep(noted)
    attributes = ("Tin", tuple(one.dtype.as_datatype_enum for one in inputs), "Tout", tuple(kind.as_datatype_enum for kind in types))
    try:
        with tf.device("/CPU:0"):
            key = tf.constant(numpy.array([number]))  # of a Python number TensorFlow keeps a tensor for ever
            return list(execute.execute(NAME.encode(), len(types), [key, *inputs], attributes, context.context()))
    except tf.errors.OpError as failure:
        error = calls[0].error if calls else None
        if error is None or isinstance(error, (RuntimeError, ValueError)):  # which a graph tells by its own, too
            raise
        raise error from failure
    finally:
        del _bodies[number]
