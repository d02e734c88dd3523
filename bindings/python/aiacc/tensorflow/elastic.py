"""Elastic training: variables of TensorFlow and models of Keras that survive lost and new ranks."""
from __future__ import annotations

import contextlib
import functools
import re
from typing import Any, Callable, Iterator, List, Optional, Sequence

import tensorflow as tf

from aiacc._horovod import basics, elastic
from aiacc._horovod.elastic import ObjectState
from aiacc._horovod.exceptions import HorovodInternalError
from aiacc.tensorflow.functions import broadcast_object, broadcast_variables, is_seed


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """TensorFlow's error of an operation that has failed, as the one after which ranks meet again."""
    try:
        yield
    except tf.errors.UnknownError as error:
        found = re.search(r"HorovodInternalError: (.*)", str(error))
        if found is None:
            raise
        raise HorovodInternalError(found[1]) from error


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """The function, called with a state that is equal on all ranks, and again after each error of the job that it survives."""
    @functools.wraps(func)
    def translated(*arguments: Any, **keywords: Any) -> Any:
        with _translated():
            return func(*arguments, **keywords)
    return elastic.run_fn(translated, _reset)


def _reset() -> None:
    basics.shutdown()
    basics.meet_in_next_world()


class TensorFlowState(ObjectState):
    """Variables (all global ones of a graph of TensorFlow 1, if none are given, which takes a session) and attributes that can be pickled."""

    def __init__(self, variables: Optional[Sequence[Any]] = None, session: Any = None, **keywords: Any) -> None:
        self.variables: List[Any] = list(variables) if variables is not None else tf.compat.v1.global_variables()
        self.session = session
        self._values: List[Any] = []
        super().__init__(broadcast_object, basics.rank, **keywords)
        self._save_variables()

    def _save_variables(self) -> None:
        self._values = self.session.run(self.variables) if self.session is not None else [one.numpy() for one in self.variables]

    def save(self) -> None:
        self._save_variables()
        super().save()

    def _load_variables(self) -> None:
        for one, value in zip(self.variables, self._values):
            one.load(value, self.session) if self.session is not None else one.assign(value)

    def restore(self) -> None:
        self._load_variables()
        super().restore()

    def sync(self) -> None:
        with _translated():
            if self.session is None:
                broadcast_variables(self.variables, root_rank=0)
            else:  # without nodes of the graph, which new ranks would have others of
                self._values = broadcast_object(self.session.run(self.variables))
                self._load_variables()
            self._save_variables()
            super().sync()


class TensorFlowKerasState(ObjectState):
    """A model of Keras, its optimizer, and attributes that can be pickled, as the epoch and the batch."""

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **keywords: Any) -> None:
        self.model = model
        if not getattr(model, "built", True):
            raise ValueError("the model has no variables yet: build it before it becomes part of a state")
        self.optimizer = optimizer if optimizer is not None else getattr(model, "optimizer", None)
        self._values: List[Any] = []
        self._optimizer_values: List[Any] = []
        super().__init__(broadcast_object, basics.rank, **keywords)
        self._save_model()

    def _optimizer_variables(self) -> List[Any]:
        if self.optimizer is None:
            return []
        if not getattr(self.optimizer, "built", True):
            self.optimizer.build(self.model.trainable_variables)
        found = self.optimizer.variables
        return list(found() if callable(found) else found)

    def _save_model(self) -> None:
        self._values = [one.numpy() for one in self.model.variables]
        self._optimizer_values = [one.numpy() for one in self._optimizer_variables()]

    def save(self) -> None:
        self._save_model()
        super().save()

    def _begin_passes(self) -> None:
        passes = getattr(self.optimizer, "_aiacc_passes", None)
        if passes is not None:
            passes.clear()

    def restore(self) -> None:
        self._begin_passes()
        for one, value in [*zip(self.model.variables, self._values), *zip(self._optimizer_variables(), self._optimizer_values)]:
            one.assign(value)
        super().restore()

    def sync(self) -> None:
        self._begin_passes()
        with _translated():
            broadcast_variables([one for one in self.model.variables if not is_seed(one)], root_rank=0)
            if self._optimizer_variables():
                broadcast_variables(self._optimizer_variables(), root_rank=0)
            self._save_model()
            super().sync()


__all__ = ["TensorFlowKerasState", "TensorFlowState", "run"]
