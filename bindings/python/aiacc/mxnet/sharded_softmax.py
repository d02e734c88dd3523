"""A classifier whose classes are split over the ranks: the softmax cross entropy of ArcFace, CosFace and Partial FC."""
from __future__ import annotations

from typing import Any, List, Optional

import mxnet as mx
import numpy
from mxnet import autograd
from mxnet.ndarray import NDArray

from aiacc import softmax
from aiacc._arguments import number, whole
from aiacc._horovod.process_sets import ProcessSet, checked_set, global_process_set
from aiacc.buffers import Op
from aiacc.groups import Group
from aiacc.mxnet import tensors
from aiacc.mxnet.sync_batch_norm import called

_MARGINS = {None: softmax.Margin.NONE, "arc": softmax.Margin.ARC, "cos": softmax.Margin.COS}
_WHAT = "ShardedSoftmax"


class ShardedSoftmax(mx.gluon.Block):
    """`block(features, labels)` is the mean cross entropy over the batches of all ranks, which may differ in size.

    `weight` has the rows of this rank's classes, `first_class` and the `classes` - 1 that follow; its gradient is complete and is not
    reduced over ranks: a gluon.Trainer of its own, with kvstore=None, updates it by step(1). With a margin ("arc", "cos"), rows of
    features and weight are normalised; `scale` multiplies their cosines. `sample_rate` below 1 uses the labels' classes and others at
    random up to that share of a rank's classes in each step (Partial FC); `seed` is equal on all ranks. With `only_used` the gradient is
    row-sparse then, with rows of the classes that the step used, and SGD and Adam (lazy_update) leave the others as they are; without,
    momentum and weight decay move them too. `averaged`: the features'
    gradient is multiplied by the number of ranks, for a model before it whose gradients are averaged over the ranks, as
    DistributedTrainer's step(1) does; a kvstore sums them, and wants averaged=False.
    """

    def __init__(self, in_units: int, num_classes: int, margin: Optional[str] = None, margin_size: float = 0.5, scale: float = 1.0,
                 sample_rate: float = 1.0, seed: int = 0, averaged: bool = True, weight_initializer: Any = None, dtype: Any = "float32",
                 only_used: bool = False, process_set: ProcessSet = global_process_set, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not isinstance(margin, (str, type(None))) or margin not in _MARGINS:
            raise ValueError(f"margin is {margin!r}: it is None, 'arc' or 'cos'")
        in_units, num_classes, seed = whole("in_units", in_units), whole("num_classes", num_classes), whole("seed", seed)
        margin_size, scale = number("margin_size", margin_size), number("scale", scale)
        if not 0 < number("sample_rate", sample_rate) <= 1:
            raise ValueError(f"sample_rate is {sample_rate}: it is above 0 and at most 1")
        if only_used and sample_rate == 1:
            raise ValueError("only_used with sample_rate 1: each step uses all classes")
        if num_classes < checked_set(process_set).size():
            raise ValueError(f"num_classes is {num_classes} for {process_set.size()} ranks: arrays of MXNet are not empty, so each has a class")
        self._in_units, self._num_classes, self._margin, self._margin_size, self._scale = in_units, num_classes, margin, margin_size, scale
        self._sample_rate, self._seed, self._averaged, self._steps = sample_rate, seed, averaged, 0
        # Backward runs in a thread of MXNet, beside what the program calls: the two have an order of their own.
        self._group, self._group_of_backward = (process_set._channel(purpose).group for purpose in ("softmax", "softgrad"))
        self.first_class, self.classes = softmax.split(num_classes, self._group)
        self.weight = self.params.get("weight", shape=(self.classes, in_units), dtype=dtype, init=weight_initializer or mx.init.Normal(0.01),
                                      grad_stype="row_sparse" if only_used else "default")
        self._only_used = only_used

    def forward(self, features: NDArray, labels: NDArray) -> NDArray:
        if len(features.shape) != 2 or features.shape[1] != self._in_units or labels.shape != features.shape[:1]:
            raise ValueError(f"features are {features.shape} and labels {labels.shape}: give N x {self._in_units} and N")
        group = self._group
        counts = _gathered(group, mx.nd.array([features.shape[0]], dtype="int64"), [1] * group.size).asnumpy().tolist()
        every_label = tensors.settle(_gathered(group, labels.astype("int64"), counts))
        whole = _Gather(group, self._group_of_backward, counts, float(group.size) if self._averaged else 1.0)(features)
        weight, ids = self.weight.data(), None
        if self._sample_rate < 1:
            ids = self._sampled(every_label)
            columns = mx.nd.array(ids - self.first_class, dtype="int64")
            weight = mx.nd.Embedding(columns, weight, self.classes, self._in_units, dtype=weight.dtype, sparse_grad=True) if self._only_used \
                else mx.nd.take(weight, columns)
        if self._margin is not None:
            whole, weight = mx.nd.L2Normalization(whole, eps=1e-24), mx.nd.L2Normalization(weight, eps=1e-24)
        logits = mx.nd.dot(whole.astype(weight.dtype), weight, transpose_b=True)
        return _CrossEntropy(self, every_label, ids)(logits)

    def _sampled(self, every_label: NDArray) -> numpy.ndarray:
        self._steps += 1
        ids = numpy.empty(self.classes, dtype=numpy.int64)
        wanted = max(1, int(self._sample_rate * self.classes))
        found = softmax.sample(self.first_class, self.classes, tensors.address(every_label), every_label.shape[0], wanted,
                               self._seed + (self._steps << 32), ids.ctypes.data)
        return ids[:found].copy()

    def __repr__(self) -> str:
        return f"ShardedSoftmax({self._in_units} -> {self._num_classes}, margin={self._margin!r}, scale={self._scale})"


def _gathered(group: Group, given: NDArray, counts: List[int]) -> NDArray:
    """The rows of all ranks; `counts` are how many each has."""
    tensors.check(given, "an input of ShardedSoftmax")
    result = tensors.rows_like(given, sum(counts))
    row = tensors.count(given) // given.shape[0]
    called(_WHAT, group.allgather, tensors.buffer_of(tensors.settle(given)), tensors.buffer_of(result), counts=[count * row for count in counts])
    return result


class _Gather(autograd.Function):
    """The features of all ranks. Backward sums their gradients and brings them to the rows' owners."""

    def __init__(self, group: Group, group_of_backward: Group, counts: List[int], factor: float) -> None:
        super().__init__()
        self._group, self._group_of_backward, self._counts, self._factor = group, group_of_backward, counts, factor

    def forward(self, features: NDArray) -> NDArray:
        return _gathered(self._group, features, self._counts)

    def backward(self, gradient: NDArray) -> NDArray:
        group = self._group_of_backward
        own = tensors.rows_like(gradient, self._counts[group.rank])
        row = tensors.count(gradient) // gradient.shape[0]
        called(_WHAT, group.reduce_scatter, tensors.buffer_of(tensors.settle(gradient)), tensors.buffer_of(own), Op.SUM,
               counts=[count * row for count in self._counts], prescale=self._factor)
        return own


class _CrossEntropy(autograd.Function):
    def __init__(self, block: ShardedSoftmax, labels: NDArray, ids: Optional[numpy.ndarray]) -> None:
        super().__init__()
        self._block, self._labels, self._ids = block, labels, ids

    def forward(self, logits: NDArray) -> NDArray:
        block = self._block
        kind = "float64" if tensors.type_name(logits) == "float64" else "float32"
        gradient = tensors.settle(logits.astype(kind, copy=True))
        rows, classes = gradient.shape
        losses = numpy.empty(rows)
        called(_WHAT, softmax.loss, block._group, rows, block._num_classes, classes, block.first_class, tensors.element_type(gradient),
               tensors.address(gradient), tensors.address(self._labels), losses.ctypes.data, None if self._ids is None else self._ids.ctypes.data,
               _MARGINS[block._margin], block._margin_size, block._scale)
        self.save_for_backward(gradient.astype(logits.dtype, copy=False))
        return mx.nd.array([losses.mean()], dtype=kind)

    def backward(self, gradient: NDArray) -> NDArray:
        own, = self.saved_tensors
        return mx.nd.broadcast_mul(own, gradient.astype(own.dtype).reshape((1, 1)))
