"""Tensors as the library wants them: in memory of the host, contiguous, of a type that it knows. Those of other devices are copied there
and back."""
from __future__ import annotations

from typing import Any, Dict, List, Optional

import torch

from aiacc._horovod.channel import canonical  # noqa: F401
from aiacc.buffers import Buffer, DType

FRAMEWORK = "aiacc.torch"
_TYPES: Dict[torch.dtype, DType] = {
    torch.uint8: DType.UINT8, torch.int8: DType.INT8, torch.int16: DType.INT16, torch.int32: DType.INT32, torch.int64: DType.INT64,
    torch.float16: DType.FLOAT16, torch.bfloat16: DType.BFLOAT16, torch.float32: DType.FLOAT32, torch.float64: DType.FLOAT64,
    torch.bool: DType.BOOL,
}
for _name in ("uint16", "uint32", "uint64"):  # torch >= 2.3
    if hasattr(torch, _name):
        _TYPES[getattr(torch, _name)] = DType[_name.upper()]
_BY_NAME = {str(kind): kind for kind in _TYPES}


def known_type(dtype: torch.dtype) -> Optional[DType]:
    return _TYPES.get(dtype)


def type_of(dtype: torch.dtype) -> DType:
    return _TYPES[dtype]


def element_type(tensor: torch.Tensor) -> DType:
    return _TYPES[tensor.dtype]


def check(tensor: Any, what: str = "tensor") -> torch.Tensor:
    """Refuses what cannot be sent, before anything has begun."""
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"{what} is of {type(tensor).__name__}, not a torch.Tensor")
    if tensor.layout != torch.strided:
        raise ValueError(f"{what} is {tensor.layout}: operations take dense tensors (sparse ones: sparse_allreduce_async, or to_dense())")
    if tensor.is_meta:
        raise ValueError(f"{what} is on {tensor.device}, where tensors have no elements")
    if tensor.is_complex():
        raise ValueError(f"{what} is of {tensor.dtype}: use torch.view_as_real on it")
    if tensor.dtype not in _TYPES:
        raise ValueError(f"{what} is of {tensor.dtype}; the types are {', '.join(str(kind)[6:] for kind in _TYPES)}")
    return tensor


def check_on_host(tensor: Any, what: str = "tensor") -> torch.Tensor:
    """As check(), for calls that use the tensor's memory itself."""
    if check(tensor, what).device.type != "cpu":
        raise ValueError(f"{what} is on {tensor.device}, and is to be on the CPU: call .cpu() first")
    return tensor


def packed(tensor: torch.Tensor) -> torch.Tensor:
    """The same elements, one after another and as memory has them, on the host; the tensor itself if they already are. A copy has all that
    was written to the tensor on its device's current stream."""
    given = tensor.detach()
    return (given if given.is_cpu else given.cpu()).contiguous().resolve_neg()  # type: ignore[attr-defined]  # missing in annotations of torch 1


def on_host(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself if it is on the CPU, else a copy: for operations that another thread runs, which does not know the device's stream."""
    return tensor if tensor.is_cpu else packed(tensor)  # type: ignore[attr-defined]  # missing in annotations of torch 1


def like(tensor: torch.Tensor) -> torch.Tensor:
    """Also where another device is torch's default, as all that the library reads and writes."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")


def result_like(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)


def describe(tensor: torch.Tensor) -> List[Any]:
    """What ranks compare, and from which a rank that has joined makes its zeros."""
    return [str(tensor.dtype), *tensor.shape]


def described(description: List[Any]) -> torch.Tensor:
    return torch.zeros(description[1:], dtype=_BY_NAME[description[0]], device="cpu")


def type_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype)[6:]


def count(tensor: torch.Tensor) -> int:
    return tensor.numel()


def is_packed(tensor: torch.Tensor) -> bool:
    return tensor.is_cpu and tensor.is_contiguous() and not tensor.is_neg()  # type: ignore[attr-defined]  # missing in annotations of torch 1


def rows_like(tensor: torch.Tensor, rows: int) -> torch.Tensor:
    return torch.empty((rows, *tensor.shape[1:]), dtype=tensor.dtype, device="cpu")


def settle(tensor: torch.Tensor) -> None:
    """Waits for what this thread has begun on the tensor's device: whoever uses it next may do so on another stream."""
    if not tensor.is_cpu:  # type: ignore[attr-defined]  # missing in annotations of torch 1
        stream = getattr(getattr(torch, tensor.device.type, None), "current_stream", None)
        if stream is not None:
            stream(tensor.device).synchronize()


def put(to: torch.Tensor, given: torch.Tensor) -> None:
    """Copies a result to where it is wanted. There it is at the end, though torch only begins copies of which one end has gaps."""
    to.copy_(given)
    settle(to)


def copy(to: torch.Tensor, given: torch.Tensor) -> None:
    with torch.inference_mode():  # on any thread: the tensor may be a parameter, or made in this mode
        put(to, given)


def buffer_of(tensor: torch.Tensor) -> Buffer:
    assert tensor.device.type == "cpu", f"the library is given memory of {tensor.device}"
    return Buffer(tensor.data_ptr(), tensor.numel(), element_type(tensor), tensor)


def integers(values: List[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32, device="cpu")
