"""Feeding newcomers between two steps, without making anyone wait."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from elasticdl.collective.handover import Donation
from elasticdl.worker.batch import Update
from elasticdl.worker.guard import hyperparameters
from elasticdl.worker.training import OptimizerStep, Training

BUFFER = "buffer/"
SKIPPED = OptimizerStep(-1, [], [], None)  # an update that the script did not apply
_UNNOTICED_S = 0.03


class Donor:
    """The hand-overs this worker gives. `add` is called by the desk's threads, the rest by the training thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._donations: list[Donation] = []
        self._closing: list[Donation] = []  # the newcomer still takes what it was given

    def add(self, donation: Donation) -> None:
        with self._lock:
            for older in [d for d in self._donations if d.worker == donation.worker]:
                older.abort()
            self._donations.append(donation)

    def is_ready(self, newcomers: Sequence[str], step: int, step_s: float) -> bool:
        """Whether each of these newcomers is at most one step behind, or so little that nobody would notice."""
        behind = 1 + int(_UNNOTICED_S / step_s) if step_s else 1
        close = {donation.worker for donation in self._living() if donation.is_close(step, behind)}
        return close.issuperset(newcomers)

    def wants_gradients(self) -> bool:
        """Whether a newcomer follows by updates."""
        return any(not donation.needs_image for donation in self._living())

    def after_update(
        self,
        training: Training,
        update: Update,
        calls: Sequence[OptimizerStep],
        buffers: Mapping[str, torch.Tensor],
        enter: int,
        *,
        ends_step: bool,
    ) -> None:
        """Tell every newcomer of the update just applied; those that enter the next round are told so.

        Whoever enters also gets the user's state and hyperparameters: only the script knows how they change.
        """
        image = None
        for donation in self._living():
            if donation.needs_image or any(call.gradient is None for call in calls):
                if ends_step:
                    image = image or training.capture()
                    donation.give_image(image)
                else:
                    donation.start_over()
                continue
            self._give_calls(donation, training, update, calls, buffers, enter, ends_step=ends_step)
            if enter:
                donation.close()
                self._closing.append(donation)

    def _give_calls(
        self,
        donation: Donation,
        training: Training,
        update: Update,
        calls: Sequence[OptimizerStep],
        buffers: Mapping[str, torch.Tensor],
        enter: int,
        *,
        ends_step: bool,
    ) -> None:
        for number, call in enumerate(calls or [SKIPPED]):
            is_last = number >= len(calls) - 1
            header: dict[str, Any] = {
                "update": update.header(), **call.header(),
                "is_first": number == 0, "is_last": is_last, "ends_step": ends_step,
                "is_explicit": training.is_explicit,
            }  # fmt: skip
            tensors: dict[str, torch.Tensor] = {}
            if call.gradient is not None:
                tensors["gradient"] = call.gradient
            if number == 0:
                tensors |= {f"{BUFFER}{name}": buffer.to("cpu", copy=True) for name, buffer in buffers.items()}
            if is_last and enter:
                header["user_state"] = training.user_state.capture(tensors)
                # After the script has stepped its schedulers; those of the call are from before.
                header["hyperparameters"] = [hyperparameters(optimizer) for optimizer in training.optimizers]
            donation.give_update(training.step, header, tensors, enter if is_last else 0)

    def close(self, timeout_s: float) -> None:
        """End all hand-overs; those that were completed are delivered first."""
        for donation in self._living():
            donation.abort()
        for donation in self._closing:
            donation.wait(timeout_s)

    def _living(self) -> list[Donation]:
        with self._lock:
            self._donations = [donation for donation in self._donations if not donation.is_over]
            return list(self._donations)
