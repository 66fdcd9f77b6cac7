"""Streams of iterable datasets: sharded, exact, and entered at any step."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import IterableDataset, get_worker_info

import elasticdl.torch as elastic
from elasticdl.collective.tree import RankRange
from elasticdl.data.plan import TrainingPlan
from elasticdl.errors import DataError, SpecError
from elasticdl.worker.reading.loader import LoaderFeed, LoaderOptions
from elasticdl.worker.reading.stream_requests import StreamRequests
from elasticdl.worker.reading.streams import count_records, open_streams


class Sharded(IterableDataset[int]):
    """Numbers 0 … count - 1, of which a worker gives every num_workers-th."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        assert worker is not None
        yield from range(worker.id, self.count, worker.num_workers)


class Whole(Sharded):
    """Ignores get_worker_info()."""

    def __iter__(self) -> Iterator[Any]:
        yield from range(self.count)


class Uneven(Sharded):
    """Stream r has the numbers 100 r … 100 r + 3 r + 1."""

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        assert worker is not None
        yield from range(100 * worker.id, 100 * worker.id + 3 * worker.id + 2)


class Stateful(Sharded):
    """Remembers its position, and how many records it read in all."""

    reads = 0

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.position = 0

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        assert worker is not None
        start, self.position = self.position, 0
        for number in range(worker.id + start * worker.num_workers, self.count, worker.num_workers):
            self.position = (number - worker.id) // worker.num_workers + 1
            Stateful.reads += 1
            yield number

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.position = state["position"]


def feed_of(dataset: Any, plan: TrainingPlan, lengths: tuple[int, ...] = ()) -> LoaderFeed:
    each = plan.global_batch // plan.logical_ranks
    streams = open_streams(dataset, plan.logical_ranks, plan.seed, plan.steps_per_epoch, each, lengths)
    requests = StreamRequests(streams, plan, list)
    return LoaderFeed(requests, plan, LoaderOptions(), torch.device("cpu")).start()


def plan_of(records: int, batch: int, ranks: int, **more: Any) -> TrainingPlan:
    return TrainingPlan(records, batch, ranks, shuffle=False, **more)


def step_batches(feed: LoaderFeed, step: int, share: RankRange) -> list[Any]:
    feed.prefetch(step, share)
    batches = [feed.read_batch(step, rank) for rank in range(share.first, share.stop)]
    return [None if batch is None else batch.value for batch in batches]


@pytest.mark.parametrize("dataset", [Sharded(50), Whole(50), Stateful(50)])
@pytest.mark.parametrize(("batch", "ranks"), [(8, 4), (6, 2), (5, 1), (12, 3)])
def test_every_record_is_trained_once_per_epoch(dataset: Any, batch: int, ranks: int) -> None:
    plan = plan_of(50, batch, ranks, epochs=2)
    feed = feed_of(dataset, plan)
    for epoch in range(2):
        steps = range(epoch * plan.steps_per_epoch, (epoch + 1) * plan.steps_per_epoch)
        batches = [batch for step in steps for batch in step_batches(feed, step, RankRange(0, ranks)) if batch]
        assert sorted(chain(*batches)) == list(range(50))


@pytest.mark.parametrize("dataset", [Sharded(48), Whole(48), Stateful(48)])
def test_a_stream_is_continued_at_its_current_record(dataset: Any) -> None:
    plan = plan_of(48, 12, 3, epochs=2)
    all_ranks = feed_of(dataset, plan)
    expected = [step_batches(all_ranks, step, RankRange(0, 3)) for step in range(plan.total_steps)]
    for step in range(plan.total_steps):
        newcomer = feed_of(dataset, plan)
        assert step_batches(newcomer, step, RankRange(1, 2)) == expected[step][1:]
        if step:
            assert step_batches(newcomer, step - 1, RankRange(0, 3)) == expected[step - 1]  # and back


def test_random_numbers_of_a_stream_do_not_depend_on_where_it_was_entered() -> None:
    class Random(Sharded):
        def __iter__(self) -> Iterator[Any]:
            offset = random.random()
            for _ in range(20):
                yield offset + random.random(), float(torch.rand(()))

    plan = plan_of(40, 4, 2)
    all_ranks = feed_of(Random(0), plan)
    expected = [step_batches(all_ranks, step, RankRange(0, 2)) for step in range(10)]
    assert step_batches(feed_of(Random(0), plan), 7, RankRange(1, 1)) == expected[7][1:]


def test_a_known_state_avoids_skipping_records() -> None:
    plan = plan_of(400, 8, 2)
    first = feed_of(Stateful(400), plan)
    for step in range(40):
        step_batches(first, step, RankRange(0, 2))
    expected = step_batches(first, 40, RankRange(0, 2))
    second = feed_of(Stateful(400), plan)
    assert isinstance(second.requests, StreamRequests) and isinstance(first.requests, StreamRequests)
    second.requests.positions.load_state_dict(first.requests.positions.state_dict())
    Stateful.reads = 0
    assert step_batches(second, 40, RankRange(0, 2)) == expected
    assert Stateful.reads == 8


def test_a_stream_that_is_far_behind_is_opened_again() -> None:
    """A worker gets a stream back that other workers have read in the meantime."""
    plan = plan_of(400, 8, 2)
    first, second = feed_of(Stateful(400), plan), feed_of(Stateful(400), plan)
    step_batches(second, 0, RankRange(0, 2))
    for step in range(40):
        step_batches(first, step, RankRange(0, 2))
    assert isinstance(second.requests, StreamRequests) and isinstance(first.requests, StreamRequests)
    second.requests.positions.load_state_dict(first.requests.positions.state_dict())
    expected = step_batches(first, 40, RankRange(0, 2))
    Stateful.reads = 0
    assert step_batches(second, 40, RankRange(0, 2)) == expected
    assert Stateful.reads == 8


def test_the_state_of_an_unsharded_dataset_continues_with_its_own_records() -> None:
    class WholeStateful(Stateful):
        def __iter__(self) -> Iterator[Any]:
            start, self.position = self.position, 0
            for number in range(start, self.count):
                self.position = number + 1
                yield number

    plan = plan_of(60, 6, 3)
    first, second = feed_of(WholeStateful(60), plan), feed_of(WholeStateful(60), plan)
    for step in range(5):
        step_batches(first, step, RankRange(0, 3))
    assert isinstance(second.requests, StreamRequests) and isinstance(first.requests, StreamRequests)
    second.requests.positions.load_state_dict(first.requests.positions.state_dict())
    assert step_batches(second, 5, RankRange(0, 3)) == [[30, 33], [31, 34], [32, 35]]


def test_a_state_of_the_iterator_is_used_too() -> None:
    class Iterating:
        def __init__(self, numbers: range) -> None:
            self.numbers, self.position = numbers, 0

        def __iter__(self) -> Iterating:
            return self

        def __next__(self) -> int:
            if self.position == len(self.numbers):
                raise StopIteration
            self.position += 1
            return self.numbers[self.position - 1]

        def state_dict(self) -> dict[str, Any]:
            return {"position": self.position}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.position = state["position"]

    class Iterable(Sharded):
        def __iter__(self) -> Iterator[Any]:
            worker = get_worker_info()
            assert worker is not None
            return Iterating(range(worker.id, self.count, worker.num_workers))

    plan = plan_of(40, 4, 2)
    first, second = feed_of(Iterable(40), plan), feed_of(Iterable(40), plan)
    for step in range(4):
        step_batches(first, step, RankRange(0, 2))
    assert isinstance(second.requests, StreamRequests) and isinstance(first.requests, StreamRequests)
    second.requests.positions.load_state_dict(first.requests.positions.state_dict())
    assert second.requests.make_request(4, 1).position == (4, {"position": 8})  # type: ignore[union-attr]
    assert step_batches(second, 4, RankRange(1, 1)) == [[17, 19]]


def test_set_epoch_is_called_on_every_stream() -> None:
    class Epochs(Sharded):
        epoch = -1

        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

        def __iter__(self) -> Iterator[Any]:
            numbers = super().__iter__()
            return (f"{self.epoch}/{number}" for number in numbers)

    plan = plan_of(4, 4, 2, epochs=2)
    feed = feed_of(Epochs(4), plan)
    assert step_batches(feed, 0, RankRange(0, 2)) == [["0/0", "0/2"], ["0/1", "0/3"]]
    assert step_batches(feed, 1, RankRange(0, 2)) == [["1/0", "1/2"], ["1/1", "1/3"]]


def test_uneven_streams_of_known_length_are_trained_to_their_ends() -> None:
    lengths = tuple(count_records(Uneven(0), 4))
    assert lengths == (2, 5, 8, 11)
    plan = plan_of(6 * 8, 8, 4)  # as many steps as the longest needs
    feed = feed_of(Uneven(0), plan, lengths)
    feed_steps = [step_batches(feed, step, RankRange(0, 4)) for step in range(plan.total_steps)]
    assert sorted(record for step in feed_steps for batch in step for record in batch or []) == [
        100 * rank + number for rank in range(4) for number in range(3 * rank + 2)
    ]


def test_what_does_not_fit_into_an_epoch_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    plan = plan_of(16, 8, 4)
    feed = feed_of(Uneven(0), plan)
    for step in range(plan.total_steps):
        step_batches(feed, step, RankRange(0, 4))
    assert "stream 0 of 4 ended after 2 records of epoch 0" in caplog.text
    assert "stream 3 of 4 goes on after the 4 records it has in epoch 0" in caplog.text
    assert "stream 1 of 4 goes on" in caplog.text


def test_a_dataset_that_does_not_shard_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    assert not open_streams(Whole(9), 2, 0, 1, 1).is_sharded
    assert "record i goes to logical rank i % 2 instead" in caplog.text
    assert open_streams(Sharded(9), 2, 0, 1, 1).is_sharded
    assert open_streams(Whole(9), 1, 0, 1, 1).is_sharded
    assert count_records(Whole(9), 2) == [5, 4]


def test_an_empty_dataset_is_refused() -> None:
    with pytest.raises(DataError, match="its first two streams have no records"):
        open_streams(Sharded(0), 2, 0, 1, 1)


def test_a_dataset_that_cannot_be_copied_is_refused_with_the_reason() -> None:
    class Open(Sharded):
        def __init__(self) -> None:
            self.lock = threading.Lock()

    with pytest.raises(DataError, match="open files and connections in __iter__, not in __init__"):
        open_streams(Open(), 2, 0, 1, 1)


def test_an_error_of_the_dataset_names_stream_and_record() -> None:
    class Failing(Sharded):
        def __iter__(self) -> Iterator[Any]:
            yield from range(3)
            raise OSError("the disk is gone")

    feed = feed_of(Failing(0), plan_of(8, 2, 1))
    step_batches(feed, 0, RankRange(0, 1))
    with pytest.raises(DataError, match=r"stream 0 of 1, after 2 records of epoch 0: OSError: the disk is gone"):
        step_batches(feed, 1, RankRange(0, 1))


def join(dataset: Any, **how: Any) -> Callable[[], list[Any]]:
    model = nn.Linear(1, 1)
    job = elastic.join(model, torch.optim.SGD(model.parameters(), lr=0.0), dataset, **how)

    def run() -> list[Any]:
        seen: list[Any] = []
        for step in job:
            for batch in step:
                seen += batch.tolist()
                step.backward(model(batch.float().unsqueeze(1)).mean())
        return seen

    return run


def test_join_takes_a_stream_of_a_stated_length() -> None:
    run = join(Sharded(10), global_batch_size=4, records_per_epoch=10, epochs=2, logical_ranks=2)
    assert sorted(run()) == sorted([*range(10), *range(10)])
    run = join(Uneven(0), global_batch_size=4, records_per_epoch=count_records(Uneven(0), 2), logical_ranks=2)
    assert sorted(run()) == [0, 1, 100, 101, 102, 103, 104]


def test_join_refuses_streams_it_cannot_count() -> None:
    with pytest.raises(SpecError, match="an IterableDataset without a length needs records_per_epoch=N"):
        join(Sharded(10), global_batch_size=4)
    with pytest.raises(
        SpecError, match=r"a global batch of 5 records is not divisible by 2 logical ranks, .* use 4 or 6"
    ):
        join(Sharded(10), global_batch_size=5, records_per_epoch=10, logical_ranks=2)
    with pytest.raises(SpecError, match="must have the length of each of the 2 streams"):
        join(Sharded(10), global_batch_size=4, records_per_epoch=[1, 2, 3], logical_ranks=2)
    with pytest.raises(SpecError, match="an IterableDataset has its own order"):
        join(Sharded(10), global_batch_size=4, shuffle=True)
