"""Batch normalisation over the batches of all ranks: an operator for symbols and arrays, and its gluon block."""
from __future__ import annotations

from typing import Any, List, Optional

import mxnet as mx
import numpy

from aiacc import syncbn
from aiacc._horovod import basics
from aiacc._horovod import process_sets as _sets
from aiacc._horovod.exceptions import HorovodInternalError
from aiacc._horovod.process_sets import ProcessSet, checked_set, global_process_set
from aiacc.mxnet import tensors

OPERATOR = "aiacc_sync_batch_norm"
_ELEMENTS = ("float32", "float64", "float16", "bfloat16")


def called(what: str, function: Any, *arguments: Any, **keywords: Any) -> Any:
    try:
        return function(*arguments, **keywords)
    except ValueError:
        raise  # of what is wrong on all ranks alike: nothing is over
    except RuntimeError as failure:
        raise HorovodInternalError(f"{what}: {failure}") from failure


def _flag(text: Any) -> bool:
    return str(text).lower() in ("true", "1")


def _place(given: Any) -> int:
    return tensors.address(given)


class _Target:
    """Where the operator's result goes: the array itself, or a copy that is added to it."""

    def __init__(self, request: str, array: Any) -> None:
        self._request, self._array = request, array
        self._made = array if request in ("write", "inplace") else None if request == "null" else tensors.like(array)

    def address(self) -> Optional[int]:
        return None if self._made is None else _place(self._made)

    def finish(self) -> None:
        if self._request == "add":
            self._array[:] += self._made


class _Operator(mx.operator.CustomOp):
    """aiacc_syncbn_forward and _backward: one exchange of (count, mean, variance) forward, and one of two sums of each channel backward. A
    layer's calls are in one order on all ranks, since each needs the one before; layers do not wait for each other."""

    def __init__(self, how: Any, norms: Any) -> None:
        super().__init__()
        self._how, self._norms = how, norms
        self._saved: Any = None

    def _batch(self, x: Any) -> Any:
        last = self._how.axis(x.shape) != 1
        channels = x.shape[-1] if last else x.shape[1]
        positions = tensors.count(x) // (x.shape[0] * channels)
        return syncbn.batch(x.shape[0], channels, positions, tensors.element_type(x), last)

    def forward(self, is_train: bool, req: Any, in_data: Any, out_data: Any, aux: Any) -> None:
        x, gamma, beta = in_data
        how = self._how
        if not is_train or how.use_global_stats:
            self._saved = None
            self.assign(out_data[0], req[0], self._evaluated(x, gamma, beta, aux))
            return
        for array in (*in_data, *aux):
            array.wait_to_read()
        result = _Target("write" if req[0] == "null" else req[0], out_data[0])
        saved = numpy.empty(2 * tensors.count(gamma) + 1)
        called("SyncBatchNorm", self._norms.forward, self._batch(x), _place(x), result.address(), saved.ctypes.data,
               None if how.fix_gamma else _place(gamma), _place(beta), _place(aux[0]), _place(aux[1]), how.eps, how.momentum, syncbn.Convention.MXNET)
        result.finish()
        self._saved = saved

    def _evaluated(self, x: Any, gamma: Any, beta: Any, aux: Any) -> Any:
        """Not by mx.nd.BatchNorm: oneDNN's dies of the arrays that MXNet gives an operator in Python."""
        form, factor = self._factor(x, gamma, aux)
        shift = beta.reshape(form) - aux[0].reshape(form) * factor
        return mx.nd.broadcast_add(mx.nd.broadcast_mul(x, factor.astype(x.dtype)), shift.astype(x.dtype))

    def _factor(self, x: Any, gamma: Any, aux: Any) -> Any:
        """(shape in which channels meet x, gamma / deviation in it)"""
        form = [1] * len(x.shape)
        form[self._how.axis(x.shape)] = -1
        inverse = (1.0 / mx.nd.sqrt(aux[1] + self._how.eps)).reshape(form)
        return form, inverse if self._how.fix_gamma else inverse * gamma.reshape(form)

    def backward(self, req: Any, out_grad: Any, in_data: Any, out_data: Any, in_grad: Any, aux: Any) -> None:
        x, gamma, _ = in_data
        if self._saved is None:
            self._backward_of_evaluation(req, out_grad[0], x, gamma, in_grad, aux)
            return
        for array in (*in_data, *out_grad):
            array.wait_to_read()
        if self._how.fix_gamma:
            self.assign(in_grad[1], req[1], mx.nd.zeros_like(gamma))
        targets = [_Target("null" if i == 1 and self._how.fix_gamma else how, array) for i, (how, array) in enumerate(zip(req, in_grad))]
        called("SyncBatchNorm", self._norms.backward, self._batch(x), None if self._how.fix_gamma else _place(gamma), self._saved.ctypes.data, _place(x),
               _place(out_grad[0]), *(one.address() for one in targets))
        for one in targets:
            one.finish()

    def _backward_of_evaluation(self, req: Any, dy: Any, x: Any, gamma: Any, in_grad: Any, aux: Any) -> None:
        axis = self._how.axis(x.shape)
        others = tuple(i for i in range(len(x.shape)) if i != axis)
        form, factor = self._factor(x, gamma, aux)
        inverse = (1.0 / mx.nd.sqrt(aux[1] + self._how.eps)).reshape(form)
        normal = mx.nd.broadcast_mul(mx.nd.broadcast_sub(x, aux[0].reshape(form).astype(x.dtype)), inverse.astype(x.dtype))
        self.assign(in_grad[0], req[0], mx.nd.broadcast_mul(dy, factor.astype(dy.dtype)))
        self.assign(in_grad[1], req[1], mx.nd.zeros_like(gamma) if self._how.fix_gamma else (dy * normal).sum(axis=others).astype(gamma.dtype))
        self.assign(in_grad[2], req[2], dy.sum(axis=others).astype(gamma.dtype))


@mx.operator.register(OPERATOR)
class _Properties(mx.operator.CustomOpProp):
    """MXNet gives every argument as text."""

    def __init__(self, key: str, axis: Any = 1, eps: Any = 1e-3, momentum: Any = 0.9, fix_gamma: Any = True, use_global_stats: Any = False,
                 process_set: Any = 0) -> None:
        super().__init__(need_top_grad=True)
        self.key, self._axis, self.eps, self.momentum = key, int(axis), float(eps), float(momentum)
        self.fix_gamma, self.use_global_stats, self._process_set = _flag(fix_gamma), _flag(use_global_stats), int(process_set)

    def axis(self, shape: Any) -> int:
        return self._axis % len(shape)

    def list_arguments(self) -> List[str]:
        return ["data", "gamma", "beta"]

    def list_outputs(self) -> List[str]:
        return ["output"]

    def list_auxiliary_states(self) -> List[str]:
        return ["moving_mean", "moving_var"]

    def infer_shape(self, in_shape: Any) -> Any:
        shape = in_shape[0]
        if len(shape) < 2 or self.axis(shape) not in (1, len(shape) - 1):
            raise ValueError(f"SyncBatchNorm of shape {tuple(shape)} with axis {self._axis}: channels are the second axis or the last one")
        channels = [shape[self.axis(shape)]]
        return [shape, channels, channels], [shape], [channels, channels]

    def infer_type(self, in_type: Any) -> Any:
        kind = numpy.dtype(in_type[0])
        of_channels = numpy.float64 if kind == numpy.float64 else numpy.float32
        return [in_type[0], of_channels, of_channels], [in_type[0]], [of_channels, of_channels]

    def create_operator(self, ctx: Any, in_shapes: Any, in_dtypes: Any) -> _Operator:
        basics._known()
        found = next((one for one in _sets._registered if one.process_set_id == self._process_set), None)
        if found is None:
            raise ValueError(f"process set {self._process_set} of SyncBatchNorm '{self.key}' is not registered any more")
        return _Operator(self, found._sync_batch_norm(f"aiacc.mxnet {self.key}"))


_unnamed = 0


def _plain(F: Any, given: Any) -> Any:
    """In MXNet's default layout. What oneDNN lays out its own way MXNet 1.9 converts for an operator in Python into memory that it frees
    before the operator has read it: a graph of convolutions gave garbage. An operator that is not oneDNN's and does not work in place
    gives the default layout, forward and backward; two exchanges of axes are that."""
    return F.swapaxes(F.swapaxes(given, 0, 1), 0, 1)


def sync_batch_norm_symbol(*data: Any, eps: float = 1e-3, momentum: float = 0.9, fix_gamma: bool = True, use_global_stats: bool = False, axis: int = 1,
                           ndev: int = 1, key: Optional[str] = None, name: Optional[str] = None, output_mean_var: bool = False,
                           process_set: ProcessSet = global_process_set, **named: Any) -> Any:
    """mx.sym.contrib.SyncBatchNorm over the ranks of the process set, which init must have made. Layers have different names or keys,
    equal on all ranks. `ndev` means nothing: a rank has one device."""
    if output_mean_var:
        raise ValueError("output_mean_var: this operator gives the normalised batch only")
    global _unnamed
    if name is None and key is None:
        name = f"syncbatchnorm{_unnamed}"
        _unnamed += 1
    if data:
        data = (_plain(mx.sym, data[0]), *data[1:])
    elif "data" in named:
        named["data"] = _plain(mx.sym, named["data"])
    return _plain(mx.sym, mx.sym.Custom(
        *data, op_type=OPERATOR, key=key or name, axis=axis, eps=eps, momentum=momentum, fix_gamma=fix_gamma, use_global_stats=use_global_stats,
        process_set=checked_set(process_set).process_set_id, **({"name": name} if name else {}), **named))


class SyncBatchNorm(mx.gluon.nn.BatchNorm):
    """gluon.nn.BatchNorm with statistics of the joined batch. Before init it is that; so it is in evaluation. Hybridizes. Layers are
    told apart by their prefix, which is equal on all ranks if the models are made alike."""

    def __init__(self, in_channels: int = 0, num_devices: Optional[int] = None, momentum: float = 0.9, epsilon: float = 1e-5, center: bool = True,
                 scale: bool = True, use_global_stats: bool = False, beta_initializer: Any = "zeros", gamma_initializer: Any = "ones",
                 running_mean_initializer: Any = "zeros", running_variance_initializer: Any = "ones", axis: int = 1,
                 process_set: ProcessSet = global_process_set, **kwargs: Any) -> None:
        super().__init__(axis, momentum, epsilon, center, scale, use_global_stats, beta_initializer=beta_initializer, gamma_initializer=gamma_initializer,
                         running_mean_initializer=running_mean_initializer, running_variance_initializer=running_variance_initializer,
                         in_channels=in_channels, **kwargs)
        self._process_set = checked_set(process_set)

    def hybrid_forward(self, F: Any, x: Any, gamma: Any, beta: Any, running_mean: Any, running_var: Any) -> Any:
        if not basics.is_initialized():
            return super().hybrid_forward(F, x, gamma, beta, running_mean, running_var)
        return _plain(F, F.Custom(_plain(F, x), gamma, beta, running_mean, running_var, op_type=OPERATOR, key=self.prefix,
                                  process_set=self._process_set.process_set_id, **self._kwargs))


PerseusSyncBatchNorm = SyncBatchNorm
