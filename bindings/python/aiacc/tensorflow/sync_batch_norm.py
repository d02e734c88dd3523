"""Batch normalisation over the batches of all ranks."""
from __future__ import annotations

from typing import Any, Tuple

import tensorflow as tf

from aiacc._horovod import basics
from aiacc._horovod.operations import Sum
from aiacc._horovod.process_sets import ProcessSet, global_process_set
from aiacc.tensorflow import mpi_ops
from aiacc.tensorflow._kernel import as_it_is


@tf.keras.utils.register_keras_serializable(package="aiacc")  # type: ignore[misc]
class SyncBatchNormalization(tf.keras.layers.BatchNormalization):  # type: ignore[misc]
    """Keras's BatchNormalization with the statistics of the joined batch, in training and with more ranks than one. Ranks may have batches of
    different sizes. One allgather forward and one allreduce backward; a mean far from 0 costs no digits."""

    def __init__(self, fused: bool = False, **keywords: Any) -> None:
        if fused in (True, None):
            raise ValueError("SyncBatchNormalization does not support fused=True.")
        if not _IS_KERAS_3:
            keywords["fused"] = False
        super().__init__(**keywords)

    @as_it_is
    def _moments(self, inputs: Any, *arguments: Any, **keywords: Any) -> Tuple[Any, Any]:
        """Of Keras 3: (inputs, mask), of Keras 2: (inputs, reduction_axes, keep_dims, mask=None)."""
        if not basics.is_initialized() or basics.size() == 1:
            return super()._moments(inputs, *arguments, **keywords)  # type: ignore[no-any-return]
        names = ("mask",) if _IS_KERAS_3 else ("reduction_axes", "keep_dims", "mask")
        given = {**dict(zip(names, arguments)), **keywords}
        mask = given.get("mask")
        axis = self.axis[0] if isinstance(self.axis, (list, tuple)) else self.axis
        axis = axis % len(inputs.shape)
        over = [i for i in range(len(inputs.shape)) if i != axis]
        shape = [1] * len(inputs.shape)
        shape[axis] = inputs.shape[axis]
        values = tf.cast(inputs, tf.float64 if inputs.dtype == tf.float64 else tf.float32)
        if mask is None:
            weights = tf.ones([], values.dtype)
            own_count = tf.cast(tf.size(values) // tf.shape(values)[axis], values.dtype)
        else:
            for each in range(len(inputs.shape) - len(mask.shape)):
                mask = mask[..., tf.newaxis]
            weights = tf.broadcast_to(tf.cast(mask, values.dtype), tf.shape(values))
            own_count = tf.reduce_sum(weights) / tf.cast(tf.shape(values)[axis], values.dtype)
        mean = tf.reduce_sum(values * weights, over) / tf.maximum(own_count, tf.ones([], values.dtype))
        squares = tf.reduce_sum(tf.math.squared_difference(values, tf.reshape(mean, shape)) * weights, over)
        moments = [tf.cast(one, inputs.dtype) for one in mpi_ops._differentiable(_merged, [own_count, mean, squares])]
        return tuple(tf.reshape(one, shape) if given.get("keep_dims") else one for one in moments)  # type: ignore[return-value]


@tf.custom_gradient  # type: ignore[misc]
def _for_all(gathered: tf.Tensor) -> Any:
    """Its gradient is the sum of all ranks', where that of an allgather is their average, as with Horovod."""
    return tf.identity(gathered), lambda upstream: upstream * tf.cast(_SET.size(), upstream.dtype)


def _merged(count: tf.Tensor, mean: tf.Tensor, squares: tf.Tensor) -> Any:
    """(mean, variance) of all ranks' elements, and the function of their gradients, from each rank's number of elements, mean, and sum of
    squared distances from that (Chan et al., "Updating formulae and a pairwise algorithm for computing sample variances", 1979)."""
    channels = mean.shape[0]
    gathered = _for_all(*mpi_ops._allgather([tf.concat([[count], mean, squares], 0)[tf.newaxis]], None, _SET))
    total = tf.maximum(tf.reduce_sum(gathered[:, 0]), tf.ones([], mean.dtype))
    shares, means = gathered[:, :1] / total, gathered[:, 1:1 + channels]
    joint = tf.reduce_sum(shares * means, 0)
    variance = tf.reduce_sum(gathered[:, 1 + channels:], 0) / total + tf.reduce_sum(shares * tf.math.squared_difference(means, joint), 0)

    def gradient(of_mean: tf.Tensor, of_variance: tf.Tensor) -> Tuple[tf.Tensor, ...]:
        sums, = mpi_ops._reduced([tf.stack([of_mean, of_variance]) / total], None, Sum, 1.0, 1.0, _SET)
        return tf.zeros_like(count), count * (sums[0] + 2 * sums[1] * (mean - joint)), sums[1]
    return (joint, variance), gradient


_SET: ProcessSet = global_process_set
_IS_KERAS_3 = hasattr(tf.keras, "ops")
