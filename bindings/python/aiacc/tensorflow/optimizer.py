"""DistributedOptimizer: an optimizer of Keras, or of TensorFlow 1, whose steps use the gradients of all ranks."""
from __future__ import annotations

import functools
import warnings
from typing import Any, Callable, Dict, List, Optional, Sequence, Set

import tensorflow as tf

from aiacc._arguments import count, refused, text
from aiacc._horovod import operations
from aiacc._horovod.operations import Average
from aiacc._horovod.process_sets import ProcessSet, global_process_set
from aiacc.gradients import checks_nan
from aiacc.tensorflow import mpi_ops
from aiacc.tensorflow._kernel import as_it_is
from aiacc.tensorflow.compression import Compression
from aiacc.tensorflow.gradient_tape import How, allreduce_gradients, checked_how, local_variables_of, reference


class _Passes:
    """Gradients of some passes, added up before they are reduced. `average`: their mean."""

    def __init__(self, passes: int, average: bool) -> None:
        self.passes, self.average = passes, average
        self._sums: List[Any] = []
        self._passed: Any = None

    def prepare(self, variables: Sequence[Any]) -> None:
        if self._passed is None:
            with tf.init_scope():
                self._passed = tf.Variable(0, dtype=tf.int64, trainable=False, name="aiacc_passes")
                self._sums = [tf.Variable(tf.zeros(one.shape, one.dtype), trainable=False, name=f"aiacc_sum_{i}") for i, one in enumerate(variables)]

    def clear(self) -> List[Any]:
        """What does it: passes are over, or begin anew."""
        return [] if self._passed is None else [*(one.assign(tf.zeros_like(one)) for one in self._sums), self._passed.assign(0)]

    def then(self, gradients: Sequence[Any], variables: Sequence[Any], step: Callable[[List[Any]], None], otherwise: Callable[[], Any]) -> None:
        """Adds them; with the last of the passes, `step` has the sums."""
        if len(self._sums) != len(variables):
            raise ValueError(f"an optimizer with backward_passes_per_step that began with {len(self._sums)} variables got {len(variables)}")
        added = [one.assign_add(tf.convert_to_tensor(gradient)) for one, gradient in zip(self._sums, gradients) if gradient is not None]
        with tf.control_dependencies(added if not tf.executing_eagerly() else []):
            passed = self._passed.assign_add(1)

        def last() -> tf.Tensor:
            factor = 1.0 / self.passes if self.average else 1.0
            sums = [None if gradient is None else one.read_value() * tf.cast(factor, one.dtype) for one, gradient in zip(self._sums, gradients)]
            # Before the step, after whose error the next passes begin anew.
            with tf.control_dependencies([one for one in sums if one is not None] if not tf.executing_eagerly() else []):
                cleared = self.clear()
            with tf.control_dependencies(cleared if not tf.executing_eagerly() else []):
                step([None if one is None else tf.identity(one) for one in sums])
                return tf.constant(True)

        def another() -> tf.Tensor:
            otherwise()
            return tf.constant(False)
        tf.cond(passed >= self.passes, last, another)


def is_in_graph_of_tensorflow_1() -> bool:
    """Whose nodes run in a session, if somebody asks for them."""
    return not tf.executing_eagerly() and not tf.inside_function()


def _step_of(owner: Any, gradients: Sequence[Any], variables: Sequence[Any], apply: Callable[[List[Any]], Any]) -> Any:
    """Reduces the gradients, and applies them: returns what that does. A step in which one of them is not finite on some rank changes no variable
    on any."""
    checks = checks_nan()
    reduced, reducer = allreduce_gradients(gradients, variables, owner._aiacc_how, owner._aiacc_local, skips=checks)
    if not checks or reducer is None:
        return apply(reduced)
    from aiacc.tensorflow._gradients import is_finite
    finite = is_finite(reducer, [one for one in reduced if one is not None])
    if not tf.executing_eagerly():
        def applied() -> tf.Tensor:
            apply(reduced)
            return tf.constant(True)
        tf.cond(finite, applied, lambda: tf.constant(False))
    elif bool(finite):
        apply(reduced)
    else:
        warnings.warn(f"this step changes no variable on any rank: {reducer.not_finite}", RuntimeWarning, stacklevel=4)
    return None


def _iterations_of(optimizer: Any) -> Any:
    """The variable; with Keras's own accumulation `iterations` is a part of it."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    return getattr(inner, "_iterations", None) if getattr(inner, "_iterations", None) is not None else inner.iterations


class _DistributedOptimizer:
    """What an optimizer of Keras has besides its own."""
    _aiacc_how: How
    _aiacc_local: Set[int]
    _aiacc_passes: _Passes
    _aiacc_wrapped: Any

    def register_local_var(self, variable: Any) -> None:
        """Gradients of this variable stay this rank's."""
        self._aiacc_local.add(reference(variable))

    def _aiacc_apply(self, gradients: Sequence[Any], variables: Sequence[Any], apply: Callable[[List[Any]], Any]) -> Any:
        if is_in_graph_of_tensorflow_1() and (self._aiacc_passes.passes > 1 or checks_nan()):
            raise NotImplementedError("in a graph of TensorFlow 1, an optimizer of Keras in a DistributedOptimizer has one backward pass a step, and "
                                      "no AIACC_NAN_CHECK: take one of tf.compat.v1.train, or execute eagerly")
        if self._aiacc_passes.passes == 1:
            return _step_of(self, gradients, variables, apply)
        self._aiacc_passes.prepare(variables)
        self._aiacc_passes.then(gradients, variables, lambda sums: _step_of(self, sums, variables, apply),
                                lambda: _iterations_of(self).assign_add(1))
        return None


@as_it_is
def _apply(self: Any, grads: Any, trainable_variables: Any = None) -> None:
    """Of Keras 3."""
    gradients = list(grads)
    if not gradients:
        return
    if trainable_variables is None:
        variables = list(self._trainable_variables) if self.built else []
        if len(variables) != len(gradients):  # Keras says what is wrong
            return self._aiacc_wrapped.apply(self, gradients)  # type: ignore[no-any-return]
    else:
        variables = list(trainable_variables)
    if not self.built:
        self.build(variables)
    self._aiacc_apply(gradients, variables, lambda reduced: self._aiacc_wrapped.apply(self, reduced, variables))


@as_it_is
def _apply_gradients(self: Any, grads_and_vars: Any, *arguments: Any, **keywords: Any) -> Any:
    """Of Keras 2."""
    pairs = list(grads_and_vars)
    variables = [variable for _, variable in pairs]
    if hasattr(self, "build") and not getattr(self, "built", True):
        with tf.init_scope():
            self.build(variables)
    done = self._aiacc_apply([gradient for gradient, _ in pairs], variables,
                             lambda reduced: self._aiacc_wrapped.apply_gradients(self, list(zip(reduced, variables)), *arguments, **keywords))
    return self.iterations if done is None else done


def _registered_names() -> Any:
    """Keras's, of classes that programs have registered."""
    try:
        from keras.src.saving import object_registration
        return object_registration.GLOBAL_CUSTOM_NAMES
    except (ImportError, AttributeError):
        return {}


def _of_keras(optimizer: Any, how: How, passes: _Passes, name: Optional[str]) -> Any:
    wrapped = type(optimizer)
    methods = {key: value for key, value in _DistributedOptimizer.__dict__.items() if not key.startswith("__")}
    hook: Dict[str, Any] = {"apply_gradients": _apply_gradients}
    if hasattr(wrapped, "apply"):
        hook = {"apply": _apply, "variables": property(lambda self: _Variables(wrapped.variables.fget(self)))}
    cls: Any = type(wrapped.__name__, (wrapped,), {**methods, **hook, "_aiacc_wrapped": wrapped, "__module__": wrapped.__module__, "__doc__": wrapped.__doc__})
    registered = _registered_names()
    if wrapped in registered:
        registered[cls] = registered[wrapped]  # so that a saved model names the class that was wrapped

    def again(config: Any, custom_objects: Any = None) -> Any:
        """One like it, as Keras copies optimizers."""
        more = (custom_objects,) if custom_objects is not None else ()
        return _of_keras(wrapped.from_config(config, *more), how, _Passes(passes.passes, passes.average), None)
    cls.from_config = staticmethod(again)
    made = object.__new__(cls)
    made.__dict__.update(optimizer.__dict__)
    for key, value in (("_aiacc_how", how), ("_aiacc_passes", passes), ("_aiacc_local", set())):
        made.__dict__[key] = value  # which Keras does not track
    if name is not None and "name" in made.__dict__:
        made.__dict__["name"] = name
    return made


class _DistributedV1Optimizer(tf.compat.v1.train.Optimizer):  # type: ignore[misc]
    """An optimizer of TensorFlow 1: compute_gradients has the gradients of all ranks."""

    def __init__(self, optimizer: Any, name: Optional[str], use_locking: bool, how: How) -> None:
        super().__init__(name=name or f"Distributed{type(optimizer).__name__}", use_locking=use_locking)
        self._optimizer, self._aiacc_how = optimizer, how
        self._aiacc_local: Set[int] = set()

    def register_local_var(self, variable: Any) -> None:
        self._aiacc_local.add(reference(variable))

    @as_it_is
    def compute_gradients(self, *arguments: Any, **keywords: Any) -> Any:
        pairs = self._optimizer.compute_gradients(*arguments, **keywords)
        variables = [variable for _, variable in pairs]
        reduced, _ = allreduce_gradients([gradient for gradient, _ in pairs], variables, self._aiacc_how, self._aiacc_local)
        return list(zip(reduced, variables))

    def apply_gradients(self, *arguments: Any, **keywords: Any) -> Any:
        return self._optimizer.apply_gradients(*arguments, **keywords)

    def get_slot(self, *arguments: Any, **keywords: Any) -> Any:
        return self._optimizer.get_slot(*arguments, **keywords)

    def get_slot_names(self, *arguments: Any, **keywords: Any) -> Any:
        return self._optimizer.get_slot_names(*arguments, **keywords)

    def variables(self, *arguments: Any, **keywords: Any) -> Any:
        return self._optimizer.variables(*arguments, **keywords)


class _Variables(List[Any]):
    """Horovod's scripts call `optimizer.variables()`, as Keras 2 has it, where Keras 3 has a list."""

    def __call__(self) -> _Variables:
        return self


def _decide_together() -> None:
    """Keras's LossScaleOptimizer leaves out a step with gradients that are not finite. Around a DistributedOptimizer it sees this rank's alone: it
    asks the other ranks, too."""
    scaled = getattr(getattr(getattr(tf, "keras", None), "mixed_precision", None), "LossScaleOptimizer", None)
    check = getattr(scaled, "check_finite", None)  # of Keras 3
    if scaled is None or check is None:
        return

    @functools.wraps(check)
    @as_it_is
    def check_finite(self: Any, grads: Any) -> Any:
        finite = check(self, grads)
        how = getattr(self.inner_optimizer, "_aiacc_how", None)
        if how is None or how.process_set._reduced_ranks() == 1:
            return finite
        known = tf.cast(finite, tf.int32)
        return mpi_ops._reduced([known], None, operations.Min, 1.0, 1.0, how.process_set)[0] > 0
    scaled.check_finite = check_finite


_decide_together()


def DistributedOptimizer(optimizer: Any, name: Optional[str] = None, use_locking: bool = False, device_dense: str = "", device_sparse: str = "",
                         compression: Any = Compression.none, sparse_as_dense: bool = False, backward_passes_per_step: int = 1, op: int = Average,
                         gradient_predivide_factor: float = 1.0, average_aggregated_gradients: bool = False, num_groups: int = 0, groups: Any = None,
                         process_set: ProcessSet = global_process_set, scale_local_gradients: bool = True) -> Any:
    """The optimizer, whose steps use the gradients of all ranks. It has the variables of the given one, and is an instance of its class too.

    `backward_passes_per_step`: gradients of so many steps are added up before they are reduced; with `average_aggregated_gradients` their mean
    counts. Gradients of tf.IndexedSlices travel as rows, or dense if that moves fewer bytes; with `sparse_as_dense` they are made dense.
    `register_local_var` excludes variables. Devices are accepted: what travels does so from the host's memory.
    """
    how = checked_how(compression, sparse_as_dense, op, gradient_predivide_factor, num_groups, groups, process_set, scale_local_gradients)
    passes = count("backward_passes_per_step", backward_passes_per_step)
    if passes <= 0:
        raise ValueError(f"backward_passes_per_step is {passes}; it is 1 or more")
    name = text("name", name)
    if isinstance(optimizer, tf.compat.v1.train.Optimizer):
        if passes > 1:
            raise ValueError("backward_passes_per_step above 1 needs an optimizer of Keras")
        return _DistributedV1Optimizer(optimizer, name, use_locking, how)
    if not hasattr(optimizer, "apply_gradients") or not hasattr(optimizer, "get_config"):
        raise refused("optimizer", optimizer, "an optimizer of Keras, or one of tf.compat.v1.train")
    if hasattr(type(optimizer), "_aiacc_wrapped"):
        raise ValueError("this optimizer is a DistributedOptimizer already")
    return _of_keras(optimizer, how, _Passes(passes, average_aggregated_gradients), name)


def PartialDistributedOptimizer(optimizer: Any, *arguments: Any, local_layers: Any = None, **keywords: Any) -> Any:
    """As DistributedOptimizer; gradients of the variables of `local_layers` stay this rank's."""
    variables = local_variables_of(local_layers)
    made = DistributedOptimizer(optimizer, *arguments, **keywords)
    for one in variables:
        made.register_local_var(one)
    return made
