"""Parameters from one rank to all."""
from __future__ import annotations

from typing import Any, Optional

import mxnet as mx
from mxnet.gluon.parameter import DeferredInitializationError, Parameter
from mxnet.ndarray import NDArray

from aiacc._horovod import basics
from aiacc._horovod.calls import allgather_object, broadcast_object, root_in_set  # noqa: F401
from aiacc._horovod.process_sets import ProcessSet, global_process_set
from aiacc.mxnet import tensors
from aiacc.mxnet.mpi_ops import broadcast_


def broadcast_parameters(params: Any, root_rank: int = 0, prefix: Optional[str] = None, process_set: ProcessSet = global_process_set) -> None:
    """In place: `params` is the dict of arrays of Module.get_params(), or the parameters of a gluon block (collect_params()). Those
    that are not initialized yet, for want of a shape, follow when they are."""
    if not isinstance(params, (dict, mx.gluon.ParameterDict)):
        raise ValueError(f"params is of {type(params).__name__}: it is a dict of NDArrays, or what collect_params() returns")
    basics._known()
    root_in_set(root_rank, process_set)
    for name, one in sorted(params.items()):
        if isinstance(one, NDArray):
            broadcast_(tensors.check(one, f"parameter '{name}'"), root_rank, f"{prefix or ''}{name}", process_set=process_set)
        elif isinstance(one, Parameter):
            try:
                arrays = one.list_data()
            except DeferredInitializationError:
                _broadcast_when_initialized(one, root_rank, f"{prefix or ''}{name}", process_set)
                continue
            for i, array in enumerate(arrays):
                broadcast_(array, root_rank, f"{prefix or ''}{name}.{i}", process_set=process_set)
        else:
            raise ValueError(f"params has {type(one).__name__} '{name}': every value is an NDArray or a Parameter of gluon")


def _broadcast_when_initialized(parameter: Parameter, root_rank: int, name: str, process_set: ProcessSet) -> None:
    initialize = parameter._init_impl

    def initialize_and_broadcast(*arguments: Any, **keywords: Any) -> None:
        initialize(*arguments, **keywords)
        for i, array in enumerate(parameter.list_data()):
            broadcast_(array, root_rank, f"{name}.{i}", process_set=process_set)
    parameter._init_impl = initialize_and_broadcast
