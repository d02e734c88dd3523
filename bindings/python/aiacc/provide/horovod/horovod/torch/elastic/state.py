"""Raises a sentence when it is used: jobs of aiacc do not change their size yet."""
from aiacc.torch.elastic import TorchState

__all__ = ["TorchState"]
