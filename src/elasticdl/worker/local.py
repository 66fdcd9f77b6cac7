"""Training in one process without a master: the same steps and, with the same logical ranks, the same bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import nn

from elasticdl.collective.gradients import GradientBuffers
from elasticdl.collective.tree import RankRange, ReductionTree
from elasticdl.data.dataset import Dataset
from elasticdl.data.plan import TrainingPlan
from elasticdl.errors import ElasticDLError
from elasticdl.model.callbacks import Callback
from elasticdl.spec import BatchRule
from elasticdl.worker.embeddings.tables import EmbeddingTables
from elasticdl.worker.reading.feed import Feed, open_feed
from elasticdl.worker.rounds.step_report import StepReportLayout
from elasticdl.worker.training.adaptive_batch import AdaptiveBatch, Update
from elasticdl.worker.training.state import TrainingState
from elasticdl.worker.training.step import Step
from elasticdl.worker.training.user_state import UserState


class LocalTraining:
    def __init__(
        self,
        model: nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        dataset: Dataset | Feed,
        plan: TrainingPlan,
        callbacks: Sequence[Callback],
        learning_rate: Callable[[int], float | None],
        device: torch.device,
        tables: EmbeddingTables,
        user_state: UserState | None = None,
    ) -> None:
        tail = StepReportLayout(plan.logical_ranks).length
        gradients = GradientBuffers(
            model.parameters(), ReductionTree(plan.logical_ranks), tail, ordered=True, warns=True
        )
        batch = AdaptiveBatch(BatchRule.NONE, plan.global_batch)
        self.training = TrainingState(
            model, optimizers, gradients, callbacks, learning_rate, batch, user_state, plan.seed
        )
        self._feed = open_feed(dataset, plan, device)
        self._plan = plan
        self._tables = tables
        self.stop_reason = ""

    def start_reading(self) -> None:
        """Let loader processes begin with the first step."""
        self._feed.prefetch(0, RankRange(0, self._plan.logical_ranks))

    def steps(self) -> Iterator[Step]:
        training = self.training
        training.begin()
        self._tables.put_initial_rows()
        for callback in training.callbacks:
            callback.on_train_begin(training.model)
        while training.step < self._plan.total_steps and not self.stop_reason:
            step = Step(training.step, training, self._feed, self._tables, self)
            try:
                yield step
            except GeneratorExit:  # the script leaves the loop: what is whole is applied
                if step.is_reduced:
                    self._close_update(step, is_left=True)
                training.gradients.uninstall()
                self._feed.close()
                raise
            if not step.is_reduced:
                raise ElasticDLError(
                    f"step {step.number}: iterate over all its batches, `for features, labels in step`"
                )
            training.layout.check_trained(step.number, step.trained)
            self._close_update(step)
            reason = next((callback.stop_reason for callback in training.callbacks if callback.stop_reason), None)
            self.stop_reason = self.stop_reason or reason or ""
        self._tables.flush()
        self._feed.close()

    def stop(self, reason: str) -> None:
        """End the loop after this step."""
        self.stop_reason = reason

    def begin_update(self, step: Step) -> None:
        if step.is_reduced:
            self._close_update(step, is_last=False)
        share = RankRange(0, self._plan.logical_ranks)
        self.training.layout.check_unchanged(step.number, step.trained)
        self.training.gradients.start_update(share)
        step.start(share)

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

    def _close_update(self, step: Step, *, is_last: bool = True, is_left: bool = False) -> None:
        step.is_reduced = False
        self.training.close_update(is_last=is_last, is_left=is_left)
        step.updates += 1
        if is_last:
            self.training.notify_step_end(self._plan)
