"""Gradients of all ranks: what DistributedGradientTape and DistributedOptimizer share, and the tape."""
from __future__ import annotations

import collections
import os
import re
from typing import AbstractSet, Any, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

import tensorflow as tf

from aiacc._arguments import count, number, several
from aiacc._horovod import basics
from aiacc._horovod.operations import Average, Sum, checked_op, OP_NAMES
from aiacc._horovod.process_sets import ProcessSet, checked_set, global_process_set
from aiacc.gradients import Wire
from aiacc.tensorflow import _gradients, tensors
from aiacc.tensorflow._gradients import Kind, Reducer
from aiacc.tensorflow._kernel import as_it_is, path_of
from aiacc.tensorflow.compression import Compression
from aiacc.tensorflow.compression import checked as checked_compression
from aiacc.tensorflow.functions import allreduce

_reducers: Dict[Any, Reducer] = {}


class How(NamedTuple):
    """How gradients are reduced."""
    compression: Any
    sparse_as_dense: bool
    op: int
    predivide: float
    process_set: ProcessSet
    scale_local: bool

    @property
    def scales(self) -> Tuple[float, float]:
        return 1.0 / self.predivide, self.predivide


def checked_how(compression: Any, sparse_as_dense: bool, op: int, gradient_predivide_factor: float, num_groups: int, groups: Any, process_set: ProcessSet,
                scale_local_gradients: bool) -> How:
    """Of the arguments of Horovod's functions. The engine forms groups of neighbours by itself."""
    checked_compression(compression)
    if checked_op(op) not in (Average, Sum):
        raise ValueError(f"op is {OP_NAMES[op]}: gradients are reduced by Average or Sum")
    predivide = number("gradient_predivide_factor", gradient_predivide_factor)
    if predivide <= 0:
        raise ValueError(f"gradient_predivide_factor is {predivide}: it is above 0")
    if op != Average and predivide != 1.0:
        raise ValueError("gradient_predivide_factor is a part of the division of op=Average: leave it out with another op")
    if count("num_groups", num_groups) < 0:
        raise ValueError(f"num_groups is {num_groups}: it is a number of groups, from 0")
    if groups is not None and not isinstance(groups, int):
        several("groups", groups, "a number of groups, or a list of lists of variables")
    return How(compression, bool(sparse_as_dense), op, predivide, checked_set(process_set), bool(scale_local_gradients))


def name_of(variable: Any) -> str:
    """The last part, as "kernel". The others, and numbers that tell equal names apart, depend on what else a rank has made, or loaded from a file."""
    whole = str(getattr(variable, "path", None) or getattr(variable, "name", None) or "gradient")
    return re.sub(r"(_\d+)?(:\d+)?$", "", whole.split("/")[-1]) or "gradient"


def reference(variable: Any) -> int:
    """What tells variables apart: the same for one of Keras and TensorFlow's in it."""
    return id(getattr(variable, "_value", variable))


def _kind(place: int, variable: Any, given: Any, how: How) -> Optional[Kind]:
    """None: the engine wants a type that it has, and a size that is always the same, as that of a tensor may not be."""
    if not hasattr(variable, "assign"):
        return None
    is_rows = isinstance(given, tf.IndexedSlices)
    dtype = given.values.dtype if is_rows else given.dtype
    wire = getattr(how.compression, "wire", Wire.DEFAULT) if dtype == tf.float32 and not is_rows else Wire.DEFAULT
    known = tf.TensorShape(variable.shape) if is_rows or not given.shape.is_fully_defined() else given.shape
    if not known.is_fully_defined() or dtype not in tensors.TYPES:
        return None
    elements = known.num_elements()
    rows = known.as_list()[0] if is_rows else 0
    return None if is_rows and not elements else Kind(f"{place}.{name_of(variable)}", dtype.name, elements, rows, int(wire))


def allreduce_gradients(gradients: Sequence[Any], variables: Sequence[Any], how: How, local: AbstractSet[int] = frozenset(),
                        skips: bool = False) -> Tuple[List[Any], Optional[Reducer]]:
    """The gradients of all ranks, and what reduced them. None stays None, on all ranks. `local`: variables whose gradients stay this rank's.
    `skips`: a step with gradients that are not finite ends without an error."""
    basics._known()
    ranks = how.process_set._reduced_ranks()
    results = list(gradients)
    places: List[int] = []
    for i, (gradient, variable) in enumerate(zip(gradients, variables)):
        if gradient is None:
            continue
        if reference(variable) in local:
            results[i] = _scaled(gradient, 1.0 / ranks) if how.scale_local and ranks > 1 else gradient
        else:
            places.append(i)
            results[i] = _dense(gradient) if how.sparse_as_dense else gradient
    if not places or (ranks == 1 and not _may_grow()) or not how.process_set.included():
        return results, None
    given = [one if isinstance(one, tf.IndexedSlices) else tf.convert_to_tensor(one) for one in (results[i] for i in places)]
    contexts: List[Any] = [None] * len(given)
    if not hasattr(how.compression, "wire"):
        pairs = [how.compression.compress(_dense(one)) for one in given]
        given, contexts = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    kinds = [_kind(place, variables[place], one, how) for place, one in zip(places, given)]
    reduced: List[Any] = [one if kind is not None else _by_itself(place, one, how) for place, one, kind in zip(places, given, kinds)]
    known = [i for i, kind in enumerate(kinds) if kind is not None]
    reducer: Optional[Reducer] = None
    if known:
        reducer = _reducer([kind for kind in kinds if kind is not None], how, skips)
        for i, one in zip(known, _gradients.reduce(reducer, [given[i] for i in known])):
            reduced[i] = one
    if not hasattr(how.compression, "wire"):
        reduced = [how.compression.decompress(one, context) for one, context in zip(reduced, contexts)]
    for place, one in zip(places, reduced):
        results[place] = one
    return results, reducer


def _by_itself(place: int, gradient: Any, how: How) -> Any:
    """The gradient of a tensor, as of a batch."""
    scales = {} if isinstance(gradient, tf.IndexedSlices) else dict(zip(("prescale_factor", "postscale_factor"), how.scales))
    return allreduce(gradient, op=how.op, name=None if tf.executing_eagerly() else f"gradient_{place}", process_set=how.process_set, **scales)


def _dense(gradient: Any) -> tf.Tensor:
    return tf.convert_to_tensor(gradient)


def _scaled(gradient: Any, factor: float) -> Any:
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(gradient.values * tf.cast(factor, gradient.values.dtype), gradient.indices, gradient.dense_shape)
    return gradient * tf.cast(factor, gradient.dtype)


def _may_grow() -> bool:
    """Whether a graph that one rank makes may be executed by several (elastic)."""
    return "AIACC_MAX_SIZE" in os.environ or "AIACC_MIN_SIZE" in os.environ


def _reducer(kinds: List[Kind], how: How, skips: bool) -> Reducer:
    """One that has reduced such a list before, also in another trace of the same function, which not every rank may need; but each use in one graph,
    which may execute them at the same time, has its own."""
    use, eager = 0, tf.executing_eagerly()
    key: Tuple[Any, ...] = (how.process_set, tuple(kinds), how.op, how.scales, skips)
    if not eager:
        graph = tf.compat.v1.get_default_graph()
        key = (*key, path_of(graph))
        if not hasattr(graph, "_aiacc_uses"):
            graph._aiacc_uses = collections.Counter()
        graph._aiacc_uses[key] += 1
        use = graph._aiacc_uses[key]
    if (key, use) not in _reducers:
        made = Reducer(how.process_set, kinds, how.op, how.scales, f"{use} {key[-1]}" if use else "", skips)
        if not eager and not _may_grow():  # ranks that come later make the graph while the others execute it
            made.agree()
        _reducers[key, use] = made
    return _reducers[key, use]


class _DistributedGradientTape:
    """What a tape has besides its own. The class is made for one tape: several may have the dict of one."""
    _aiacc_how: How
    _aiacc_local: Set[int]
    _aiacc_wrapped: Any

    def register_local_source(self, source: Any) -> None:
        """Gradients of this variable stay this rank's."""
        self._aiacc_local.add(reference(source))

    @as_it_is
    def gradient(self, target: Any, sources: Any, *arguments: Any, **keywords: Any) -> Any:
        keywords.pop("use_generic_names", None)
        found = self._aiacc_wrapped.gradient(self, target, sources, *arguments, **keywords)
        flat = tf.nest.flatten(found, expand_composites=False)
        reduced, _ = allreduce_gradients(flat, tf.nest.flatten(sources), self._aiacc_how, self._aiacc_local)
        return tf.nest.pack_sequence_as(found, reduced, expand_composites=False)

    @as_it_is
    def get_local_and_global_gradients(self, target: Any, sources: Any, *arguments: Any, **keywords: Any) -> Tuple[List[Any], List[Any]]:
        """Pairs of a source and its gradient: of those that stay this rank's, and of the others."""
        pairs = list(zip(sources, self.gradient(target, sources, *arguments, **keywords)))
        local = [reference(source) in self._aiacc_local for source, _ in pairs]
        return [pair for pair, its in zip(pairs, local) if its], [pair for pair, its in zip(pairs, local) if not its]


@as_it_is
def DistributedGradientTape(gradtape: tf.GradientTape, device_dense: str = "", device_sparse: str = "", compression: Any = Compression.none,
                            sparse_as_dense: bool = False, op: int = Average, gradient_predivide_factor: float = 1.0, num_groups: int = 0,
                            groups: Any = None, process_set: ProcessSet = global_process_set, scale_local_gradients: bool = True) -> Any:
    """The tape, whose gradient() has the gradients of all ranks. It records what the given one does. Gradients of tf.IndexedSlices travel as
    rows, or dense if that moves fewer bytes, and stay so. Devices are accepted: what travels does so from the host's memory."""
    if not isinstance(gradtape, tf.GradientTape):
        raise ValueError(f"gradtape is of {type(gradtape).__name__}, not a tf.GradientTape")
    how = checked_how(compression, sparse_as_dense, op, gradient_predivide_factor, num_groups, groups, process_set, scale_local_gradients)
    wrapped = type(gradtape)
    methods = {key: value for key, value in _DistributedGradientTape.__dict__.items() if not key.startswith("__")}
    cls = type(wrapped.__name__, (wrapped,), {**methods, "_aiacc_wrapped": wrapped, "_aiacc_how": how, "_aiacc_local": set()})
    made: Any = object.__new__(cls)
    made.__dict__ = gradtape.__dict__  # one tape under two names
    return made


def local_variables_of(layers: Any) -> List[Any]:
    found = [] if layers is None else list(layers) if isinstance(layers, (list, tuple, set)) else [layers]
    if any(not hasattr(one, "trainable_weights") for one in found):
        raise ValueError("local_layers is a layer of Keras, or a list of them")
    return [variable for one in found for variable in one.trainable_weights]


@as_it_is
def PartialDistributedGradientTape(gradtape: tf.GradientTape, device_dense: str = "", device_sparse: str = "", compression: Any = Compression.none,
                                   sparse_as_dense: bool = False, op: int = Average, gradient_predivide_factor: float = 1.0, num_groups: int = 0,
                                   groups: Any = None, process_set: ProcessSet = global_process_set, local_layers: Any = None,
                                   scale_local_gradients: bool = True) -> Any:
    """As DistributedGradientTape; gradients of the variables of `local_layers` stay this rank's."""
    variables = local_variables_of(local_layers)
    made = DistributedGradientTape(gradtape, device_dense, device_sparse, compression, sparse_as_dense, op, gradient_predivide_factor, num_groups, groups,
                                   process_set, scale_local_gradients)
    for one in variables:
        made.register_local_source(one)
    return made


__all__ = ["DistributedGradientTape", "PartialDistributedGradientTape"]
