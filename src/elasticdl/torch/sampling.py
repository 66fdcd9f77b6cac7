"""The order of each epoch as a user's sampler draws it: a function of (seed, epoch), alike in all workers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from elasticdl.data.interface import Indices
from elasticdl.errors import SpecError
from elasticdl.worker.fetch import preserve_random_state
from elasticdl.worker.training import seed_everything

_SAMPLING = 4  # the last part of the random key of drawing an epoch's order


class FlatBatches:
    """A batch sampler of the user's own as a sampler: its batches one after the other, all of one size."""

    def __init__(self, batches: Any) -> None:
        self._batches = batches
        with preserve_random_state():
            self.batch_size = len(next(iter(batches)))

    def set_epoch(self, epoch: int) -> None:
        for sampler in (self._batches, getattr(self._batches, "sampler", None)):
            if sampler is not None and hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)

    @property
    def generator(self) -> Any:
        sampler = getattr(self._batches, "sampler", None)
        return getattr(self._batches, "generator", None) or getattr(sampler, "generator", None)

    def __iter__(self) -> Any:
        sizes = []
        for batch in self._batches:
            sizes.append(len(batch))
            yield from batch
        if any(size != self.batch_size for size in sizes[:-1]) or sizes[-1] > self.batch_size:
            raise SpecError(
                f"join: the DataLoader's batch_sampler gives batches of {min(sizes)} to {max(sizes)} items; a step "
                "trains a fixed number: give the DataLoader batch_size and sampler instead of batch_sampler"
            )


@dataclass(frozen=True)
class SampledOrder:
    """The order of each epoch as the user's sampler draws it: a function of (seed, epoch), alike in all workers."""

    sampler: Any
    seed: int
    records: int  # of an epoch
    items: int  # of the dataset

    @classmethod
    def of(cls, sampler: Any, seed: int, items: int) -> SampledOrder:
        first = draw_order(sampler, seed, 0, items)
        if not np.array_equal(first, draw_order(sampler, seed, 0, items)):
            raise SpecError(
                f"join: {type(sampler).__name__} gave two different orders for the same epoch, so workers would "
                "disagree; draw from torch's, NumPy's or Python's global random numbers, from a torch.Generator in its "
                "attribute `generator`, or from the epoch that set_epoch(epoch) tells"
            )
        return cls(sampler, seed, len(first), items)

    def __call__(self, epoch: int) -> Indices:
        return _drawn_order(self, epoch)


@lru_cache(maxsize=2)  # reading ahead may be in the next epoch already
def _drawn_order(order: SampledOrder, epoch: int) -> Indices:
    indices = draw_order(order.sampler, order.seed, epoch, order.items)
    if len(indices) != order.records:
        raise SpecError(
            f"join: {type(order.sampler).__name__} gave {order.records} items in epoch 0 and {len(indices)} in epoch "
            f"{epoch}; every epoch must have the same number"
        )
    return indices


def draw_order(sampler: Any, seed: int, epoch: int, items: int) -> Indices:
    """What `sampler` gives for `epoch` under random numbers fixed by (seed, epoch)."""
    with preserve_random_state():
        seed_everything(seed, epoch, _SAMPLING)
        generator = getattr(sampler, "generator", None)
        if isinstance(generator, torch.Generator):
            generator.manual_seed(torch.initial_seed())
        if callable(getattr(sampler, "set_epoch", None)):
            sampler.set_epoch(epoch)
        indices = np.fromiter((int(index) for index in sampler), dtype=np.int64)
    if not len(indices) or indices.min() < 0 or indices.max() >= items:
        which = f"{indices.min()} … {indices.max()}" if len(indices) else "none"
        raise SpecError(f"join: {type(sampler).__name__} must give numbers of items, 0 … {items - 1}; it gave {which}")
    return indices
