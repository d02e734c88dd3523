"""Tensors as the calls of torch.distributed give them: checked, dense and on the host, and as blocks of bytes."""
from __future__ import annotations

from typing import Sequence

import torch

from aiacc.torch._arguments import refuse
from aiacc.torch.tensors import put, settle


def checked(tensor: torch.Tensor) -> torch.Tensor:
    """What was begun on its device before is done with it: a result may be copied there."""
    if tensor.is_meta:
        refuse(f"a tensor with elements is needed, and this one is on {tensor.device}")
    if tensor.layout != torch.strided:
        refuse(f"unsupported layout: a dense tensor is needed, and this one has the layout {tensor.layout}")
    settle(tensor)
    return tensor


def dense_of(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself if its elements are on the host, in order, and as they are in memory, else a copy, which has what was written to the
    tensor on its device's current stream."""
    here = checked(tensor) if tensor.is_cpu else checked(tensor).detach().cpu()  # type: ignore[attr-defined]  # missing in annotations of torch 1
    if here.is_contiguous() and not here.is_conj() and not here.is_neg():
        return here
    return here.contiguous().resolve_conj().resolve_neg()


def bytes_of(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def checked_tag(tag: int) -> int:
    if not 0 <= tag < 1 << 32:
        refuse(f"a tag is 0 to {(1 << 32) - 1}, and not {tag}")
    return tag


def _as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Of a dense one."""
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)  # one element of a broadcast view has the stride 0


def gather_bytes(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat([_as_bytes(dense_of(one)) for one in tensors])


def scatter_bytes(flat: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
    for block, tensor in zip(flat.split([bytes_of(one) for one in tensors]), tensors):
        if tensor.numel():
            # A block of its own: a view of another type must begin at a multiple of that type's size.
            aligned = block if block.storage_offset() % tensor.element_size() == 0 else block.clone()
            put(tensor, aligned.view(tensor.dtype).view(tensor.shape))
