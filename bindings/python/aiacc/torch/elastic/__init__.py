"""Horovod's elastic training: a function that is run again from the last commit after an error that the job survives."""
from __future__ import annotations

from typing import Any, Callable

from aiacc._horovod import basics
from aiacc._horovod.elastic import ObjectState, State, run_fn
from aiacc.torch.elastic.sampler import ElasticSampler
from aiacc.torch.elastic.state import TorchState


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator. The function's first argument is a State, which is equal on all ranks when the function begins."""
    return run_fn(func, _reset)


def _reset() -> None:
    basics.shutdown()
    basics.meet_in_next_world()


__all__ = ["ElasticSampler", "ObjectState", "State", "TorchState", "run"]
