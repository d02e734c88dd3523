"""Operators of torch.distributed as aiacc has them."""
from __future__ import annotations

import functools
from typing import Any, Dict, Sequence, Tuple

import torch

import aiacc
from aiacc.torch import tensors as types
from aiacc.torch._arguments import refuse

_NAMES: Dict[Any, str] = {}  # as an operator's name takes as long as a short allreduce
_OPS = {"SUM": aiacc.Op.SUM, "AVG": aiacc.Op.AVG, "PRODUCT": aiacc.Op.PROD, "MIN": aiacc.Op.MIN, "MAX": aiacc.Op.MAX,
        "BAND": aiacc.Op.BAND, "BOR": aiacc.Op.BOR, "BXOR": aiacc.Op.BXOR}
_LOGICAL = {**_OPS, "SUM": aiacc.Op.BOR, "PRODUCT": aiacc.Op.BAND, "MIN": aiacc.Op.BAND, "MAX": aiacc.Op.BOR}
_LINEAR = ("SUM", "AVG", "PREMUL_SUM")
_OF_ONE_RANK: Dict[str, Any] = {"SUM": torch.add, "PREMUL_SUM": torch.add, "PRODUCT": torch.mul, "MIN": torch.minimum, "MAX": torch.maximum,
                "BAND": torch.bitwise_and, "BOR": torch.bitwise_or, "BXOR": torch.bitwise_xor}


def name_of(op: Any) -> str:
    found = getattr(op, "op", op)  # a ReduceOp holds a ReduceOp.RedOpType (torch 2.0)
    try:
        return _NAMES[found]
    except KeyError:
        return _NAMES.setdefault(found, str(found).rpartition(".")[2])


def _factor_of(op: Any) -> float:
    """Of ReduceOp.PREMUL_SUM: a number, or a tensor of one element."""
    try:
        _, factor = op.__getstate__()
    except (AttributeError, TypeError, ValueError):
        raise ValueError("ReduceOp.PREMUL_SUM has no factor: make it with torch.distributed._make_nccl_premul_sum(factor)") from None
    if float(factor) == 0:
        raise ValueError("the factor of ReduceOp.PREMUL_SUM is 0")
    return float(factor)


def reduction(tensor: torch.Tensor, op: Any) -> Tuple[torch.Tensor, Any, Any, float]:
    """(elements as aiacc has them, its type, its operator, prescale); complex numbers are pairs."""
    name = name_of(op)
    if tensor.dtype.is_complex:
        if name not in _LINEAR:
            refuse(f"ReduceOp.{name} is not defined on complex numbers")
        tensor = torch.view_as_real(tensor)
    dtype = types.known_type(tensor.dtype)
    if dtype is None:
        refuse(f"tensors of {tensor.dtype} cannot be reduced")
    if name == "PREMUL_SUM":
        return tensor, dtype, aiacc.Op.SUM, _factor_of(op)
    operators = _LOGICAL if dtype is aiacc.DType.BOOL else _OPS
    if name not in operators:
        refuse(f"ReduceOp.{name} is unknown to aiacc")
    return tensor, dtype, operators[name], 0.0


def of_one_rank(tensors: Sequence[torch.Tensor], op: Any) -> torch.Tensor:
    """Several tensors of a call, reduced to the one that this rank contributes."""
    if len(tensors) == 1:
        return tensors[0]
    name = name_of(op)
    if name not in _OF_ONE_RANK:
        refuse(f"ReduceOp.{name} of several tensors of each rank is not defined")
    return functools.reduce(_OF_ONE_RANK[name], tensors)
