"""What Horovod's elastic training has that works with a fixed number of ranks: the sampler. Jobs of aiacc do not change their size yet."""
from __future__ import annotations

from typing import Any

from aiacc.torch.elastic.sampler import ElasticSampler


def run(func: Any) -> Any:
    raise NotImplementedError("elastic.run: this version of aiacc does not restart ranks within a job; call the function itself, and load a checkpoint")


class TorchState:
    def __init__(self, *_: Any, **__: Any) -> None:
        raise NotImplementedError("elastic.TorchState: this version of aiacc does not restart ranks within a job; use torch.save for checkpoints")


__all__ = ["ElasticSampler", "TorchState", "run"]
