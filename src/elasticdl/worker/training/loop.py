"""The loop over the steps of a plan: what training with other workers and training alone have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from elasticdl.data.plan import TrainingPlan
from elasticdl.errors import ElasticDLError
from elasticdl.model.callbacks import Callback
from elasticdl.worker.embeddings.tables import EmbeddingTables, NoTables
from elasticdl.worker.reading.feed import Feed
from elasticdl.worker.training.state import TrainingState
from elasticdl.worker.training.step import Step
from elasticdl.worker.training.user_state import UserState


def keep_learning_rate(step: int) -> float | None:
    """The `learning_rate` of a training whose optimizer keeps the rate it was built with."""
    return None


@dataclass(frozen=True)
class TrainingSetup:
    """The parts of a training that a model file or a script provides."""

    model: nn.Module
    optimizers: Sequence[torch.optim.Optimizer]
    device: torch.device
    tables: EmbeddingTables = field(default_factory=NoTables)
    callbacks: Sequence[Callback] = ()
    learning_rate: Callable[[int], float | None] = keep_learning_rate  # by step; None: the optimizer's own
    user_state: UserState | None = None
    model_files: Mapping[str, bytes] = field(default_factory=dict)  # of the model file, for checkpoints


class TrainingLoop(ABC):
    """Yields the steps of a plan to the code that computes them; applies updates that the script has not applied."""

    def __init__(self, training: TrainingState, feed: Feed, tables: EmbeddingTables) -> None:
        self.training = training
        self.plan: TrainingPlan = feed.plan
        self.stop_reason = ""  # why training ended before the plan did
        self._feed = feed
        self._tables = tables

    @property
    def is_done(self) -> bool:
        return bool(self.stop_reason) or self.training.step >= self.plan.total_steps

    def steps(self) -> Iterator[Step]:
        """Every step from here to the end of the plan. Ends early if stopped, or if this worker has left."""
        self._begin()
        for callback in self.training.callbacks:
            callback.on_train_begin(self.training.model)
        while not self._has_ended:
            step = self._make_step()
            try:
                yield step
            except GeneratorExit:
                self._handle_loop_exit(step)
                raise
            if not step.is_reduced and not step.is_void:
                raise ElasticDLError(
                    f"step {step.number}: iterate over all its batches, `for features, labels in step`"
                )
            self.training.layout.check_trained(step.number, step.trained)
            self._close_update(step, is_last=True)
            self._after_step()
        self._tables.flush()
        self._end()

    def begin_update(self, step: Step) -> None:
        """The batches of an update of `step` are about to be computed; closes the update before it."""
        if step.is_reduced or step.is_void:
            self._close_update(step, is_last=False)
        self.training.layout.check_unchanged(step.number, step.trained)
        self._start_update(step)

    @abstractmethod
    def reduce(self, step: Step) -> bool:
        """Make the gradients whole. False: the batches of another share must be computed."""

    @property
    def _has_ended(self) -> bool:
        return self.is_done

    @property
    def _callback_stop_reason(self) -> str:
        return next((callback.stop_reason for callback in self.training.callbacks if callback.stop_reason), "")

    @abstractmethod
    def _begin(self) -> None:
        """Hold a state before the first step."""

    @abstractmethod
    def _make_step(self) -> Step: ...

    @abstractmethod
    def _start_update(self, step: Step) -> None: ...

    @abstractmethod
    def _close_update(self, step: Step, *, is_last: bool, is_left: bool = False) -> None:
        """Apply what the script has not applied. `is_left`: the script has left its loop."""

    @abstractmethod
    def _handle_loop_exit(self, step: Step) -> None:
        """The script breaks out of its loop, or fails, in `step`."""

    @abstractmethod
    def _after_step(self) -> None:
        """Between two steps."""

    @abstractmethod
    def _end(self) -> None:
        """After the last step."""
