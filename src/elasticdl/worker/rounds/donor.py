"""Sends the state and the updates to newcomers, between two steps and without delaying them."""

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
    """The state transfers from this worker.

    The listener's thread calls `start_transfer`, the training thread all other methods. A newcomer may connect before
    this worker knows its round, and is sent the state once it does. A newcomer that a later round leaves out is sent
    nothing any more, and nothing is kept for it.
    """

    def __init__(self, stall_s: float) -> None:
        """`stall_s`: a transfer without progress for this long is aborted."""
        self._stall_s = stall_s
        self._lock = threading.Lock()
        self._senders: list[StateSender] = []
        self._closing: list[StateSender] = []  # complete, but not delivered yet
        self._newcomers: frozenset[str] = frozenset()  # of the round that was planned last

    def start_transfer(self, worker: str, connection: socket.socket) -> None:
        """Begin a transfer to `worker` over an authenticated connection; it replaces an older transfer."""
        sender = StateSender(worker, connection, stall_s=self._stall_s).start()
        with self._lock:
            for older in self._senders:
                if older.worker == worker:
                    older.abort()
            self._senders.append(sender)

    def set_newcomers(self, newcomers: Sequence[str]) -> None:
        """Set the newcomers that get the state from this worker. Transfers to others that have begun are aborted."""
        expected = frozenset(newcomers)
        for sender in self._open_senders():
            if sender.has_begun and sender.worker not in expected:
                _log.info("state transfer to %s ended: it is in no planned round any more", sender.worker)
                sender.abort()
        self._newcomers = expected

    def are_caught_up(self, newcomers: Sequence[str], step: int, step_s: float) -> bool:
        """Whether each of these newcomers is at most one step behind, or a negligible time."""
        behind = 1 + int(_NEGLIGIBLE_S / step_s) if step_s else 1
        close = {sender.worker for sender in self._senders_to_newcomers() if sender.is_caught_up(step, behind)}
        return close.issuperset(newcomers)

    def has_followers(self) -> bool:
        """Whether a newcomer follows by updates."""
        return any(sender.is_following for sender in self._senders_to_newcomers())

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
        """Send the update that was just applied to every newcomer. `enter`: the round to enter next, 0 for none.

        A newcomer that enters also gets the user's state and hyperparameters: only the script knows how they change.
        """
        state = None
        has_gradients = all(call.gradient is not None for call in calls)
        for sender in self._senders_to_newcomers():
            if sender.is_following and (not has_gradients or sender.position != training.update_start_position):
                sender.restart()  # it misses an update, or this worker has taken over another's state
            if sender.is_following:
                self._send_optimizer_steps(sender, training, update, calls, buffers, enter, ends_step=ends_step)
                if enter:
                    sender.close()
                    self._closing.append(sender)
            elif enter:
                sender.abort()  # the others wait in the round: it must not wait for a state
            elif sender.needs_state and ends_step:
                state = state or training.capture()
                sender.send_state(state, training.position)
        if enter:
            self._newcomers = frozenset()

    def _send_optimizer_steps(
        self,
        sender: StateSender,
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
                # After the script has stepped its schedulers; those of the call are from before that.
                header["hyperparameters"] = [get_hyperparameters(optimizer) for optimizer in training.optimizers]
            position = training.position if is_last else training.update_start_position
            sender.send_update(training.step, header, tensors, enter if is_last else 0, position, is_needed=bool(enter))
            if not sender.is_following:
                return  # the update was dropped: the newcomer could not keep up

    def close(self, timeout_s: float) -> None:
        """End all transfers; those that are complete are delivered first."""
        for sender in self._open_senders():
            sender.abort()
        for sender in self._closing:
            sender.wait(timeout_s)

    def _senders_to_newcomers(self) -> list[StateSender]:
        return [sender for sender in self._open_senders() if sender.worker in self._newcomers]

    def _open_senders(self) -> list[StateSender]:
        now = time.monotonic()
        with self._lock:
            for sender in self._senders:
                # A worker that is no newcomer may have come too early, but not so early.
                if sender.worker not in self._newcomers and now - sender.began_at > self._stall_s:
                    sender.abort()
            self._senders = [sender for sender in self._senders if not sender.is_over]
            self._closing = [sender for sender in self._closing if not sender.has_ended]
            return list(self._senders)
