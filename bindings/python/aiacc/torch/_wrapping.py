"""What DistributedOptimizer and its form for Adasum have in common: each is the program's optimizer of torch, with methods in front of its own."""
from __future__ import annotations

import weakref
from typing import Any

import torch


def wrapped_class(optimizer: torch.optim.Optimizer) -> Any:
    """The user's class below a DistributedOptimizer."""
    return getattr(type(optimizer), "_wrapped", type(optimizer))


def adopt(made: Any, optimizer: torch.optim.Optimizer) -> None:
    """`made` has all that the given one has, but the `step` that a scheduler of learning rates puts into an optimizer."""
    made.__dict__.update({name: value for name, value in optimizer.__dict__.items() if name != "step"})
    made._given = weakref.ref(optimizer)  # which a scheduler holds, if there is one


def count_step(made: Any) -> None:
    """For schedulers that were made for the given one: they warn if it has made no step."""
    optimizer = made._given()
    if optimizer is None:
        return
    given = optimizer.__dict__
    given["_opt_called"] = True
    if "_step_count" in given:  # of torch 1
        given["_step_count"] += 1
