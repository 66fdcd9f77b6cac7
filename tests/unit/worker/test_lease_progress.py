"""The progress of a lease and its batches."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.data.dataset import Dataset
from elasticdl.data.plan import TrainingPlan
from elasticdl.data.readers.mapped import MappedSource
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.worker.leases.batches import LeaseBatch, LeaseFeed, LeaseProgress


def works_of(feed: LeaseFeed, lease: pb.Lease) -> list[LeaseBatch]:
    feed.open_lease(lease)
    batches = []
    while (work := feed.next_batch()) is not None:
        batches.append(work)
    return batches


def feed_of(records: int, minibatch: int) -> LeaseFeed:
    items = [(np.float32(number), np.float32(0)) for number in range(records)]
    plan = TrainingPlan(records, minibatch, 1, epochs=2, shuffle=True, seed=3)
    feed = LeaseFeed(Dataset(MappedSource(items, "items")), plan, minibatch)
    feed.start()
    return feed


@given(st.integers(1, 9), st.integers(1, 60), st.integers(0, 5), st.randoms(use_true_random=False))
def test_progress_counts_completed_batches_from_the_first_in_any_order(
    minibatch: int, size: int, skipped: int, chance: random.Random
) -> None:
    done = min(skipped * minibatch, size - 1) // minibatch * minibatch
    lease = pb.Lease(id=7, start=100, stop=100 + size, done=done, lane=5, number=11)
    works = works_of(feed_of(300, minibatch), lease)
    progress, reported_records, reported = LeaseProgress(minibatch), done, list[int]()
    for work in works:
        progress.add_pushed(work)
    order = list(works)
    chance.shuffle(order)
    ended: set[int] = set(range(done // minibatch))
    for work in order:
        change = progress.record_done(progress.pop_pushed(work.sender, work.number))
        ended.add(work.batch_index)
        first_open = next(index for index in range(len(ended) + 1) if index not in ended)
        expected = min(first_open * minibatch, size)
        if change is not None:
            assert change[0] is lease
            reported_records = change[1]
            reported += [work.batch_index for work in change[2]]
        assert reported_records == expected

    assert reported_records == size
    assert reported == [work.batch_index for work in works], "each batch once, with the report that counts it"


@given(st.integers(1, 9), st.integers(1, 40), st.integers(0, 3))
def test_batches_keep_their_ids_when_a_lease_moves(minibatch: int, size: int, skipped: int) -> None:
    feed = feed_of(60, minibatch)
    works = works_of(feed, pb.Lease(id=1, start=20, stop=20 + size, lane=3, number=50))
    done = min(skipped * minibatch, (size - 1) // minibatch * minibatch)
    remaining = works_of(feed, pb.Lease(id=2, start=20, stop=20 + size, lane=3, number=50, done=done))

    names = [(work.sender, work.number, work.start, work.stop) for work in works]
    assert [(work.sender, work.number, work.start, work.stop) for work in remaining] == names[done // minibatch :]
    assert [work.is_last for work in works] == [False] * (len(works) - 1) + [True]
    for work in works:
        batch = feed.read_batch(work)
        assert batch is not None
        assert batch.features.tolist() == feed.plan.records_at(work.start, work.stop).tolist()
