"""Elastic training of models of Keras."""
from __future__ import annotations

from typing import Any, Dict, Optional

import tensorflow as tf

from aiacc.tensorflow.elastic import TensorFlowKerasState, run  # noqa: F401


class KerasState(TensorFlowKerasState):
    """A model, its optimizer, and attributes that can be pickled, as `batch` and `epoch`."""


class CommitStateCallback(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Commits the state after each `batches_per_commit` batches, and at the end of an epoch. It stands behind callbacks that change the state."""

    def __init__(self, state: Any, batches_per_commit: int = 1) -> None:
        super().__init__()
        if batches_per_commit < 1:
            raise ValueError(f"batches_per_commit is {batches_per_commit}; it is 1 or more")
        self.state, self.batches_per_commit, self.batches_remaining = state, batches_per_commit, batches_per_commit

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        self.batches_remaining = self.batches_per_commit

    def on_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        self.batches_remaining -= 1
        if self.batches_remaining == 0:
            self.state.commit()
            self.batches_remaining = self.batches_per_commit

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        self.state.commit()


class UpdateBatchStateCallback(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Keeps `state.batch`, the last batch of this epoch, and 0 after it. An epoch that begins again has `params["steps"]` without these, which Keras 3
    only shows: whoever wants the rest alone gives fit so many."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state, self.steps_per_epoch = state, None

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        self.steps_per_epoch = None

    def on_epoch_begin(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        if self.params and self.params.get("steps"):
            if self.steps_per_epoch is None:
                self.steps_per_epoch = self.params["steps"]
            self.params["steps"] = self.steps_per_epoch - self.state.batch

    def on_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        self.state.batch = batch

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        self.state.batch = 0


class UpdateEpochStateCallback(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Keeps `state.epoch` as the number of epochs that are over."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state, self.initial_epoch = state, 0

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        self.initial_epoch = self.state.epoch

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        self.state.epoch = self.initial_epoch + epoch + 1


__all__ = ["CommitStateCallback", "KerasState", "UpdateBatchStateCallback", "UpdateEpochStateCallback", "run"]
