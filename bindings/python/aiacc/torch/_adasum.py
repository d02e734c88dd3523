"""Adasum (Maleki et al., "Scaling Distributed Training with Adaptive Summation", 2020): a sum that does not count twice what two gradients
have in common,

    adasum(a, b) = (1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b

so orthogonal vectors are added and parallel ones averaged. Over n = 2^k ranks it is applied in pairs, as Horovod does: by recursive
vector halving, where the dot products of a tensor are summed over the ranks that hold its pieces, then by recursive doubling back.
Each rank sends and receives 2(n-1)/n of the bytes. Dot products and each sum are in float64, what travels has the tensors' type.
"""
from __future__ import annotations

import itertools
from typing import List, Sequence, Tuple

import torch

from aiacc.groups import Group
from aiacc.requests import wait_all
from aiacc.torch import tensors

_TINY = torch.finfo(torch.float64).tiny ** 0.5  # below it a square has no precision left: such a vector is added as it is


def check_ranks(ranks: int) -> None:
    if ranks & (ranks - 1):
        raise NotImplementedError(f"op=Adasum is defined for 1, 2, 4, 8 ... ranks, and these are {ranks}")


_buffer = tensors.buffer_of


def _exchange(group: Group, peer: int, send: torch.Tensor, recv: torch.Tensor) -> None:
    """Lengths may differ: halves do, by an element, where their sum is odd. Nothing is sent of an empty one."""
    begun = [group.recv(_buffer(recv), peer, wait=False)] if recv.numel() else []
    if send.numel():
        begun.append(group.send(_buffer(send), peer, wait=False))
    wait_all(one for one in begun if one is not None)


def _sum_over_block(group: Group, rank: int, level: int, values: torch.Tensor) -> torch.Tensor:
    """Over the 2 * level ranks that have halved one vector; equal bits on all of them."""
    step = 1
    while step <= level:
        theirs = torch.empty_like(values)
        _exchange(group, rank ^ step, values, theirs)
        values = values + theirs
        step *= 2
    return values


def _combine(group: Group, rank: int, level: int, first: torch.Tensor, second: torch.Tensor,
             parts: Sequence[Tuple[int, int]]) -> torch.Tensor:
    """Of this rank's pieces of both vectors; `parts` are the pieces of each tensor in them, which may be empty."""
    a, b = first.double(), second.double()
    products = torch.tensor([[torch.dot(x[i:j], y[i:j]) for x, y in ((a, b), (a, a), (b, b))] for i, j in parts], dtype=torch.float64,
                            device="cpu")
    result = torch.empty_like(a)
    for (i, j), (both, of_a, of_b) in zip(parts, _sum_over_block(group, rank, level, products).tolist()):
        result[i:j] = a[i:j] * (1 - both / of_a / 2 if of_a >= _TINY else 1) + b[i:j] * (1 - both / of_b / 2 if of_b >= _TINY else 1)
    return result.to(first.dtype)


def adasum(group: Group, rank: int, size: int, given: Sequence[torch.Tensor]) -> List[torch.Tensor]:
    """Of tensors of one type, each by itself."""
    flat = torch.cat([one.reshape(-1) for one in given])
    ends = list(itertools.accumulate(one.numel() for one in given))
    places = list(zip([0, *ends], ends))
    begin, end = 0, flat.numel()
    halved: List[Tuple[int, int, int]] = []
    level = 1
    while level < size:
        middle, lower = begin + (end - begin) // 2, rank & level == 0
        keep, leave = ((begin, middle), (middle, end)) if lower else ((middle, end), (begin, middle))
        mine, theirs = flat[keep[0]:keep[1]], flat.new_empty(keep[1] - keep[0])
        _exchange(group, rank ^ level, flat[leave[0]:leave[1]], theirs)
        parts = [(min(max(i, keep[0]), keep[1]) - keep[0], min(max(j, keep[0]), keep[1]) - keep[0]) for i, j in places]
        mine.copy_(_combine(group, rank, level, mine if lower else theirs, theirs if lower else mine, parts))
        halved.append((level, begin, end))
        begin, end = keep
        level *= 2
    for level, whole_begin, whole_end in reversed(halved):
        others = flat[whole_begin:begin] if begin > whole_begin else flat[end:whole_end]
        _exchange(group, rank ^ level, flat[begin:end], others)
        begin, end = whole_begin, whole_end
    return [flat[i:j].reshape(one.shape) for (i, j), one in zip(places, given)]
