"""Gradients of one optimizer or tape, reduced by the gradient engine while backward goes on.

Each node of a graph has some of the gradients. Its kernel submits them as soon as backward has made them, and completes when the step is over:
when all gradients of the list have been submitted and reduced; or when its own have been, after a while in which no others came. A thread of
the reducer waits for the engine, and for the other ranks when the engine is made, so that no thread of TensorFlow does.
"""
from __future__ import annotations

import collections
import ctypes as c
import hashlib
import os
import threading
import time
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

import tensorflow as tf

from aiacc._horovod import basics, operations
from aiacc._horovod.channel import Channel, canonical
from aiacc._horovod.exceptions import HorovodInternalError
from aiacc._horovod.process_sets import ProcessSet
from aiacc.buffers import DType
from aiacc.errors import InvalidHandle, NotFinite
from aiacc.gradients import Engine, Wire
from aiacc.tensorflow import _kernel
from aiacc.tensorflow._kernel import TYPES, Array, Call

_NODE_BYTES = 1 << 20  # neighbours share a node until they have so many
_LOOK_S = 1.0  # so that a signal's handler runs
_LEAVING_S = 10.0
_SILENCE_S = 1.0  # of a step that is not complete, before its nodes end by themselves
_highest = 0  # number of an engine


class Kind(NamedTuple):
    """What ranks agree on, of a gradient. `rows`: of a table, of which a rank has some; 0: it is dense."""
    name: str
    type_name: str
    elements: int
    rows: int
    wire: int


def _dtype_of(kind: Kind) -> DType:
    return next(dtype for found, dtype in TYPES.items() if found.name == kind.type_name)


class _Given(NamedTuple):
    number: int
    first: Array  # elements, or the numbers of rows
    second: Array  # where the result goes, or the rows' elements
    output: int  # of a table: the number of its first one


class _Submitted(NamedTuple):
    """Some gradients of a step, and the execution that brought them."""
    call: Call
    given: List[_Given]
    ended: Callable[[Optional[BaseException]], None]

    @property
    def first(self) -> int:
        return self.given[0].number


class _Agreement(operations.Agreement):
    """That all ranks reduce the same gradients, on engines of one number. Its output is that number: a new one where some rank has none yet."""
    kind = "gradients"
    _BITS = 32

    def __init__(self, name: str, said: Any, number: int, highest: int) -> None:
        super().__init__(name, said)
        self.own_number = 1 + (highest << self._BITS | number)  # 0 is that of a rank that has joined

    def refusal(self, joined: List[int]) -> Optional[str]:
        return None

    def run(self, channel: Channel, numbers: List[int]) -> None:
        theirs = [one - 1 for one in numbers if one > 0]
        own = {one & ((1 << self._BITS) - 1) for one in theirs}
        if len(own) == 1 and own != {0}:
            self.output = own.pop()
        elif len(theirs) < len(numbers):
            raise HorovodInternalError(f"{self}: a rank has joined before the first step with them")
        else:
            self.output = 1 + max(one >> self._BITS for one in theirs)


class Reducer:
    """Of one list of gradients. Its engine, and the group of that, are made in its first step."""

    def __init__(self, process_set: ProcessSet, kinds: Sequence[Kind], op: int, scales: Tuple[float, float], use: str, skips: bool) -> None:
        """`skips`: a step with gradients that are not finite ends without an error."""
        self._set, self._kinds, self._op, self._scales, self._skips = process_set, list(kinds), op, scales, skips
        self._said = {"gradients": [list(one) for one in kinds], "op": operations.OP_NAMES[op], "scales": list(scales), "use": use, "skips": skips}
        self._digest = hashlib.blake2b(canonical(self._said), digest_size=3).hexdigest()
        first = kinds[0]
        self._name = f"{first.name} ({first.elements} {first.type_name}), {len(kinds)} in all, {self._digest}"
        self._number = 0  # of the engine; 0: ranks have not agreed on it
        self._lock = threading.Condition()
        self._engine: Optional[Engine] = None
        self._indices: List[int] = []
        self._failed: Optional[BaseException] = None
        self._step: Dict[int, _Submitted] = {}  # what the engine has and has not ended, by the first number of each
        self._early: Set[int] = set()  # what has ended before its step
        self._missing = len(self._kinds)  # what has not been submitted in this step
        self._last = 0.0  # when something was submitted
        self._world = 0  # how often the process set was shut down
        self._later: Deque[_Submitted] = collections.deque()
        self._thread: Optional[threading.Thread] = None
        self._busy = False  # the thread waits for other ranks
        self._process = os.getpid()
        self._steps = 0
        self.not_finite: Optional[NotFinite] = None  # of the last step
        process_set._optimizers.append(self)

    def name_of(self, number: int) -> str:
        return self._kinds[number].name

    def is_table(self, number: int) -> bool:
        return self._kinds[number].rows > 0

    def row_elements(self, number: int) -> int:
        return self._kinds[number].elements // self._kinds[number].rows

    def bytes_of(self, number: int) -> int:
        return self._kinds[number].elements * _dtype_of(self._kinds[number]).itemsize

    def agree(self) -> None:
        """That all ranks reduce these: when a graph is made, and eagerly each time."""
        global _highest
        if self._set._reduced_ranks() == 1:
            self._number = self._number or 1
            return
        channel, operation = self._set._channel(), _Agreement(self._name, self._said, self._number, _highest)
        if threading.current_thread() is not self._thread:
            channel.run(operation)
        else:  # which is none of the program's: no rank may conclude from it what the program waits for
            channel.start(operation, waited=True)
            operation.finished.wait()
            if operation.error is not None:
                raise operation.error
        self._number = operation.output
        _highest = max(_highest, self._number)

    @property
    def purpose(self) -> Optional[str]:
        """Of the channel whose group the engine is on; None: ranks have not agreed."""
        return f"{self._digest}{self._number % 100:02}" if self._number else None

    # --- what kernels call

    def submit(self, one: _Submitted) -> None:
        with self._lock:
            if self._process != os.getpid():
                raise HorovodInternalError("this process was forked from a rank and is none itself: only the parent may call operations")
            if self._failed is not None:
                raise HorovodInternalError(f"reducing gradients: an earlier step failed: {self._failed}")
            if one.first in self._step or any(other.first == one.first for other in self._later):
                # Nothing tells which of them belongs to which of another rank's.
                raise ValueError(f"gradient '{self._kinds[one.first].name}' was submitted twice: a graph calls one function with a "
                                 "DistributedGradientTape or DistributedOptimizer several times at once; let the calls depend on each other")
            self._last = time.monotonic()
            if self._engine is None or self._later or one.first in self._early:
                self._later.append(one)
            else:
                self._give(one)
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, args=(self._world,), name=f"aiacc gradients {self._digest}", daemon=True)
                self._thread.start()
            self._lock.notify_all()

    def _give(self, one: _Submitted) -> None:
        """To the engine. Under the lock."""
        assert self._engine is not None
        self._step[one.first] = one
        self._missing -= len(one.given)
        try:
            for gradient in one.given:
                submit = self._engine.submit_rows if self._kinds[gradient.number].rows else self._engine.submit
                submit(self._indices[gradient.number], gradient.first.buffer(), gradient.second.buffer(), wants_request=False)
        except Exception as error:  # noqa: BLE001: it is that of the whole step
            self._failed = self._failed or error

    # --- the thread

    def _serve(self, world: int) -> None:
        while True:
            with self._lock:
                self._busy = False
                while self._world == world and not self._has_work():
                    self._lock.wait(_SILENCE_S if self._step else None)
                if self._world != world:
                    return
                engine, self._busy = self._engine, True
            try:
                if self._failed is not None:
                    raise self._failed
                if engine is None:
                    self._plan()
                elif self._missing == 0 or not self._step:
                    self._end_step(engine)
                else:
                    self._end_nodes(engine)
            except BaseException as error:  # noqa: BLE001: it is the calls'
                self._fail(error, world)
                return

    def _has_work(self) -> bool:
        if self._failed is not None or self._missing == 0 or (self._later and (self._engine is None or not self._step)):
            return True
        return bool(self._step) and self._engine is not None and time.monotonic() - self._last >= _SILENCE_S

    def _plan(self) -> None:
        if self._number == 0:  # the graph was made in another world, or may be executed in one (elastic)
            self.agree()
        assert self.purpose is not None
        channel = self._set._channel(self.purpose)
        channel.run(operations.Agreement("gradients", self._said))  # fails where a rank has shut down before its first step
        engine = Engine(channel.group, f"aiacc.tensorflow {self._digest}")
        indices = []
        for one in self._kinds:
            table = {"row_elements": one.elements // one.rows} if one.rows else {}
            indices.append(engine.add(one.name, one.rows or one.elements, _dtype_of(one), operations.OPS[self._op], *self._scales, wire=Wire(one.wire), **table))
        with self._lock:
            self._engine, self._indices = engine, indices
            self._begin_step()

    def _begin_step(self) -> None:
        """Under the lock."""
        self._step, self._early, self._missing = {}, set(), len(self._kinds)
        while self._later:
            self._give(self._later.popleft())

    def _end_step(self, engine: Engine) -> None:
        """All gradients of a step have been submitted; or it is left as it is: a node of the graph has failed, or was not asked for."""
        not_finite = None
        try:
            engine.wait()
        except NotFinite as error:
            not_finite = error
        for one in self._step.values():
            self._take_rows(engine, one)
        with self._lock:
            ended = list(self._step.values())
            self.not_finite = not_finite
            self._steps += 1
            self._begin_step()
            self._busy = False
        failure = HorovodInternalError(str(not_finite)) if not_finite is not None and not self._skips else None
        for one in ended:
            one.ended(failure)

    def _end_nodes(self, engine: Engine) -> None:
        """The rest of the step may never come: TensorFlow tells an error of another node only when these have ended."""
        engine.flush()
        for one in list(self._step.values()):
            if all(engine.wait_for(self._indices[gradient.number], 0) for gradient in one.given):
                self._take_rows(engine, one)
                with self._lock:
                    del self._step[one.first]
                    self._early.add(one.first)
                one.ended(None)
        with self._lock:
            self._last = time.monotonic() - _SILENCE_S / 2  # looks again after half of it

    def _take_rows(self, engine: Engine, one: _Submitted) -> None:
        for gradient in one.given:
            if self._kinds[gradient.number].rows:
                count, rows, values = engine.rows(self._indices[gradient.number])
                numbers, elements = one.call.output(gradient.output, (count,)), one.call.output(gradient.output + 1, (count, self.row_elements(gradient.number)))
                if count:
                    c.memmove(numbers.address, rows, 8 * count)
                    c.memmove(elements.address, values, elements.count * elements.dtype.itemsize)

    def _fail(self, error: BaseException, world: int) -> None:
        # A wrong argument is wrong again after a return to the last commit.
        kept = isinstance(error, (HorovodInternalError, ValueError)) and not isinstance(error, InvalidHandle)
        failure = error if kept else HorovodInternalError(f"reducing gradients: {error}")
        if failure is not error:
            failure.__cause__ = error
        with self._lock:
            if self._world != world:
                return  # close() has ended all
            self._failed = failure
        self._free()  # before the memory of what it has is given back
        with self._lock:
            if self._world != world:
                return
            self._thread, self._busy = None, False
            ended = self._take_all()
        for one in ended:
            one.ended(failure)

    def _take_all(self) -> List[_Submitted]:
        """What has not ended. Under the lock."""
        taken = [*self._step.values(), *self._later]
        self._later.clear()
        self._step, self._early, self._missing = {}, set(), len(self._kinds)
        return taken

    def _free(self) -> None:
        with self._lock:
            engine, self._engine = self._engine, None
        if engine is not None:
            try:
                engine.free()
            except RuntimeError:
                pass  # the world is over already

    # --- what the process set calls

    def join(self) -> None:
        with self._lock:
            plans = self._engine is None and self._number > 0 and self._failed is None
        if plans:  # as the others do in their first step
            self._plan()
        if self._engine is not None:
            self._engine.join()

    def steps(self) -> int:
        return self._steps

    def close(self) -> None:
        """The process set is shut down. After the next init, a step plans anew."""
        self._free()
        with self._lock:
            self._world += 1
            thread, self._thread = (self._thread if self._busy else None), None
            self._lock.notify_all()
        if thread is not None and thread is not threading.current_thread():
            thread.join(_LEAVING_S)  # it finds that the engine is gone
        with self._lock:
            ended = self._take_all()
            self._failed, self._number, self._busy = None, 0, False
        for one in ended:
            one.ended(HorovodInternalError("reducing gradients: the process set was shut down or removed"))
        self._set._optimizers.append(self)


# --- nodes

class _Node:
    """The body of a node with some gradients: a table has two inputs and outputs, others one."""

    def __init__(self, reducer: Reducer, numbers: Sequence[int], eager: bool) -> None:
        self._reducer, self._numbers, self._eager = reducer, numbers, eager

    def __call__(self, call: Call) -> None:
        basics._known()
        given: List[_Given] = []
        place = 0
        for number in self._numbers:
            if self._reducer.is_table(number):
                rows, values = call.input(place), call.input(place + 1)
                if rows.count * self._reducer.row_elements(number) != values.count:
                    raise ValueError(f"gradient '{self._reducer.name_of(number)}' has {rows.count} indices and {values.count} values of rows with {self._reducer.row_elements(number)}")
                given.append(_Given(number, rows, values, place))
                place += 2
            else:
                given.append(_Given(number, *call.pair(place), place))
                place += 1
        if not self._eager:
            self._reducer.submit(_Submitted(call, given, call.finish))
            return
        ended = threading.Event()
        failure: List[Optional[BaseException]] = []

        def end(error: Optional[BaseException]) -> None:
            failure.append(error)
            ended.set()
        self._reducer.submit(_Submitted(call, given, end))
        try:
            while not ended.wait(_LOOK_S):
                pass
        except BaseException as interrupt:  # noqa: BLE001: Ctrl-C; the engine has the memory still
            call.finish(interrupt, is_used=True)
            return
        call.finish(failure[0])


def _agree_eagerly(reducer: Reducer) -> None:
    try:
        reducer.agree()
    except HorovodInternalError as error:
        if not _kernel.is_disagreement(error):
            raise
        raise tf.errors.FailedPreconditionError(None, None, str(error)) from error


def reduce(reducer: Reducer, gradients: Sequence[Any]) -> List[Any]:
    """The reduced gradients: of all of the reducer's kinds, tensors or tf.IndexedSlices."""
    eager = tf.executing_eagerly()
    if eager:
        _agree_eagerly(reducer)
    results: List[Any] = [None] * len(gradients)
    for numbers in [list(range(len(gradients)))] if eager else _nodes(reducer, gradients):
        inputs: List[tf.Tensor] = []
        outputs: List[Tuple[tf.DType, Any]] = []
        for i in numbers:
            one = gradients[i]
            if reducer.is_table(i):
                inputs += [tf.cast(one.indices, tf.int64), tf.reshape(one.values, [-1, reducer.row_elements(i)])]
                outputs += [(tf.int64, [None]), (one.values.dtype, [None, reducer.row_elements(i)])]
            else:
                inputs.append(one)
                outputs.append((one.dtype, one.shape))
        made = iter(_kernel.run(_Node(reducer, numbers, eager), inputs, outputs, "HorovodGradients"))
        for i in numbers:
            if reducer.is_table(i):
                rows, elements, given = next(made), next(made), gradients[i]
                results[i] = tf.IndexedSlices(tf.reshape(elements, [-1, *given.values.shape.as_list()[1:]]), tf.cast(rows, given.indices.dtype),
                                              given.dense_shape)
            else:
                results[i] = next(made)
    return results


def _nodes(reducer: Reducer, gradients: Sequence[Any]) -> List[List[int]]:
    """Backward finishes the last ones first."""
    nodes: List[List[int]] = []
    size = _NODE_BYTES
    for i in reversed(range(len(gradients))):
        if size >= _NODE_BYTES or reducer.is_table(i):
            nodes.append([])
            size = 0
        nodes[-1].append(i)
        size += _NODE_BYTES if reducer.is_table(i) else reducer.bytes_of(i)
    return nodes


def is_finite(reducer: Reducer, after: Sequence[Any]) -> tf.Tensor:
    """Whether the step of these results has no gradient that is not finite."""
    def body(call: Call) -> None:
        result = call.output(0, ())
        c.c_bool.from_address(result.address).value = reducer.not_finite is None
        call.finish()
    with tf.control_dependencies([one.values if isinstance(one, tf.IndexedSlices) else one for one in after]):
        return _kernel.run(body, [], [(tf.bool, [])], "HorovodFinite")[0]
