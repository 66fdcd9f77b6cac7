"""Reads the records of a step ahead, logical rank by logical rank."""

from __future__ import annotations

from typing import Protocol

import torch

from elasticdl.collective.tree import RankRange
from elasticdl.data.dataset import Batch, Dataset
from elasticdl.data.interface import Indices
from elasticdl.data.plan import TrainingPlan
from elasticdl.data.prefetch import Prefetcher
from elasticdl.model import tensors
from elasticdl.worker.training.numerics import seed_everything

_PREFETCH_STEPS = 2  # steps


class Feed(Protocol):
    """Gives the batches of the plan, logical rank by logical rank. The training thread uses it."""

    @property
    def plan(self) -> TrainingPlan: ...

    def prefetch(self, step: int, share: RankRange, passes: int = 1) -> None:
        """From `step` on, read this share ahead, `passes` steps at a time, rank by rank."""

    def read_early(self, step: int, logical_rank: int) -> Batch | None:
        """As `read_batch`, for the batch that is asked for next."""

    def read_batch(self, step: int, logical_rank: int) -> Batch | None:
        """The slice of one logical rank; None if it has no records.

        Random numbers that are drawn afterwards depend on (seed, step, logical rank), not on where the slice was read.
        """

    def close(self) -> None:
        """End what reads ahead."""


def open_feed(data: Dataset | Feed, plan: TrainingPlan, device: torch.device) -> Feed:
    """A feed of `data`; a feed is returned as it is."""
    return RecordFeed(data, plan, device) if isinstance(data, Dataset) else data


class RecordFeed:
    """Feeds records of a `Dataset`: a thread reads ahead, the training thread runs the user's functions."""

    def __init__(self, dataset: Dataset, plan: TrainingPlan, device: torch.device) -> None:
        self._dataset = dataset
        self.plan = plan
        self._device = device
        self._records = Prefetcher(dataset, depth=_PREFETCH_STEPS * plan.logical_ranks)
        self._records.__enter__()
        self._early: dict[tuple[int, int], Batch | None] = {}
        self._expected: dict[tuple[int, int], Indices] = {}

    def close(self) -> None:
        self._records.close()

    def prefetch(self, step: int, share: RankRange, passes: int = 1) -> None:
        if not self._dataset.source.can_read_ahead:
            return
        self._expected = {}
        for first in range(step, step + _PREFETCH_STEPS * passes, passes):
            steps = range(first, min(first + passes, self.plan.total_steps))
            slices = {ahead: self.plan.rank_slices(ahead, share.first, share.count) for ahead in steps}
            for rank in range(share.count):
                self._expected |= {(ahead, share.first + rank): slices[ahead][rank] for ahead in steps}
        self._records.expect([(key, indices) for key, indices in self._expected.items() if key not in self._early])

    def read_early(self, step: int, logical_rank: int) -> Batch | None:
        self._early = {(step, logical_rank): self.read_batch(step, logical_rank)}
        return self._early[step, logical_rank]

    def read_batch(self, step: int, logical_rank: int) -> Batch | None:
        def seed() -> None:
            seed_everything(self.plan.seed, step, logical_rank)  # the user's functions run here, and may draw

        seed()
        if (step, logical_rank) in self._early:
            return self._early.pop((step, logical_rank))
        indices = self._expected.get((step, logical_rank))
        if indices is None:
            indices = self.plan.rank_slice(step, logical_rank)
        if not len(indices):
            return None
        key = (step, logical_rank)
        batch = self._dataset.read_valid_batch(indices, lambda: self._records.take(key, indices), seed)
        return tensors.move_batch(batch, self._device) if batch is not None else None
