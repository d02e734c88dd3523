"""The state of a training: models, optimizers, schedulers, samplers and plain attributes, each handled as its type asks."""
from __future__ import annotations

import copy
from typing import Any, Dict, List, Optional, Tuple

import torch

from aiacc._horovod import basics
from aiacc._horovod.elastic import ObjectState
from aiacc.torch.elastic.sampler import ElasticSampler
from aiacc.torch.functions import broadcast_object, broadcast_optimizer_state, broadcast_parameters


class StateHandler:
    """Keeps one attribute in step. `value` has state_dict and load_state_dict, unless a subclass knows better."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self._saved = copy.deepcopy(value.state_dict())

    def save(self) -> None:
        self._saved = copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        self.value.load_state_dict(copy.deepcopy(self._saved))

    def sync(self) -> None:
        self.value.load_state_dict(broadcast_object(self.value.state_dict()))

    def reset(self) -> None:
        """The ranks have met again."""

    def set_value(self, value: Any) -> None:
        self.value = value
        self.save()


class ModelStateHandler(StateHandler):
    def sync(self) -> None:
        broadcast_parameters(self.value.state_dict(), root_rank=0)


class OptimizerStateHandler(StateHandler):
    def sync(self) -> None:
        broadcast_optimizer_state(self.value, root_rank=0)


class SchedulerStateHandler(StateHandler):
    pass


class SamplerStateHandler(StateHandler):
    def reset(self) -> None:
        self.value.reset()


_Registry = List[Tuple[Any, Any]]
_handler_registry: _Registry = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (getattr(torch.optim.lr_scheduler, "LRScheduler", torch.optim.lr_scheduler._LRScheduler), SchedulerStateHandler),  # torch 2 and 1
    (ElasticSampler, SamplerStateHandler),
]


def get_handler_registry() -> _Registry:
    """Types of attributes and what handles them: the first that fits counts."""
    return _handler_registry


def set_handler_registry(registry: _Registry) -> None:
    global _handler_registry
    _handler_registry = registry


def _handler_of(value: Any) -> Any:
    return next((handler(value) for kind, handler in _handler_registry if isinstance(value, kind)), None)


class TorchState(ObjectState):
    """Each keyword argument is an attribute: a model, an optimizer, a scheduler, an ElasticSampler, or anything that can be pickled."""
    _handlers: Dict[str, Any] = {}

    def __init__(self, model: Optional[torch.nn.Module] = None, optimizer: Optional[torch.optim.Optimizer] = None, **kwargs: Any) -> None:
        given = {**kwargs, "model": model, "optimizer": optimizer}
        found = {name: _handler_of(value) for name, value in given.items()}
        self._handlers = {name: handler for name, handler in found.items() if handler is not None}
        for name, handler in self._handlers.items():
            super().__setattr__(name, handler.value)
        super().__init__(broadcast_object, basics.rank, **{name: value for name, value in given.items() if found[name] is None})

    def save(self) -> None:
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self) -> None:
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def sync(self) -> None:
        for handler in self._handlers.values():
            handler.sync()
        super().sync()
        for handler in self._handlers.values():
            handler.save()

    def reset(self) -> None:
        if self._sync_follows:
            return  # which does more, and a rank that has just been started takes part in nothing before it
        for handler in self._handlers.values():
            handler.reset()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._handlers:
            self._handlers[name].set_value(value)
        super().__setattr__(name, value)


__all__ = ["ElasticSampler", "ModelStateHandler", "OptimizerStateHandler", "SamplerStateHandler", "StateHandler", "TorchState",
           "get_handler_registry", "set_handler_registry"]
