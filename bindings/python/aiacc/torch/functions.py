"""Parameters, optimizer states and objects from one rank to all."""
from __future__ import annotations

import collections.abc
import copy
from typing import Any, Dict, Iterable, List, Optional, Tuple

import torch

from aiacc._arguments import refused
from aiacc._horovod.calls import allgather_object, broadcast_object, root_in_set  # noqa: F401
from aiacc._horovod.process_sets import ProcessSet, global_process_set
from aiacc.torch import mpi_ops
from aiacc.torch._dgc import OWN_STATE
from aiacc.torch._wrapping import wrapped_class


def broadcast_parameters(params: Any, root_rank: int, process_set: ProcessSet = global_process_set) -> None:
    """In place: `params` is a state_dict, a list of (name, tensor), or a list of tensors."""
    if isinstance(params, dict):
        pairs: List[Tuple[Optional[str], Any]] = sorted(params.items())
    elif isinstance(params, collections.abc.Sequence) and not isinstance(params, (str, bytes)):
        pairs = [one if isinstance(one, tuple) else (None, one) for one in params]
    else:
        raise ValueError(f"params is a dict, a list of (name, tensor) or a list of tensors, not {type(params).__name__}"
                         + ("; wrap it in list()" if isinstance(params, collections.abc.Iterable) else ""))
    if any(one is not None and not isinstance(one, torch.Tensor) for _, one in pairs):
        wrong = next((name, one) for name, one in pairs if one is not None and not isinstance(one, torch.Tensor))
        raise ValueError(f"params has {type(wrong[1]).__name__} '{wrong[0]}': every value is a tensor; objects go by broadcast_object")
    root_in_set(root_rank, process_set)
    handles = [mpi_ops.broadcast_async_(tensor, root_rank, name, process_set) for name, tensor in pairs if tensor is not None]
    for handle in handles:
        mpi_ops.synchronize(handle)


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int, model: Optional[torch.nn.Module] = None,
                              process_set: ProcessSet = global_process_set) -> None:
    """In place: state and hyperparameters of the root's optimizer. State that a rank lacks is created; what is each rank's own stays (DGC's)."""
    if not callable(getattr(optimizer, "state_dict", None)) or not hasattr(optimizer, "param_groups"):
        raise refused("optimizer", optimizer, "an optimizer of torch")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("broadcast_optimizer_state: the state of torch.optim.LBFGS is not one of tensors by parameter; use broadcast_object on its "
                         "state_dict()")
    root_in_set(root_rank, process_set)
    is_root = mpi_ops.basics.rank() == root_rank
    state = optimizer.state_dict()
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    found: Dict[Tuple[Any, str], torch.Tensor] = {}
    groups = [{name: _on_host(value) for name, value in group.items()} for group in state["param_groups"]]
    rest: Dict[str, Any] = copy.deepcopy({"param_groups": groups, "state": {}})
    for key, values in state["state"].items():
        rest["state"][key] = {}
        for field, value in values.items():
            if field in OWN_STATE:
                continue
            if isinstance(value, torch.Tensor):
                found[key, field] = value
                rest["state"][key][field] = (value.dtype, tuple(value.shape), value.device == parameters[key].device)
            else:
                rest["state"][key][field] = _Plain(value)
    theirs = broadcast_object(rest if is_root else None, root_rank, "optimizer_state", process_set)
    if theirs["state"].keys() and max(theirs["state"]) >= sum(len(group["params"]) for group in state["param_groups"]):
        raise ValueError("broadcast_optimizer_state: the root's optimizer has more parameters than this rank's")
    if not is_root:
        made: Dict[Any, Dict[str, Any]] = {}
        for key, fields in theirs["state"].items():
            made[key] = {}
            for field, value in fields.items():
                if isinstance(value, _Plain):
                    made[key][field] = value.value
                else:
                    own = found.get((key, field))
                    fits = own is not None and (own.dtype, tuple(own.shape)) == value[:2]
                    device = parameters[key].device if value[2] else "cpu"  # counts of steps are there
                    found[key, field] = made[key][field] = own if fits else torch.zeros(value[1], dtype=value[0], device=device)  # type: ignore[assignment]
        # load_state_dict casts state to the parameters' type: what was made is taken as it is, behind it.
        for group, own_group in zip(theirs["param_groups"], state["param_groups"]):
            for name, value in group.items():
                if isinstance(value, torch.Tensor) and isinstance(own_group.get(name), torch.Tensor):
                    group[name] = value.to(own_group[name].device)
        own_state = {key: kept for key, fields in state["state"].items() if (kept := {field: fields[field] for field in OWN_STATE if field in fields})}
        base = wrapped_class(optimizer)
        base.load_state_dict(optimizer, {"state": {}, "param_groups": theirs["param_groups"]})
        for key in [*made, *(key for key in own_state if key not in made)]:
            optimizer.state[parameters[key]] = {**made.get(key, {}), **own_state.get(key, {})}
    order: Iterable[Tuple[Any, str]] = [(key, field) for key, fields in theirs["state"].items() for field, value in fields.items()
                                        if not isinstance(value, _Plain)]
    if not theirs["state"]:
        _give_gradients(optimizer)
    handles = [mpi_ops.broadcast_async_(found[one], root_rank, f"{one[0]}.{one[1]}", process_set) for one in order]
    for handle in handles:
        mpi_ops.synchronize(handle)
    getattr(optimizer, "_was_broadcast", lambda *_: None)(root_rank, process_set)  # a LocalSGD has more


def _on_host(value: Any) -> Any:
    """A tensor travels as one of the CPU: other ranks have other devices."""
    return value.detach().cpu() if isinstance(value, torch.Tensor) else value


def _give_gradients(optimizer: torch.optim.Optimizer) -> None:
    """As Horovod leaves an optimizer without state: parameters have gradients of zeros where they had none."""
    for group in optimizer.param_groups:
        for one in group["params"]:
            if one.requires_grad and one.grad is None:
                one.grad = torch.zeros_like(one)


class _Plain:
    """A value that is no tensor."""

    def __init__(self, value: Any) -> None:
        self.value = value
