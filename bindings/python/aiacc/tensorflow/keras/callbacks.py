"""Callbacks of Keras: variables that are equal on all ranks at first, metrics of all ranks, and learning rates for so many of them."""
from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Union

import numpy
import tensorflow as tf

from aiacc._arguments import number
from aiacc._horovod import basics
from aiacc.tensorflow import functions
from aiacc.tensorflow.functions import broadcast_variables, is_seed
from aiacc.tensorflow.gradient_tape import reference
from aiacc.tensorflow.optimizer import is_in_graph_of_tensorflow_1


class _Callback(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """One that reads and assigns variables, which in a graph of TensorFlow 1 only nodes of a session do."""

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        if is_in_graph_of_tensorflow_1():
            raise NotImplementedError(f"{type(self).__name__} does not work in a graph of TensorFlow 1 (disable_eager_execution): give all ranks the "
                                      "first one's variables by broadcast_global_variables of this package")


def _variables_of(optimizer: Any) -> List[Any]:
    found = getattr(optimizer, "variables", None) or []
    return list(found() if callable(found) else found)


class BroadcastGlobalVariablesCallback(_Callback):
    """All ranks begin with the root's variables, of the model and of its optimizer, behind the first batch: before it a model may have none.
    `local_variables`: what stays as it is. So do Keras's seeds, for ranks would leave out the same units of a Dropout."""

    def __init__(self, root_rank: int, device: str = "", local_variables: Any = None) -> None:
        super().__init__()
        self.root_rank, self.device, self.broadcast_done = root_rank, device, False
        given = [] if local_variables is None else local_variables if isinstance(local_variables, (list, tuple, set)) else [local_variables]
        self._local = {reference(one): one for one in given}

    def register_local_var(self, variable: Any) -> None:
        self._local[reference(variable)] = variable

    def on_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        if self.broadcast_done:
            return
        wanted = [*self.model.variables, *_variables_of(self.model.optimizer)]
        broadcast_variables([one for one in wanted if reference(one) not in self._local and not is_seed(one)], root_rank=self.root_rank)
        self.broadcast_done = True


class MetricAverageCallback(_Callback):
    """The metrics of an epoch are those of all ranks, on average. It stands before callbacks that read them."""

    def __init__(self, device: str = "") -> None:
        super().__init__()
        self.device = device

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        if not logs or basics.size() == 1:
            return
        names = sorted(logs)  # the same order on all ranks
        own = [numpy.asarray(logs[name], numpy.float64) for name in names]
        means = functions.allreduce(tf.constant(numpy.concatenate([one.ravel() for one in own])), name="metrics").numpy()
        for name, one in zip(names, own):
            mean, means = means[:one.size].reshape(one.shape), means[one.size:]
            logs[name] = float(mean) if one.ndim == 0 else mean


class LearningRateScheduleCallback(_Callback):
    """The learning rate is `initial_lr` times `multiplier`, a function of the epoch, or a number whose power it is, from `start_epoch` to before `end_epoch`.
    `staircase`: it changes between epochs only; else with each batch, of `steps_per_epoch`. `momentum_correction`: momentum changes with the
    rate for a batch (Goyal et al., "Accurate, Large Minibatch SGD", 2017), where the optimizer's momentum is a variable, as in Keras 2."""

    def __init__(self, initial_lr: float, multiplier: Union[float, Callable[[float], float]], start_epoch: int = 0, end_epoch: Optional[int] = None,
                 staircase: bool = True, momentum_correction: bool = True, steps_per_epoch: Optional[int] = None) -> None:
        super().__init__()
        if initial_lr is None:
            raise ValueError("initial_lr is the learning rate before it is multiplied")
        self.initial_lr, self.start_epoch, self.end_epoch = number("initial_lr", initial_lr), start_epoch, end_epoch
        self.staircase = staircase
        self.momentum_correction, self.steps_per_epoch = momentum_correction, steps_per_epoch
        self.multiplier: Callable[[float], float] = multiplier if callable(multiplier) else lambda epoch: float(multiplier) ** (epoch - start_epoch)
        self.current_epoch = 0
        self.restore_momentum: Optional[float] = None

    def _is_in_range(self, epoch: int) -> bool:
        return epoch >= self.start_epoch and (self.end_epoch is None or epoch < self.end_epoch)

    def _rate(self) -> float:
        rate = self.model.optimizer.learning_rate
        return float(rate.numpy() if hasattr(rate, "numpy") else rate() if callable(rate) else rate)

    def _adjust(self, epoch: float) -> None:
        optimizer = self.model.optimizer
        before = self._rate()
        optimizer.learning_rate = self.initial_lr * self.multiplier(epoch)
        momentum = getattr(optimizer, "momentum", None)
        if self.momentum_correction and callable(getattr(momentum, "assign", None)) and before > 0:
            assert momentum is not None
            self.restore_momentum = float(momentum.numpy())
            momentum.assign(self.restore_momentum * self._rate() / before)

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        super().on_train_begin(logs)
        if not self.staircase and not self.steps_per_epoch:
            self.steps_per_epoch = (self.params or {}).get("steps")
            if not self.steps_per_epoch:
                raise ValueError(f"{type(self).__name__} finds no number of steps: give it steps_per_epoch")

    def on_epoch_begin(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        self.current_epoch = epoch

    def on_batch_begin(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        if not self._is_in_range(self.current_epoch):
            return
        if not self.staircase:
            self._adjust(self.current_epoch + float(batch) / float(self.steps_per_epoch or 1))
        elif batch == 0:
            self._adjust(self.current_epoch)

    def on_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        if self.restore_momentum is not None:
            self.model.optimizer.momentum.assign(self.restore_momentum)
            self.restore_momentum = None

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        if logs is not None:
            logs["lr"] = self._rate()  # as in Horovod's; Keras 3's own say learning_rate


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """The learning rate grows from `initial_lr` divided by the number of ranks to `initial_lr` in `warmup_epochs`."""

    def __init__(self, initial_lr: float, warmup_epochs: int = 5, momentum_correction: bool = True, steps_per_epoch: Optional[int] = None,
                 verbose: int = 0) -> None:
        def multiplier(epoch: float) -> float:
            epoch += 1.0 / float(self.steps_per_epoch or 1)  # so that an epoch ends with a round number
            return 1.0 / basics.size() * (epoch * (basics.size() - 1) / warmup_epochs + 1)
        super().__init__(initial_lr, multiplier, 0, warmup_epochs, False, momentum_correction, steps_per_epoch)
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        super().on_epoch_end(epoch, logs)
        if self.end_epoch is not None and epoch == self.end_epoch - 1 and self.verbose > 0 and basics.rank() == 0:
            print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {self._rate():g}.")


class BestModelCheckpoint(tf.keras.callbacks.ModelCheckpoint):  # type: ignore[misc]
    """Keras's ModelCheckpoint of the best model, for one rank. Without `filepath`, or another value of that attribute before training, it writes
    best_model in the working directory."""

    def __init__(self, monitor: str = "val_loss", verbose: int = 0, save_weights_only: bool = False, mode: str = "auto", save_freq: Any = "epoch",
                 filepath: Optional[str] = None) -> None:
        super().__init__(filepath=filepath or f"best_model{'.weights.h5' if save_weights_only else '.keras'}", monitor=monitor, verbose=verbose, save_best_only=True, save_weights_only=save_weights_only, mode=mode,
                         save_freq=save_freq)


__all__ = ["BestModelCheckpoint", "BroadcastGlobalVariablesCallback", "LearningRateScheduleCallback", "LearningRateWarmupCallback",
           "MetricAverageCallback"]
