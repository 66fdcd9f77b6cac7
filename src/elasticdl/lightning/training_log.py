"""Replaces `self.log` in training_step: a worker computes its share of the batch, and the whole batch is logged.

The values of all batches of a step are averaged over the workers together with the gradients, then logged once.
Averages over an epoch are kept here and not by Lightning, because a newcomer needs those of the steps before it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torchmetrics import Metric, MetricCollection

from elasticdl.errors import SpecError
from elasticdl.worker.training.step import Step

_PASSED_ON = ("prog_bar", "logger")


class TrainingLog:
    """Replaces `LightningModule.log` while the module is trained. Outside of training_step it passes calls on."""

    def __init__(self, log: Callable[..., None]) -> None:
        self._log = log
        self._signature = inspect.signature(log)
        self.step: Step | None = None  # whose batches are computed now
        self._options: dict[str, dict[str, Any]] = {}
        self._sums: dict[str, list[float]] = {}  # of this epoch: weighted sum and records

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        step = self.step
        if step is None:
            self._log(*args, **kwargs)
            return
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        options = bound.arguments
        name, value = options["name"], options["value"]
        self._check(name, value, options["reduce_fx"])
        on_step = True if options["on_step"] is None else options["on_step"]
        self._options[name] = {key: options[key] for key in _PASSED_ON} | {
            "on_step": on_step,
            "on_epoch": bool(options["on_epoch"]),
        }
        step.measure(name, value)

    def _check(self, name: str, value: Any, reduce_fx: Any) -> None:
        if isinstance(value, Metric | MetricCollection):
            raise SpecError(
                f"self.log({name!r}, …) in training_step was given a torchmetrics.Metric, which would count the "
                "records of this worker only; log the value of the batch: self.log(name, metric(predictions, labels))"
            )
        if reduce_fx not in ("mean", torch.mean, "avg"):
            raise SpecError(
                f"self.log({name!r}, reduce_fx={reduce_fx!r}) in training_step: expected the mean; log other "
                "reductions in validation_step"
            )

    def begin_epoch(self) -> None:
        self._sums = {}

    def flush(self, step: Step) -> None:
        """Log the averages over the batches of `step`, and those of the epoch after its last step."""
        for name, average in step.averages.items():
            options = self._options.get(name, {"on_step": True, "on_epoch": False})
            shown = {key: options[key] for key in _PASSED_ON if key in options}
            is_forked = options["on_step"] and options["on_epoch"]
            if options["on_step"]:
                self._log(f"{name}_step" if is_forked else name, average, on_step=True, on_epoch=False, **shown)
            if options["on_epoch"]:
                total = self._sums.setdefault(name, [0.0, 0.0])
                total[0] += average * step.planned_records
                total[1] += step.planned_records
        if step.is_last_of_epoch:
            self._log_epoch()

    def _log_epoch(self) -> None:
        for name, (total, records) in self._sums.items():
            options = self._options[name]
            shown = {key: options[key] for key in _PASSED_ON}
            options_of_epoch: dict[str, Any] = {"on_step": False, "on_epoch": True, "batch_size": 1}
            if options["on_step"]:
                self._log(f"{name}_epoch", total / records, **options_of_epoch, **shown)
                shown = {"prog_bar": False, "logger": False}
            self._log(name, total / records, **options_of_epoch, **shown)

    def state_dict(self) -> dict[str, Any]:
        return {"options": dict(self._options), "sums": {name: list(total) for name, total in self._sums.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._options = dict(state["options"])
        self._sums = {name: list(total) for name, total in state["sums"].items()}
