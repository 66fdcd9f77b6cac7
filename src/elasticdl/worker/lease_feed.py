"""Batches of leased shards, one after the other, their records read ahead."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from elasticdl.data.dataset import Batch, Dataset
from elasticdl.data.plan import Plan
from elasticdl.data.prefetch import Prefetcher
from elasticdl.rpc import elasticdl_pb2 as pb

_AHEAD = 4  # batches


class Work(NamedTuple):
    """One batch of a lease. Its sender and number name it at the ps, whoever computes it and however often."""

    lease: pb.Lease
    place: int  # of the batch in its shard
    start: int  # position in the plan
    stop: int

    @property
    def sender(self) -> int:
        return self.lease.lane

    @property
    def number(self) -> int:
        return self.lease.number + self.place

    @property
    def is_last(self) -> bool:
        return self.stop >= self.lease.stop


class LeaseFeed:
    """The batches of the lease that was opened last."""

    def __init__(self, dataset: Dataset, plan: Plan, minibatch: int) -> None:
        self._dataset = dataset
        self.plan = plan
        self._minibatch = minibatch
        self._records = Prefetcher(dataset, depth=_AHEAD)
        self._records.__enter__()
        self._left: list[Work] = []
        self._indices = lru_cache(maxsize=4 * _AHEAD)(plan.positions)  # asked for ahead, and again when it is its turn

    def close(self) -> None:
        self._records.close()

    def open(self, lease: pb.Lease) -> None:
        """Begin with the first batch nobody has done."""
        self._left = [
            Work(lease, place, start, min(start + self._minibatch, lease.stop))
            for place, start in enumerate(range(lease.start, lease.stop, self._minibatch))
            if start >= lease.start + lease.done
        ]

    def next(self) -> Work | None:
        """The next batch of the lease; None at its end."""
        if not self._left:
            return None
        if self._dataset.source.can_read_ahead:
            upcoming = self._left[:_AHEAD]
            self._records.expect([((one.lease.id, one.place), self._indices(one.start, one.stop)) for one in upcoming])
        return self._left.pop(0)

    def batch(self, work: Work) -> Batch | None:
        """Its records; None where a filter left none of them."""
        indices = self._indices(work.start, work.stop)
        key = (work.lease.id, work.place)
        return self._dataset.good_batch(indices, lambda: self._records.take(key, indices))

    def sample(self) -> Batch | None:
        """The first batch of all, for an export."""
        return self._dataset.good_batch(self.plan.positions(0, min(self._minibatch, self.plan.total_records)))
