"""CommDebugMode counts the calls of torch.distributed that reach a group of this back end.

Torch counts those of its own back ends as operators of its dispatcher (c10d::allreduce_ and its like), whose kernels look for a back end of
C++ in the group. A group in Python has none, and torch calls its methods directly, so they tell the modes themselves."""
from __future__ import annotations

import sys
from typing import Any, Callable, List, Tuple

import torch

_is_any_mode_on: Callable[[], int] = getattr(torch._C, "_len_torch_dispatch_stack", int)  # torch >= 2
_MODULES = ("torch.distributed.tensor.debug._comm_mode", "torch.distributed._tensor.debug.comm_mode")  # the second before torch 2.5
_RENAMED = {"barrier": "barrier", "recv_anysource": "recv_any_source_", "all_gather_single_coalesced": "allgather_into_tensor_coalesced_",
            "reduce_scatter_single_coalesced": "reduce_scatter_tensor_coalesced_"}


def _over(*_: Any) -> Any:
    raise RuntimeError("the operation was counted already")


class _Operator:
    """What a mode looks at in an operator of torch."""

    def __init__(self, name: str, call: Callable[..., Any]) -> None:
        self._overloadpacket = getattr(torch.ops.c10d, name)
        self._name, self._call = f"c10d.{name}.default", call

    def __call__(self, *arguments: Any) -> Any:
        call, self._call = self._call, _over  # a mode keeps this, and the group is not to live as long
        return call(*arguments)

    def __str__(self) -> str:
        return self._name


def counting_modes() -> List[Any]:
    """Those that are on in this thread. There are none within an operation that they have counted."""
    if not _is_any_mode_on():
        return []
    kinds = tuple(sys.modules[one].CommDebugMode for one in _MODULES if one in sys.modules)
    stack = torch.utils._python_dispatch._get_current_dispatch_mode_stack()
    return [mode for mode in stack if isinstance(mode, kinds)]


def told(modes: List[Any], method: str, call: Callable[..., Any], arguments: Tuple[Any, ...]) -> Any:
    """Calls it, and lets `modes` count it as the operator that `method` of a process group is."""
    name = _RENAMED.get(method, f"{method}_")
    if hasattr(torch.ops.c10d, name):
        for mode in modes:
            call = _through(mode, _Operator(name, call))
    with torch.utils._python_dispatch._disable_current_modes():  # modes do not see how a back end does it
        return call(*arguments)


def _through(mode: Any, operator: _Operator) -> Callable[..., Any]:
    return lambda *arguments: mode.__torch_dispatch__(operator, (), arguments)
