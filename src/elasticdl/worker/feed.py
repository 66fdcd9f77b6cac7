"""The records of a step, logical rank by logical rank, read ahead."""

from __future__ import annotations

import torch

from elasticdl.collective.tree import Share
from elasticdl.data.dataset import Batch, Dataset
from elasticdl.data.plan import Plan
from elasticdl.data.prefetch import Prefetcher
from elasticdl.model import tensors

_AHEAD = 2  # steps


class Feed:
    def __init__(self, dataset: Dataset, plan: Plan, device: torch.device) -> None:
        self._dataset = dataset
        self.plan = plan
        self._device = device
        self._records = Prefetcher(dataset.source, depth=_AHEAD * plan.logical_ranks)
        self._records.__enter__()
        self._early: dict[tuple[int, int], Batch | None] = {}

    def close(self) -> None:
        self._records.close()

    def expect(self, step: int, share: Share) -> None:
        """Steps from `step` on will be asked for with this share."""
        if not self._dataset.source.can_read_ahead:
            return
        upcoming = []
        for ahead in range(step, min(step + _AHEAD, self.plan.total_steps)):
            slices = self.plan.ranks(ahead, share.first, share.count)
            upcoming += [((ahead, share.first + index), indices) for index, indices in enumerate(slices)]
        self._records.expect([(key, indices) for key, indices in upcoming if key not in self._early])

    def early(self, step: int, logical_rank: int) -> Batch | None:
        """As `batch`, which will be asked for next."""
        self._early = {(step, logical_rank): self.batch(step, logical_rank)}
        return self._early[step, logical_rank]

    def batch(self, step: int, logical_rank: int) -> Batch | None:
        """The slice of one logical rank; None where no record is left in it."""
        if (step, logical_rank) in self._early:
            return self._early.pop((step, logical_rank))
        indices = self.plan.slice_of(step, logical_rank)
        if not len(indices):
            return None
        batch = self._dataset.batch_of(self._records.take((step, logical_rank), indices), indices)
        return tensors.on_device(batch, self._device) if batch is not None else None
