"""Callbacks: the user's code at fixed moments of the training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from torch import nn

from elasticdl.errors import ModelError


class Callback:
    """Does nothing; override what you need.

    Set `stop_reason` to end the training after the running step. Set `rate_factor`, and learning rates are multiplied
    by it, those of rows on ps too, from the step on which all workers have agreed.
    """

    stop_reason: str | None = None
    rate_factor: float = 1.0

    def on_train_begin(self, model: nn.Module) -> None:
        """Before the first step of this worker, with the weights it begins from."""

    def on_gradients(self, model: nn.Module, step: int) -> None:
        """The reduced gradients are in `parameter.grad` and may be changed. Runs on every worker: be deterministic."""

    def on_step_end(self, step: int, loss: float) -> None:
        """Step number `step` (0, 1, …) was applied; `loss` is the loss of the whole global batch."""

    def on_epoch_end(self, epoch: int) -> None:
        """The last step of `epoch` (0, 1, …) was applied."""

    def on_evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        """The weights after `step` steps were evaluated. The training may be some steps further by now."""

    def on_train_end(self, model: nn.Module) -> None:
        """After the last step, before the export."""

    def state_dict(self) -> dict[str, Any]:
        """The state for checkpoints and newcomers, as JSON values."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state_dict`."""


class ClipGradientNorm(Callback):
    """Scales the gradient so that its norm over all parameters is at most `max_norm`."""

    def __init__(self, max_norm: float) -> None:
        if not max_norm > 0:
            raise ValueError(f"max_norm: expected a number above 0. Received: {max_norm}")
        self.max_norm = max_norm

    def on_gradients(self, model: nn.Module, step: int) -> None:
        nn.utils.clip_grad_norm_(model.parameters(), self.max_norm)


class ClipGradientValue(Callback):
    """Clips each number of the gradient to the range from `-clip_value` to `clip_value`."""

    def __init__(self, clip_value: float) -> None:
        if not clip_value > 0:
            raise ValueError(f"clip_value: expected a number above 0. Received: {clip_value}")
        self.clip_value = clip_value

    def on_gradients(self, model: nn.Module, step: int) -> None:
        nn.utils.clip_grad_value_(model.parameters(), self.clip_value)


class BestMetric(Callback):
    """Remembers the best value of a metric and its step, whose checkpoint is kept.

    With `exports_best` the model of that step is exported instead of the last one; then checkpoints must be written at
    the steps that are evaluated.
    """

    def __init__(
        self, metric: str, mode: Literal["max", "min"] = "max", min_delta: float = 0.0, exports_best: bool = False
    ) -> None:
        if mode not in ("max", "min"):
            raise ValueError(f'mode: expected "max" or "min". Received: {mode!r}')
        if min_delta < 0:
            raise ValueError(f"min_delta: expected 0 or more. Received: {min_delta}")
        self.metric = metric
        self.mode = mode
        self.min_delta = min_delta
        self.exports_best = exports_best
        self.best_value: float | None = None
        self.best_step: int | None = None

    def on_evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        value = self._value(metrics)
        if self._is_better(value):
            self.best_value, self.best_step = value, step

    def state_dict(self) -> dict[str, Any]:
        return {"best_value": self.best_value, "best_step": self.best_step}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.best_value, self.best_step = state["best_value"], state["best_step"]

    def _value(self, metrics: Mapping[str, float]) -> float:
        if self.metric not in metrics:
            available = ", ".join(sorted(metrics)) or "none"
            raise ModelError(
                f"callbacks: {type(self).__name__} watches {self.metric!r}, but the evaluation has: {available}"
            )
        return metrics[self.metric]

    def _is_better(self, value: float) -> bool:
        if math.isnan(value):
            return False
        if self.best_value is None:
            return True
        gain = value - self.best_value if self.mode == "max" else self.best_value - value
        return gain > self.min_delta


class EarlyStopping(BestMetric):
    """Stops the training after `patience` evaluations in a row that are no better than the best by `min_delta`."""

    def __init__(
        self,
        metric: str,
        patience: int = 3,
        mode: Literal["max", "min"] = "max",
        min_delta: float = 0.0,
        exports_best: bool = False,
    ) -> None:
        super().__init__(metric, mode, min_delta, exports_best)
        if patience < 1:
            raise ValueError(f"patience: expected 1 or more evaluations. Received: {patience}")
        self.patience = patience
        self.waited = 0

    def on_evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        super().on_evaluation(step, metrics)
        self.waited = 0 if self.best_step == step else self.waited + 1
        if self.waited >= self.patience:
            best = "nothing" if self.best_value is None else f"{self.best_value:.6g} at step {self.best_step}"
            self.stop_reason = f"{self.metric} has not improved on {best} for {self.waited} evaluations"

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "waited": self.waited, "stop_reason": self.stop_reason}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.waited, self.stop_reason = state["waited"], state["stop_reason"]


class ReduceLROnPlateau(BestMetric):
    """Multiplies the learning rate by `factor` after `patience` evaluations in a row that are no better than the best.

    All factors together are never below `min_factor`.
    """

    def __init__(
        self,
        metric: str,
        factor: float = 0.1,
        patience: int = 1,
        mode: Literal["max", "min"] = "max",
        min_delta: float = 0.0,
        min_factor: float = 1e-3,
    ) -> None:
        super().__init__(metric, mode, min_delta)
        if not 0 < factor < 1:
            raise ValueError(f"factor: expected a number between 0 and 1. Received: {factor}")
        if patience < 1:
            raise ValueError(f"patience: expected 1 or more evaluations. Received: {patience}")
        if not 0 < min_factor <= 1:
            raise ValueError(f"min_factor: expected a number above 0, up to 1. Received: {min_factor}")
        self.factor = factor
        self.patience = patience
        self.min_factor = min_factor
        self.waited = 0

    def on_evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        super().on_evaluation(step, metrics)
        self.waited = 0 if self.best_step == step else self.waited + 1
        if self.waited >= self.patience:
            self.rate_factor, self.waited = max(self.rate_factor * self.factor, self.min_factor), 0

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "waited": self.waited, "rate_factor": self.rate_factor}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.waited, self.rate_factor = state["waited"], state["rate_factor"]
