"""One update, as one worker computes it: a step of the plan, or several one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from elasticdl.collective.tree import Share
from elasticdl.data.dataset import Batch
from elasticdl.errors import ElasticDLError
from elasticdl.worker.feed import Feed
from elasticdl.worker.tables import NoTables
from elasticdl.worker.training import Training, seed_everything


class Step:
    """Iterate over its batches and call `backward` for each."""

    def __init__(
        self, number: int, share: Share, training: Training, feed: Feed, tables: NoTables, passes: int = 1
    ) -> None:
        """`passes`: steps of the plan that make the update, of which `number` is the first."""
        self.number = number
        self.passes = passes
        self._share = share
        self._training = training
        self._feed = feed
        self._tables = tables
        self._planned = sum(len(feed.plan.batch(number + one)) for one in range(passes))
        self._open: tuple[int, int, int] | None = None  # logical rank, pass and size of what waits for its loss
        self.losses: dict[int, torch.Tensor] = {}
        self.records = 0
        self.buffers: dict[str, torch.Tensor] = {}
        self._is_complete = False

    @property
    def epoch(self) -> int:
        return self._feed.plan.epoch_of(self.number)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        before = self._training.buffers()
        for rank in range(self._share.first, self._share.stop):
            if before and rank != self._share.first:
                self._training.set_buffers(before)
            # All passes of a rank, then the next: so one buffer is enough for their sum.
            for one in range(self.passes):
                batch = self._batch(self.number + one, rank)
                if batch is None:
                    self._training.gradients.skip(rank, one, self.passes)
                    continue
                self._open = (rank, one, batch.size)
                yield batch.features, batch.labels
                if self._open is not None:
                    raise ElasticDLError(f"step {self.number}: call step.backward(loss) once for every batch")
            if rank == 0:
                self.buffers = self._training.buffers()
        if before:
            self._training.set_buffers(before)
        self._is_complete = True

    def _batch(self, number: int, rank: int) -> Batch | None:
        seed = self._feed.plan.seed
        seed_everything(seed, number, rank)
        batch = self._feed.batch(number, rank)
        if batch is not None:
            self._tables.begin(batch.features)
        if self._tables.looks_ahead:
            # The next batch is made before this one computes, so that its rows are on their way meanwhile.
            assert self.passes == 1, "rows are pushed batch by batch"
            following = (number, rank + 1) if rank + 1 < self._share.stop else (number + 1, self._share.first)
            if following[0] < self._feed.plan.total_steps:
                seed_everything(seed, *following)
                early = self._feed.early(*following)
                if early is not None:
                    self._tables.ahead(early.features)
            seed_everything(seed, number, rank, 1)  # nor does this one then depend on whether it was made early
        return batch

    def check(self) -> None:
        if not self._is_complete:
            raise ElasticDLError(f"step {self.number}: iterate over all its batches, `for features, labels in step`")

    def backward(self, loss: torch.Tensor) -> None:
        """Take the mean loss of the current batch."""
        if self._open is None:
            raise ElasticDLError(f"step {self.number}: backward was called twice for one batch, or outside of one")
        (rank, one, size), self._open = self._open, None
        weight = size / self._planned
        self._training.gradients.backward(loss, rank, weight, one, self.passes)
        self._tables.push(rank, self.number, self._training.next_rate, loss)
        earlier = self.losses.get(rank)
        self.losses[rank] = loss.detach() * weight if earlier is None else earlier + loss.detach() * weight
        self.records += size

    @property
    def planned(self) -> int:
        """Records the plan has for the whole update."""
        return self._planned
