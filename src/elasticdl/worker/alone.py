"""A training run of one process without a master: the same steps and, with the same logical ranks, the same bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import nn

from elasticdl.collective.gradients import Gradients
from elasticdl.collective.tree import Share, Tree
from elasticdl.data.dataset import Dataset
from elasticdl.data.plan import Plan
from elasticdl.model.callbacks import Callback
from elasticdl.spec import BatchRule
from elasticdl.worker.batch import Batch, Update
from elasticdl.worker.feed import Feed
from elasticdl.worker.step import Step
from elasticdl.worker.tables import NoTables
from elasticdl.worker.tail import Tail
from elasticdl.worker.training import Training


class Alone:
    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        dataset: Dataset,
        plan: Plan,
        callbacks: Sequence[Callback],
        learning_rate: Callable[[int], float | None],
        device: torch.device,
        tables: NoTables,
    ) -> None:
        gradients = Gradients(
            model.parameters(), Tree(plan.logical_ranks), Tail(plan.logical_ranks).length, ordered=True
        )
        batch = Batch(BatchRule.NONE, plan.global_batch)
        self.training = Training(model, optimizer, gradients, callbacks, learning_rate, batch)
        self._feed = Feed(dataset, plan, device)
        self._plan = plan
        self._tables = tables

    def steps(self) -> Iterator[Step]:
        training, share = self.training, Share(0, self._plan.logical_ranks)
        training.begin()
        self._tables.first_values()
        for callback in training.callbacks:
            callback.on_train_begin(training.model)
        while training.step < self._plan.total_steps:
            training.gradients.start(share)
            self._feed.expect(training.step, share)
            step = Step(training.step, share, training, self._feed, self._tables)
            yield step
            step.check()
            reduced = training.gradients.sums()[0]
            losses = [float(step.losses.get(rank, 0.0)) for rank in range(share.stop)]
            training.weigh(reduced, losses, step.records, step.planned)
            training.apply(reduced, Update(step.records, rate_factor=training.wanted_factor), step.buffers)
            training.completed(self._plan)
        self._feed.close()
