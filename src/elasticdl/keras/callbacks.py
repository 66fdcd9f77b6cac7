"""Runs callbacks of Keras in a training whose steps follow the plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

from elasticdl.errors import ModelError
from elasticdl.keras.adapter.module import KerasModule
from elasticdl.keras.runtime import keras
from elasticdl.model.callbacks import Callback

# These use the metrics in the logs of an epoch; here an evaluation runs beside the training and ends later.
_ALTERNATIVES = {
    keras.callbacks.EarlyStopping: "elasticdl.model.callbacks.EarlyStopping",
    keras.callbacks.ReduceLROnPlateau: "elasticdl.model.callbacks.ReduceLROnPlateau",
    keras.callbacks.ModelCheckpoint: "--checkpoint_steps, and elasticdl.model.callbacks.BestMetric to keep the best",
    keras.callbacks.BackupAndRestore: "--checkpoint_steps",
    keras.callbacks.TensorBoard: "nothing: the job has event files of its own",
}


class LearningRateScheduler(keras.callbacks.Callback):
    """Sets the learning rate of every step to `schedule(step)`."""

    def __init__(self, schedule: Callable[[int], float]) -> None:
        super().__init__()
        self._schedule = schedule

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.model.optimizer.learning_rate = self._schedule(batch)


class KerasCallbackAdapter(Callback):
    """All keras.callbacks of a model file as one callback.

    The beginnings of epochs and batches are reported when the gradients are known. That happens for every update of
    every worker, also for those that a newcomer repeats, so a learning rate that is set there is the same everywhere.
    """

    def __init__(self, callbacks: Sequence[Any], steps_per_epoch: int) -> None:
        for callback in callbacks:
            for kind, instead in _ALTERNATIVES.items():
                if isinstance(callback, kind):
                    raise ModelError(f"callbacks: keras.callbacks.{kind.__name__} cannot work here; use {instead}")
        self._callbacks = list(callbacks)
        self._steps_per_epoch = max(steps_per_epoch, 1)
        self._loss = float("nan")

    def on_train_begin(self, model: nn.Module) -> None:
        assert isinstance(model, KerasModule)
        model.keras.stop_training = False
        for callback in self._callbacks:
            callback.set_model(model.keras)
            callback.on_train_begin({})

    def on_gradients(self, model: nn.Module, step: int) -> None:
        assert isinstance(model, KerasModule)
        epoch, batch = divmod(step, self._steps_per_epoch)
        for callback in self._callbacks:
            callback.set_model(model.keras)
            if batch == 0:
                callback.on_epoch_begin(epoch, {})
            callback.on_train_batch_begin(step, {})

    def on_step_end(self, step: int, loss: float) -> None:
        self._loss = loss
        for callback in self._callbacks:
            callback.on_train_batch_end(step, {"loss": loss})
        self._check_stop()

    def on_epoch_end(self, epoch: int) -> None:
        for callback in self._callbacks:
            callback.on_epoch_end(epoch, {"loss": self._loss})
        self._check_stop()

    def on_evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        for callback in self._callbacks:
            callback.on_test_end(dict(metrics))
        self._check_stop()

    def on_train_end(self, model: nn.Module) -> None:
        for callback in self._callbacks:
            callback.on_train_end({})

    def _check_stop(self) -> None:
        if any(getattr(callback.model, "stop_training", False) for callback in self._callbacks):
            self.stop_reason = "a callback set model.stop_training"
