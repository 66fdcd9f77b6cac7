"""The training state as rounds see it: members hold the same one, and newcomers receive it."""

from __future__ import annotations

from typing import Protocol

import torch

from elasticdl.checkpoint.captured_state import CapturedState
from elasticdl.collective.frames import Frame
from elasticdl.errors import RoundBroken
from elasticdl.worker.embeddings.tables import EmbeddingTables
from elasticdl.worker.rounds.donor import BUFFER_PREFIX
from elasticdl.worker.training.adaptive_batch import Update
from elasticdl.worker.training.consistency import set_hyperparameters
from elasticdl.worker.training.state import NO_STATE, TrainingState


class SharedState(Protocol):
    """A state that is the same in all members of a round between two steps."""

    @property
    def step(self) -> int:
        """The steps that are applied."""

    @property
    def position(self) -> int:
        """How far it is: a state with a greater position is newer. NO_STATE if there is none."""

    def capture(self) -> CapturedState:
        """A copy of the state."""

    def load(self, captured: CapturedState) -> None:
        """Become the captured state."""

    def discard(self) -> None:
        """Hold no state any more."""

    def discard_step(self) -> None:
        """Forget what was computed of a step whose round broke."""

    def apply_update(self, frame: Frame) -> None:
        """Repeat an update of the donor. Raises RoundBroken if it does not follow from this state."""


def has_state(state: SharedState) -> bool:
    return state.position != NO_STATE


class ModelState:
    """The state of a model: its weights and optimizers, to which gradients are applied."""

    def __init__(self, training: TrainingState, tables: EmbeddingTables) -> None:
        self._training = training
        self._tables = tables

    @property
    def step(self) -> int:
        return self._training.step

    @property
    def position(self) -> int:
        return self._training.position

    def capture(self) -> CapturedState:
        return self._training.capture()

    def load(self, captured: CapturedState) -> None:
        self._training.load(captured)

    def discard(self) -> None:
        self._training.discard()

    def discard_step(self) -> None:
        self._training.gradients.discard()
        self._tables.discard_step()

    def apply_update(self, frame: Frame) -> None:
        header, training, gradients = frame.header, self._training, self._training.gradients
        if header["is_first"] and training.position != header["from"]:
            raise RoundBroken(f"an update of position {header['from']} for a state of position {training.position}")
        buffer = gradients.acquire()
        if "gradient" in frame.tensors:
            gradients.flat(buffer).copy_(frame.tensors["gradient"])
        buffers: dict[str, torch.Tensor] = {
            name.removeprefix(BUFFER_PREFIX): tensor
            for name, tensor in frame.tensors.items()
            if name.startswith(BUFFER_PREFIX)
        }
        training.replay_update(buffer, Update.from_header(header["update"]), buffers, header)
        gradients.release([buffer])
        if "user_state" in header:
            training.load_user_state(header["user_state"], frame.tensors)
            for optimizer, groups in zip(training.optimizers, header["hyperparameters"], strict=True):
                set_hyperparameters(optimizer, groups)
