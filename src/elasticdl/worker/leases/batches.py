"""The batches of leased shards, with their records read ahead, and how far each lease is."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from elasticdl.data.dataset import Batch, Dataset
from elasticdl.data.plan import TrainingPlan
from elasticdl.data.prefetch import Prefetcher
from elasticdl.rpc import elasticdl_pb2 as pb

_PREFETCH_BATCHES = 4  # batches


class LeaseBatch(NamedTuple):
    """One batch of a lease. Its sender and number name it at the ps, whichever worker computes it, however often."""

    lease: pb.Lease
    batch_index: int  # of the batch in its shard
    start: int  # position in the plan
    stop: int

    @property
    def sender(self) -> int:
        return self.lease.lane

    @property
    def number(self) -> int:
        return self.lease.number + self.batch_index

    @property
    def is_last(self) -> bool:
        return self.stop >= self.lease.stop


class LeaseFeed:
    """The batches of the lease that was opened last."""

    def __init__(self, dataset: Dataset, plan: TrainingPlan, minibatch: int) -> None:
        self._dataset = dataset
        self.plan = plan
        self._minibatch = minibatch
        self._records = Prefetcher(dataset, depth=_PREFETCH_BATCHES)
        self._left: list[LeaseBatch] = []
        # Each batch is asked for twice: when it is read ahead, and when it is its turn.
        self._indices = lru_cache(maxsize=4 * _PREFETCH_BATCHES)(plan.records_at)

    def start(self) -> None:
        """Begin to read ahead."""
        self._records.__enter__()

    def close(self) -> None:
        self._records.close()

    def open_lease(self, lease: pb.Lease) -> None:
        """Begin with the first batch of the lease that no worker has done."""
        self._left = [
            LeaseBatch(lease, index, start, min(start + self._minibatch, lease.stop))
            for index, start in enumerate(range(lease.start, lease.stop, self._minibatch))
            if start >= lease.start + lease.done
        ]

    def next_batch(self) -> LeaseBatch | None:
        """The next batch of the lease; None at its end."""
        if not self._left:
            return None
        if self._dataset.source.can_read_ahead:
            upcoming = self._left[:_PREFETCH_BATCHES]
            self._records.expect(
                [((work.lease.id, work.batch_index), self._indices(work.start, work.stop)) for work in upcoming]
            )
        return self._left.pop(0)

    def read_batch(self, work: LeaseBatch) -> Batch | None:
        """The records of a batch; None if a filter has left none of them."""
        indices = self._indices(work.start, work.stop)
        key = (work.lease.id, work.batch_index)
        return self._dataset.read_valid_batch(indices, lambda: self._records.take(key, indices))

    def read_sample(self) -> Batch | None:
        """The first batch of the plan, as a sample for an export."""
        return self._dataset.read_valid_batch(self.plan.records_at(0, min(self._minibatch, self.plan.total_records)))


class LeaseProgress:
    """How far the leases of one worker are. Pushes are acknowledged one by one, perhaps out of order."""

    def __init__(self, minibatch: int) -> None:
        self._minibatch = minibatch
        self._works: dict[tuple[int, int], LeaseBatch] = {}  # under way, by sender and number
        self._done: dict[int, int] = {}  # by lease: the index of the first batch that is not done
        self._beyond: dict[int, dict[int, LeaseBatch]] = {}  # by lease: batches that are done before those before them

    def add_pushed(self, work: LeaseBatch) -> None:
        self._works[work.sender, work.number] = work

    def pop_pushed(self, sender: int, number: int) -> LeaseBatch:
        """The batch that was pushed under this name."""
        return self._works.pop((sender, number))

    def record_done(self, work: LeaseBatch) -> tuple[pb.Lease, int, list[LeaseBatch]] | None:
        """A batch is done. Returns its lease, how many of its records are done, and the batches newly counted."""
        lease = work.lease
        first = self._done.setdefault(lease.id, lease.done // self._minibatch)
        beyond = self._beyond.setdefault(lease.id, {})
        beyond[work.batch_index] = work
        added = []
        while first in beyond:
            added.append(beyond.pop(first))
            first += 1
        if not added:
            return None
        stop = added[-1].stop
        self._done[lease.id] = first
        if stop >= lease.stop:
            del self._done[lease.id], self._beyond[lease.id]
        return lease, stop - lease.start, added
