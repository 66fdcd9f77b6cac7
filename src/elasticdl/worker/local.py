"""Training in one process without a master: the same steps and, with the same logical ranks, the same bits."""

from __future__ import annotations

from typing import Self

import torch

from elasticdl.collective.gradients import GradientBuffers
from elasticdl.collective.tree import RankRange, ReductionTree
from elasticdl.data.dataset import Dataset
from elasticdl.data.plan import TrainingPlan
from elasticdl.spec import LrScaling
from elasticdl.worker.embeddings.tables import EmbeddingTables
from elasticdl.worker.reading.feed import Feed, open_feed
from elasticdl.worker.rounds.step_report import StepReportLayout
from elasticdl.worker.training.adaptive_batch import AdaptiveBatch, Update
from elasticdl.worker.training.loop import TrainingLoop, TrainingSetup
from elasticdl.worker.training.state import TrainingState
from elasticdl.worker.training.step import Step


class LocalTraining(TrainingLoop):
    """A training that this process does alone. Implements `elasticdl.torch.join.TrainingRun`."""

    name = "local"
    worker = "worker-0"
    world_size = 1
    is_first = True
    has_left = False

    @classmethod
    def open(cls, setup: TrainingSetup, dataset: Dataset | Feed, plan: TrainingPlan) -> Self:
        """A training of the model of `setup`, whose hooks are registered."""
        gradients = GradientBuffers(
            setup.model.parameters(),
            ReductionTree(plan.logical_ranks),
            StepReportLayout(plan.logical_ranks).length,
            ordered=True,
            warns=True,
        )
        training = TrainingState(
            setup.model,
            setup.optimizers,
            gradients,
            setup.callbacks,
            setup.learning_rate,
            AdaptiveBatch(LrScaling.NONE, plan.global_batch),
            setup.user_state,
            plan.seed,
        )
        return cls(training.register_hooks(), open_feed(dataset, plan, setup.device), setup.tables)

    def __init__(self, training: TrainingState, feed: Feed, tables: EmbeddingTables) -> None:
        super().__init__(training, feed, tables)
        self._share = RankRange(0, feed.plan.logical_ranks)

    def start_reading(self) -> None:
        """Let loader processes begin with the first step."""
        self._feed.prefetch(0, self._share)

    def stop(self, reason: str) -> None:
        """End the loop after this step."""
        self.stop_reason = reason

    def finish_loop_exit(self) -> None:
        """A script that trains alone may leave its loop at any step: there are no other members."""

    def close(self) -> None:
        self._feed.close()

    def reduce(self, step: Step) -> bool:
        training = self.training
        reduced = training.gradients.node_sums()[0]
        step.averages = step.measurements.averages()
        # Rounded as they would be in the tail of an exchange.
        losses = torch.tensor(
            [float(step.losses.get(rank, 0.0)) for rank in range(step.share.stop)], dtype=training.gradients.dtype
        ).tolist()
        training.normalize_gradients(reduced, losses, step.records, step.planned_records)
        touched = [bool(is_touched) for is_touched in training.gradients.touched]
        update = Update(step.records, rate_factor=training.wanted_rate_factor, loss=training.loss)
        training.open_update(reduced, update, step.buffers, touched)
        step.is_reduced = True
        return True

    def _begin(self) -> None:
        self.training.begin()
        self._tables.put_initial_rows()

    def _make_step(self) -> Step:
        return Step(self.training.step, self.training, self._feed, self._tables, self)

    def _start_update(self, step: Step) -> None:
        self.training.gradients.start_update(self._share)
        step.start(self._share)

    def _close_update(self, step: Step, *, is_last: bool, is_left: bool = False) -> None:
        step.is_reduced = False
        self.training.close_update(is_last=is_last, is_left=is_left)
        step.updates += 1
        if is_last:
            self.training.notify_step_end(self.plan)

    def _handle_loop_exit(self, step: Step) -> None:
        if step.is_reduced:
            self._close_update(step, is_last=True, is_left=True)
        self.training.gradients.uninstall()
        self.close()

    def _after_step(self) -> None:
        self.stop_reason = self.stop_reason or self._callback_stop_reason

    def _end(self) -> None:
        self.close()
