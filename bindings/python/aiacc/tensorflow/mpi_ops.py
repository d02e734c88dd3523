"""The collectives of Horovod's TensorFlow API: executed at once in eager mode, and nodes in a graph. All are differentiable, with Horovod's
conventions: the loss of each rank is its own.

In a graph a node has the name that is given, or one that the graph makes of the operation's kind; ranks whose graphs are alike may execute
their nodes in any order.
"""
from __future__ import annotations

import ctypes as c
import re
from typing import Any, Callable, List, Optional, Sequence, Tuple, Union

import tensorflow as tf
from tensorflow.python.eager import execute

from aiacc._arguments import several, text, whole
from aiacc._horovod import basics, handles
from aiacc._horovod.basics import *  # noqa: F401,F403: Horovod's module has them too
from aiacc._horovod.calls import handle_average_backwards_compatibility, checked_splits, root_in_set
from aiacc._horovod.channel import Operation
from aiacc._horovod.joining import join as _join
from aiacc._horovod.operations import Adasum, Average, Max, Min, Product, Sum, checked_op, scales_of, shares
from aiacc._horovod.process_sets import ProcessSet, _joins_in_model_order, checked_set, global_process_set
from aiacc.tensorflow import _kernel, _operations as operations
from aiacc.tensorflow import tensors as _tensors
from aiacc.tensorflow._kernel import Call, as_it_is

Tensors = Sequence[tf.Tensor]
Make = Callable[[Call], Operation]


# --- an operation as a node

class _Name:
    """By which ranks know an operation. In a graph that of the node, in which the given one, or that of the kind, is a part; with
    `ignore_name_scope` the given one alone. Eagerly the given one; without it operations are known by their place among those that ranks
    execute, one after another."""

    def __init__(self, kind: str, name: Optional[str], ignore_name_scope: bool) -> None:
        self._given = text("name", name)
        self._eager = tf.executing_eagerly()
        self._as_given = self._eager or (ignore_name_scope and bool(self._given))
        self._path = "" if self._eager else _kernel.path_of(tf.compat.v1.get_default_graph())
        self.of_node = re.sub("[^a-zA-Z0-9_.]", "_", self._given or f"Horovod{kind}").lstrip("_.") or kind

    def of(self, call: Call) -> Optional[str]:
        return self._given if self._as_given else f"{self._path}:{call.node()}" if self._path else call.node()

    def of_gradient(self) -> Optional[str]:
        return None if self._eager and self._given is None else f"{self.of_node}_grad"


class _Node:
    """An operation of a process set, by the op's execution."""

    def __init__(self, process_set: ProcessSet, make: Make, ended: Callable[[Call, Operation], None]) -> None:
        self._set, self._make, self._ended = process_set, make, ended
        self._eager = tf.executing_eagerly()

    def __call__(self, call: Call) -> None:
        basics._known()
        channel = self._set._channel()
        operation = self._make(call)
        operation.check_ranks(self._set.size())
        if self._eager:
            channel.run(operation)
            self._ended(call, operation)
            call.finish()
            return

        # Two of one name, as of two threads that execute a function, would get each other's results where another rank has them in another order.
        key = (self._set.process_set_id, operation.kind, str(operation.name))
        handles.take_name(key)

        def ended(error: Optional[BaseException]) -> None:
            handles.give_back_name(key)
            if error is None:
                try:
                    self._ended(call, operation)
                except BaseException as failure:  # noqa: BLE001: it is the call's
                    error = failure
            call.finish(error)
        operation.ended = ended  # type: ignore[method-assign]
        try:
            channel.start(operation)
        except BaseException:
            handles.give_back_name(key)
            raise


def _execute(process_set: ProcessSet, inputs: Tensors, outputs: Sequence[Tuple[tf.DType, Any]], name: _Name, make: Make,
             ended: Callable[[Call, Operation], None] = lambda call, operation: None) -> List[tf.Tensor]:
    basics._known()
    if not checked_set(process_set).included():
        raise tf.errors.InvalidArgumentError(None, None, f"rank {basics.rank()} is no member of {process_set} and cannot call its operations")
    return _kernel.run(_Node(process_set, make, ended), inputs, outputs, name.of_node)


def _differentiable(function: Callable[..., Tuple[Any, Callable[..., Any]]], given: Tensors) -> Any:
    """`function` returns the results and the function of their gradients; without a tape only the former are needed."""
    if tf.executing_eagerly() and not execute.must_record_gradient():
        return function(*given)[0]
    return tf.custom_gradient(function)(*given)


def _checked_list(given: Any) -> List[tf.Tensor]:
    found = several("tensors", given, "a list of tensors")
    if not found:
        raise ValueError("a group of tensors has at least one")
    return [_tensors.check(one, f"tensor {i} of the group") for i, one in enumerate(found)]


def _rows_of(shape: tf.TensorShape) -> tf.TensorShape:
    return tf.TensorShape([None]).concatenate(shape[1:]) if shape.rank else shape


# --- allreduce

def _reduced(tensors: Tensors, name: Optional[str], op: int, prescale: float, postscale: float, process_set: ProcessSet,
               ignore_name_scope: bool = False) -> List[tf.Tensor]:
    checked_op(op)
    prescale, postscale = scales_of(prescale, postscale)
    if op == Adasum:
        raise NotImplementedError("op=Adasum is not part of aiacc.tensorflow: use Average or Sum")

    def function(*given: tf.Tensor) -> Any:
        known = _Name("Allreduce", name, ignore_name_scope)

        def make(call: Call) -> Operation:
            pairs = [call.pair(i) for i in range(len(call))]
            made: Operation = operations.Allreduce(known.of(call), [one for one, _ in pairs], [one for _, one in pairs], op, prescale, postscale)
            return made

        def gradient(*upstream: tf.Tensor) -> Any:
            return _reduced(upstream, known.of_gradient(), op, prescale, postscale, process_set)
        return _execute(process_set, given, [(one.dtype, one.shape) for one in given], known, make), gradient
    results: List[tf.Tensor] = _differentiable(function, tensors)
    return results


def _allreduce(tensor: Any, name: Optional[str] = None, op: int = Sum, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
               ignore_name_scope: bool = False, process_set: ProcessSet = global_process_set) -> tf.Tensor:
    """Horovod's, which packages import."""
    return _reduced([_tensors.check(tensor)], name, op, prescale_factor, postscale_factor, process_set, ignore_name_scope)[0]


# --- allgather

def _allgather(tensors: Tensors, name: Optional[str], process_set: ProcessSet, ignore_name_scope: bool = False) -> List[tf.Tensor]:
    if any(one.shape.rank == 0 for one in tensors):
        raise tf.errors.InvalidArgumentError(None, None, "allgather: a tensor of no dimension has no rows to gather; reshape it to [1]")

    def function(*given: tf.Tensor) -> Any:
        known = _Name("Allgather", name, ignore_name_scope)

        def make(call: Call) -> Operation:
            made: Operation = operations.Allgather(known.of(call), [call.input(i) for i in range(len(call))])
            return made

        def gradient(*upstream: tf.Tensor) -> Any:
            reduced = _reduced(upstream, known.of_gradient(), Average, 1.0, 1.0, process_set)
            rows = tf.stack([tf.shape(one, tf.int64)[0] for one in given])
            counts = tf.reshape(_allgather([rows], known.of_gradient(), process_set)[0], [process_set.size(), len(given)])
            before = tf.reduce_sum(counts[:process_set.rank()], 0)
            return [one[before[i]:before[i] + rows[i]] for i, one in enumerate(reduced)]
        return _execute(process_set, given, [(one.dtype, _rows_of(one.shape)) for one in given], known, make), gradient
    results: List[tf.Tensor] = _differentiable(function, tensors)
    return results


@as_it_is
def allgather(tensor: Any, name: Optional[str] = None, ignore_name_scope: bool = False, process_set: ProcessSet = global_process_set) -> tf.Tensor:
    """The rows (first dimension) of all ranks one after another; ranks may have different numbers of them. Differentiable."""
    return _allgather([_tensors.check(tensor)], name, process_set, ignore_name_scope)[0]


@as_it_is
def grouped_allgather(tensors: Any, name: Optional[str] = None, ignore_name_scope: bool = False,
                      process_set: ProcessSet = global_process_set) -> List[tf.Tensor]:
    """Allgather of several tensors as one operation. Differentiable."""
    return list(_allgather(_checked_list(tensors), name, process_set, ignore_name_scope))


# --- broadcast

@as_it_is
def broadcast(tensor: Any, root_rank: int, name: Optional[str] = None, ignore_name_scope: bool = False,
              process_set: ProcessSet = global_process_set) -> tf.Tensor:
    """The root's tensor, as a new one; `root_rank` is a rank of the job, also with a process set. Differentiable."""
    root, root_here = root_in_set(root_rank, process_set)

    def function(given: tf.Tensor) -> Any:
        known = _Name("Broadcast", name, ignore_name_scope)

        def make(call: Call) -> Operation:
            made: Operation = operations.Broadcast(known.of(call), *call.pair(0), root, root_here)
            return made

        def gradient(upstream: tf.Tensor) -> Any:
            reduced, = _reduced([upstream], known.of_gradient(), Average, 1.0, 1.0, process_set)
            return reduced if basics.rank() == root else reduced * tf.zeros([], reduced.dtype)  # which keeps it in the graph
        return _execute(process_set, [given], [(given.dtype, given.shape)], known, make)[0], gradient
    return _differentiable(function, [_tensors.check(tensor)])


@as_it_is
def broadcast_(variables: Any, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> Any:
    """In place, of variables. Returns them; in a graph of TensorFlow 1 the values that they have then."""
    found, name = several("variables", variables, "a list of variables"), text("name", name)
    root_in_set(root_rank, process_set)
    if tf.executing_eagerly():
        for i, one in enumerate(found):
            one.assign(broadcast(one, root_rank, None if name is None else f"{name}.{i}", process_set=process_set))
        return found
    assigned = [one.assign(broadcast(one, root_rank, f"{name or 'broadcast_'}.{i}", process_set=process_set)) for i, one in enumerate(found)]
    if tf.inside_function():
        return found
    with tf.control_dependencies([one.op for one in assigned]):
        return [one.read_value() for one in found]


# --- alltoall

@as_it_is
def alltoall(tensor: Any, splits: Any = None, name: Optional[str] = None, ignore_name_scope: bool = False,
             process_set: ProcessSet = global_process_set) -> Union[tf.Tensor, Tuple[tf.Tensor, tf.Tensor]]:
    """splits[r] rows of the tensor go to rank r (default: equally many to each). What this rank got, and with `splits` also how many rows of
    each rank. Differentiable."""
    given = _tensors.check(tensor)
    if splits is None:
        rows = tf.shape(given)[0] if given.shape.rank != 0 else tf.constant(0)
        static = given.shape.as_list()[0] if given.shape.rank else None  # no Dimension, as with shapes of TensorFlow 1
        if static is not None:
            _known_splits(static, checked_set(process_set).size())
        return _alltoall(given, tf.fill([checked_set(process_set).size()], rows // process_set.size()), name, ignore_name_scope, process_set)[0]
    listed = _tensors.check(splits, "splits")
    if listed.dtype not in (tf.int32, tf.int64):
        raise ValueError(f"splits are {listed.dtype.name}: they are integers, of int32 or int64")
    return _alltoall(given, tf.cast(listed, tf.int32), name, ignore_name_scope, process_set)


def _known_splits(rows: int, size: int) -> None:
    try:
        checked_splits(rows, None, size)
    except ValueError as error:
        raise tf.errors.InvalidArgumentError(None, None, str(error)) from error


def _alltoall(tensor: tf.Tensor, splits: tf.Tensor, name: Optional[str], ignore_name_scope: bool, process_set: ProcessSet) -> Tuple[tf.Tensor, tf.Tensor]:
    def function(given: tf.Tensor) -> Any:
        known = _Name("Alltoall", name, ignore_name_scope)

        def make(call: Call) -> Operation:
            rows, counts = call.input(0), call.input(1)
            if not rows.shape:
                raise ValueError("alltoall of a scalar, which has no rows: reshape it to [1]")
            made: Operation = operations.Alltoall(known.of(call), rows, checked_splits(rows.shape[0], _int32s(counts), process_set.size()))
            return made

        def ended(call: Call, operation: Operation) -> None:
            received = operation.output[1]
            _put_int32s(call.output(1, (len(received),)), received)

        def gradient(upstream: tf.Tensor, _: Any) -> Any:
            back = _alltoall(upstream, received, known.of_gradient(), False, process_set)[0]
            left = tf.shape(given)[0] - tf.shape(back)[0]  # rows that went nowhere
            return tf.concat([back, tf.zeros(tf.concat([[left], tf.shape(given)[1:]], 0), given.dtype)], 0)
        outputs = [(given.dtype, _rows_of(given.shape)), (tf.int32, [process_set.size()])]
        result, received = _execute(process_set, [given, splits], outputs, known, make, ended)
        return (result, received), gradient
    result, received = _differentiable(function, [tensor])
    return result, received


def _int32s(array: _kernel.Array) -> List[int]:
    memory: Any = (c.c_int32 * array.count).from_address(array.address)
    return list(memory)


def _put_int32s(array: _kernel.Array, values: Sequence[int]) -> None:
    memory: Any = (c.c_int32 * array.count).from_address(array.address)
    memory[:] = values


# --- reducescatter

def _reducescatter(tensors: Tensors, name: Optional[str], op: int, prescale: float, postscale: float, process_set: ProcessSet,
                   ignore_name_scope: bool = False) -> List[tf.Tensor]:
    if checked_op(op) not in (Sum, Average):
        raise NotImplementedError("reducescatter: op is Average or Sum")
    prescale, postscale = scales_of(prescale, postscale)
    checked_set(process_set)
    if any(one.shape.rank == 0 for one in tensors):
        raise ValueError("reducescatter of a scalar, which has no rows to divide: reshape it to [1]")

    def function(*given: tf.Tensor) -> Any:
        known = _Name("Reducescatter", name, ignore_name_scope)

        def make(call: Call) -> Operation:
            made: Operation = operations.Reducescatter(known.of(call), [call.input(i) for i in range(len(call))], op, prescale, postscale)
            return made

        def gradient(*upstream: tf.Tensor) -> Any:
            factor = prescale * postscale * (process_set.size() if op == Sum else 1)
            return _allgather([one * tf.cast(factor, one.dtype) for one in upstream], known.of_gradient(), process_set)

        def shape_of(one: tf.Tensor) -> Any:
            found = _rows_of(one.shape).as_list() if one.shape.rank is not None else None
            rows = one.shape.as_list()[0] if found is not None else None
            if found is not None and rows is not None:
                found[0] = shares(rows, process_set.size())[process_set.rank()]
            return found
        return _execute(process_set, given, [(one.dtype, shape_of(one)) for one in given], known, make), gradient
    results: List[tf.Tensor] = _differentiable(function, tensors)
    return results


# --- what is known when a graph runs

def _integer(value: Callable[[], int], name: Optional[str], kind: str) -> tf.Tensor:
    def body(call: Call) -> None:
        _put_int32s(call.output(0, ()), [value()])
        call.finish()
    return _kernel.run(body, [], [(tf.int32, [])], text("name", name) or kind)[0]


def _set_of(process_set_id: int) -> ProcessSet:
    from aiacc._horovod import process_sets
    found = next((one for one in process_sets._registered if one.process_set_id == process_set_id), None)
    if found is None:
        raise ValueError(f"process_set_id is {process_set_id}: there is no such process set")
    return found


@as_it_is
def size_op(process_set_id: int = 0, name: Optional[str] = None) -> tf.Tensor:
    """The number of ranks when it is executed, which a graph that was made before may find to be another one."""
    whole("process_set_id", process_set_id)
    return _integer(lambda: _set_of(process_set_id).size(), name, "HorovodSize")


@as_it_is
def local_size_op(name: Optional[str] = None) -> tf.Tensor:
    return _integer(basics.local_size, name, "HorovodLocalSize")


@as_it_is
def rank_op(name: Optional[str] = None) -> tf.Tensor:
    return _integer(basics.rank, name, "HorovodRank")


@as_it_is
def local_rank_op(name: Optional[str] = None) -> tf.Tensor:
    return _integer(basics.local_rank, name, "HorovodLocalRank")


@as_it_is
def process_set_included_op(process_set_id: int = 0, name: Optional[str] = None) -> tf.Tensor:
    """1 if this rank is a member, else 0."""
    whole("process_set_id", process_set_id)
    return _integer(lambda: int(_set_of(process_set_id).included()), name, "HorovodProcessSetIncluded")


# --- join

@as_it_is
def join() -> tf.Tensor:
    """This rank has no more data: it contributes zeros to the reductions of the others until all have joined. Returns the rank that joined
    last. Not within a graph."""
    basics._known()
    if not tf.executing_eagerly():
        raise RuntimeError("join is called in eager mode, outside of a tf.function")
    tasks: List[Callable[[], Any]] = [one.join for one in global_process_set._optimizers]
    begun = 0
    if global_process_set.size() > 1:
        tasks += _joins_in_model_order()
        begun = sum(one.steps() for one in global_process_set._optimizers)
    return tf.constant(_join(operations.Join(None), tasks, begun), tf.int32)


__all__ = ["Adasum", "Average", "Max", "Min", "Product", "Sum", "allgather", "alltoall", "broadcast", "broadcast_", "grouped_allgather",
           "handle_average_backwards_compatibility", "join", "local_rank_op", "local_size_op", "process_set_included_op", "rank_op", "size_op"]
