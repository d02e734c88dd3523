"""Memory of the library as tensors."""
from __future__ import annotations

import ctypes as c

import torch


def at_address(address: int, elements: int, dtype: torch.dtype) -> torch.Tensor:
    """A tensor over memory of the library, which outlives it."""
    if elements == 0:
        return torch.empty(0, dtype=dtype, device="cpu")
    size = elements * torch.empty(0, dtype=dtype, device="cpu").element_size()
    return torch.frombuffer((c.c_ubyte * size).from_address(address), dtype=dtype)
