"""Sends the state and the updates to newcomers between two steps, without making anyone wait."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from elasticdl.collective.state_transfer import StateSender
from elasticdl.worker.training.adaptive_batch import Update
from elasticdl.worker.training.consistency import get_hyperparameters
from elasticdl.worker.training.state import OptimizerStep, TrainingState

_log = logging.getLogger(__name__)

BUFFER_PREFIX = "buffer/"
SKIPPED_STEP = OptimizerStep(-1, [], [], None)  # an update that the script did not apply
_NEGLIGIBLE_S = 0.03


class StateDonor:
    """The hand-overs this worker gives. `open` is called by the door's thread, the rest by the training thread.

    A newcomer may come before this worker has heard of its round, and is fed once it has; one that a later round leaves
    out is not fed any more, and nothing is kept for it.
    """

    def __init__(self, stall_s: float) -> None:
        """`stall_s`: a hand-over in which nothing moves for so long is given up."""
        self._stall_s = stall_s
        self._lock = threading.Lock()
        self._donations: list[StateSender] = []
        self._closing: list[StateSender] = []  # the newcomer still takes what it was given
        self._wanted: frozenset[str] = frozenset()  # newcomers to the round planned last

    def start_transfer(self, worker: str, connection: socket.socket) -> None:
        """Begin a hand-over to `worker` over a connection that it has shown to be its own; replaces an older one."""
        donation = StateSender(worker, connection, stall_s=self._stall_s)
        with self._lock:
            for older in [d for d in self._donations if d.worker == worker]:
                older.abort()
            self._donations.append(donation)

    def set_newcomers(self, newcomers: Sequence[str]) -> None:
        """These are the newcomers that get the state from this worker; all other hand-overs that began end."""
        wanted = frozenset(newcomers)
        for donation in self._open_senders():
            if donation.has_begun and donation.worker not in wanted:
                _log.info("hand-over to %s ended: it is in no planned round any more", donation.worker)
                donation.abort()
        self._wanted = wanted

    def are_caught_up(self, newcomers: Sequence[str], step: int, step_s: float) -> bool:
        """Whether each of these newcomers is at most one step behind, or so little that nobody would notice."""
        behind = 1 + int(_NEGLIGIBLE_S / step_s) if step_s else 1
        close = {donation.worker for donation in self._wanted_senders() if donation.is_caught_up(step, behind)}
        return close.issuperset(newcomers)

    def has_followers(self) -> bool:
        """Whether a newcomer follows by updates."""
        return any(donation.is_following for donation in self._wanted_senders())

    def send_update(
        self,
        training: TrainingState,
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
        are_kept = all(call.gradient is not None for call in calls)
        for donation in self._wanted_senders():
            if donation.is_following and (not are_kept or donation.position != training.update_start_position):
                donation.restart()  # it misses an update, or this worker has taken the state of another
            if donation.is_following:
                self._send_optimizer_steps(donation, training, update, calls, buffers, enter, ends_step=ends_step)
                if enter:
                    donation.close()
                    self._closing.append(donation)
            elif enter:
                donation.abort()  # the others wait for it in the round: it must not wait for an image
            elif donation.needs_image and ends_step:
                image = image or training.capture()
                donation.send_image(image, training.position)
        if enter:
            self._wanted = frozenset()

    def _send_optimizer_steps(
        self,
        donation: StateSender,
        training: TrainingState,
        update: Update,
        calls: Sequence[OptimizerStep],
        buffers: Mapping[str, torch.Tensor],
        enter: int,
        *,
        ends_step: bool,
    ) -> None:
        for number, call in enumerate(calls or [SKIPPED_STEP]):
            is_last = number >= len(calls) - 1
            header: dict[str, Any] = {
                "update": update.to_header(), **call.to_header(), "from": training.update_start_position,
                "is_first": number == 0, "is_last": is_last, "ends_step": ends_step,
                "is_explicit": training.is_explicit,
            }  # fmt: skip
            tensors: dict[str, torch.Tensor] = {}
            if call.gradient is not None:
                tensors["gradient"] = call.gradient
            if number == 0:
                tensors |= {f"{BUFFER_PREFIX}{name}": buffer.to("cpu", copy=True) for name, buffer in buffers.items()}
            if is_last and enter:
                header["user_state"] = training.user_state.capture(tensors)
                # After the script has stepped its schedulers; those of the call are from before.
                header["hyperparameters"] = [get_hyperparameters(optimizer) for optimizer in training.optimizers]
            position = training.position if is_last else training.update_start_position
            donation.send_update(
                training.step, header, tensors, enter if is_last else 0, position, is_needed=bool(enter)
            )
            if not donation.is_following:
                return  # dropped: it could not keep up

    def close(self, timeout_s: float) -> None:
        """End all hand-overs; those that were completed are delivered first."""
        for donation in self._open_senders():
            donation.abort()
        for donation in self._closing:
            donation.wait(timeout_s)

    def _wanted_senders(self) -> list[StateSender]:
        return [donation for donation in self._open_senders() if donation.worker in self._wanted]

    def _open_senders(self) -> list[StateSender]:
        now = time.monotonic()
        with self._lock:
            for donation in self._donations:
                # One that nobody wants may come too early, but not by as much as this.
                if donation.worker not in self._wanted and now - donation.began_at > self._stall_s:
                    donation.abort()
            self._donations = [donation for donation in self._donations if not donation.is_over]
            self._closing = [donation for donation in self._closing if not donation.has_ended]
            return list(self._donations)
