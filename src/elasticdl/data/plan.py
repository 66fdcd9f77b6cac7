"""The plan: the records that each step trains, and those of them that each logical rank takes.

It is a pure function of the job, the same in every process.
Step s of an epoch trains positions [s·B, (s+1)·B) of the epoch's order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from elasticdl.data.interface import Indices
from elasticdl.data.order import WINDOW_SHARDS, EpochOrder
from elasticdl.errors import DataError
from elasticdl.spec import DataSpec, PlanSpec


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """The records of every step, counted from 0 over all epochs.

    A batch never crosses the end of an epoch, so the last one of an epoch may be short.
    """

    records: int
    global_batch: int
    logical_ranks: int
    epochs: int = 1
    seed: int = 0
    shuffle: bool = True
    drop_last: bool = False
    max_steps: int = 0  # 0: no limit
    shard_records: int = 1024
    window_shards: int = WINDOW_SHARDS

    def __post_init__(self) -> None:
        if self.records < 1:
            raise DataError("the data set has zero records; a plan needs at least one")
        if self.steps_per_epoch == 0:
            raise DataError(
                f"plan.drop_last: {self.records} records are less than one global batch of {self.global_batch}, so "
                f"every epoch would be empty; use a smaller --global_batch_size or do not drop the last batch"
            )

    @property
    def steps_per_epoch(self) -> int:
        full_batches, remainder = divmod(self.records, self.global_batch)
        return full_batches + (1 if remainder and not self.drop_last else 0)

    @property
    def records_per_epoch(self) -> int:
        return min(self.records, self.steps_per_epoch * self.global_batch)

    @property
    def total_steps(self) -> int:
        steps = self.epochs * self.steps_per_epoch
        return min(steps, self.max_steps) if self.max_steps else steps

    @property
    def total_records(self) -> int:
        return self.records_until(self.total_steps)

    def records_until(self, step: int) -> int:
        """The number of records that steps 0 … step - 1 train."""
        epochs, steps = divmod(step, self.steps_per_epoch)
        return epochs * self.records_per_epoch + steps * self.global_batch

    def epoch_of(self, step: int) -> int:
        return step // self.steps_per_epoch

    def batch(self, step: int) -> Indices:
        """The records of `step`, in order."""
        if not 0 <= step < self.total_steps:
            raise IndexError(f"step {step} of a plan of {self.total_steps} steps")
        return _batch(self, step)

    def batch_size(self, step: int) -> int:
        """The number of records that `step` trains."""
        return min(self.global_batch, self.records_per_epoch - step % self.steps_per_epoch * self.global_batch)

    def records_at(self, start: int, stop: int) -> Indices:
        """The records at positions start … stop - 1 of all epochs in a row. Leases are ranges of these positions."""
        if not 0 <= start <= stop <= self.total_records:
            raise IndexError(f"positions {start} … {stop} of a plan of {self.total_records} records")
        parts = []
        while start < stop:
            epoch, first = divmod(start, self.records_per_epoch)
            end = min(stop - start + first, self.records_per_epoch)
            order = _order(self.records, self.seed, epoch, self.shuffle, self.shard_records, self.window_shards)
            parts.append(order.records_at(first, end))
            start += end - first
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def rank_slice(self, step: int, logical_rank: int) -> Indices:
        """The records that `logical_rank` takes; empty for the last ranks of a small batch."""
        return self.rank_slices(step, logical_rank, 1)[0]

    def rank_slices(self, step: int, first: int, count: int) -> list[Indices]:
        """The slices of logical ranks first … first + count - 1."""
        if not (first >= 0 and count >= 0 and first + count <= self.logical_ranks):
            raise IndexError(f"logical ranks {first} … {first + count} of {self.logical_ranks}")
        batch = self.batch(step)
        if count == 1 == self.logical_ranks:
            return [batch]
        bounds = [self._bound(len(batch), rank) for rank in range(first, first + count + 1)]
        return [batch[start:stop] for start, stop in pairwise(bounds)]

    def _bound(self, size: int, rank: int) -> int:
        """The start of the slice of `rank`. Sizes differ by one at most; the first ranks have the larger slices."""
        slice_size, remainder = divmod(size, self.logical_ranks)
        return rank * slice_size + min(rank, remainder)


def make_plan(
    records: int, spec: PlanSpec, data: DataSpec, shuffle: bool = False, window_records: int = 0
) -> TrainingPlan:
    """Makes the plan of a job. `shuffle` and `window_records` (0: the default) come from dataset_fn."""
    window_shards = -(-window_records // data.shard_records) if window_records else WINDOW_SHARDS
    return TrainingPlan(
        records=records,
        global_batch=spec.global_batch_size or spec.minibatch_size,
        logical_ranks=spec.logical_ranks or 1,
        epochs=spec.epochs,
        seed=spec.seed,
        shuffle=spec.shuffle or shuffle,
        drop_last=spec.drop_last,
        max_steps=spec.max_steps,
        shard_records=data.shard_records,
        window_shards=window_shards,
    )


_BLOCK_RECORDS = 4096

# The keys of an epoch are the same for all its steps.
_order = lru_cache(maxsize=8)(EpochOrder)


def _batch(plan: TrainingPlan, step: int) -> Indices:
    epoch, step_of_epoch = divmod(step, plan.steps_per_epoch)
    steps = max(1, _BLOCK_RECORDS // plan.global_batch)
    block = _block(plan, epoch, step_of_epoch // steps, steps)
    start = step_of_epoch % steps * plan.global_batch
    return block[start : start + plan.global_batch]


@lru_cache(maxsize=4)
def _block(plan: TrainingPlan, epoch: int, number: int, steps: int) -> Indices:
    """The records of several steps at once, because the order costs as much for a few steps as for one."""
    order = _order(plan.records, plan.seed, epoch, plan.shuffle, plan.shard_records, plan.window_shards)
    size = steps * plan.global_batch
    block = order.records_at(number * size, min((number + 1) * size, plan.records))
    block.flags.writeable = False
    return block
