"""Feeding newcomers between two steps, without making anyone wait."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

import torch

from elasticdl.collective.handover import Donation
from elasticdl.worker.batch import Update
from elasticdl.worker.training import Training

_UNNOTICED_S = 0.03


class Donor:
    """The hand-overs this worker gives. `add` is called by the desk's threads, the rest by the training thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._donations: list[Donation] = []
        self._closing: list[Donation] = []  # the newcomer still takes what it was given
        self._gradient: torch.Tensor | None = None

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

    def before_update(self, gradient: torch.Tensor) -> None:
        """Keep the reduced gradient as it is before callbacks change it: the newcomer runs them too."""
        wanted = any(not donation.needs_image for donation in self._living())
        self._gradient = gradient.to("cpu", copy=True) if wanted else None

    def after_update(self, training: Training, update: Update, buffers: Mapping[str, torch.Tensor], enter: int) -> None:
        """Tell every newcomer of the step just applied; those that enter the next round are told so."""
        image = None
        for donation in self._living():
            if self._gradient is not None and not donation.needs_image:
                on_host = {f"buffer/{name}": buffer.to("cpu", copy=True) for name, buffer in buffers.items()}
                donation.give_update(training.step, update.header(), self._gradient, on_host, enter)
                if enter:
                    donation.close()
                    self._closing.append(donation)
            else:
                image = image or training.capture()
                donation.give_image(image)

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
