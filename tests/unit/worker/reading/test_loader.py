"""Batches of a user's dataset in the order of the plan, for any changes of the share."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from elasticdl.collective.tree import RankRange
from elasticdl.data.bad_records import BadRecords
from elasticdl.data.plan import TrainingPlan
from elasticdl.data.readers.mapped import as_source
from elasticdl.errors import DataError
from elasticdl.worker.reading.loader import ItemRequests, LoaderFeed, LoaderOptions, move_to_device
from elasticdl.worker.reading.loader_process import ItemFetcher, preserve_random_state

CPU = torch.device("cpu")


class Numbers:
    """Items are their numbers; remembers what was read."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.reads: list[int] = []

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> int:
        self.reads.append(number)
        return number


def feed_of(dataset: Any, plan: TrainingPlan, collate: Any = list) -> LoaderFeed:
    fetcher = ItemFetcher(as_source(dataset, "numbers"), collate, plan.seed)
    return LoaderFeed(ItemRequests(fetcher, plan, None), plan, LoaderOptions(), CPU).start()


def value(feed: LoaderFeed, step: int, rank: int) -> Any:
    batch = feed.read_batch(step, rank)
    return None if batch is None else batch.value


def test_every_slice_of_the_plan_is_delivered_to_its_logical_rank() -> None:
    plan = TrainingPlan(records=23, global_batch=8, logical_ranks=3, epochs=2, seed=4)
    feed = feed_of(Numbers(23), plan)
    for step in range(plan.total_steps):
        feed.prefetch(step, RankRange(0, 3))
        for rank in range(3):
            assert value(feed, step, rank) == plan.rank_slice(step, rank).tolist()


def test_an_empty_slice_is_no_batch() -> None:
    plan = TrainingPlan(records=9, global_batch=4, logical_ranks=4, epochs=2, shuffle=False)
    feed = feed_of(Numbers(9), plan)
    feed.prefetch(2, RankRange(0, 4))
    assert [value(feed, 2, rank) for rank in range(4)] == [[8], None, None, None]
    feed.prefetch(3, RankRange(0, 4))
    assert value(feed, 3, 0) == [0]
    feed.prefetch(5, RankRange(1, 3))
    assert [value(feed, 5, rank) for rank in range(1, 4)] == [None, None, None]


def test_a_new_share_is_served_from_its_first_step_on() -> None:
    plan = TrainingPlan(records=40, global_batch=8, logical_ranks=4, shuffle=False)
    feed = feed_of(Numbers(40), plan)
    feed.prefetch(0, RankRange(0, 4))
    assert [value(feed, 0, rank) for rank in range(4)] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    feed.prefetch(1, RankRange(2, 1))
    assert value(feed, 1, 2) == [12, 13]
    feed.prefetch(2, RankRange(1, 2))
    assert [value(feed, 2, rank) for rank in (1, 2)] == [[18, 19], [20, 21]]


def test_a_step_whose_round_broke_is_read_again() -> None:
    plan = TrainingPlan(records=16, global_batch=8, logical_ranks=2, shuffle=False)
    feed = feed_of(Numbers(16), plan)
    for _ in range(2):
        feed.prefetch(0, RankRange(0, 2))
        assert [value(feed, 0, rank) for rank in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_several_passes_are_requested_rank_by_rank() -> None:
    plan = TrainingPlan(records=24, global_batch=4, logical_ranks=2, shuffle=False)
    dataset = Numbers(24)
    feed = feed_of(dataset, plan)
    feed.prefetch(0, RankRange(0, 2), passes=2)
    batches = [value(feed, step, rank) for rank in range(2) for step in range(2)]
    assert batches == [[0, 1], [4, 5], [2, 3], [6, 7]]
    assert dataset.reads == [0, 1, 4, 5, 2, 3, 6, 7]


def test_an_early_batch_is_read_once() -> None:
    plan = TrainingPlan(records=16, global_batch=4, logical_ranks=2, shuffle=False)
    dataset = Numbers(16)
    feed = feed_of(dataset, plan)
    feed.prefetch(0, RankRange(0, 2))
    assert value(feed, 0, 0) == [0, 1]
    early = feed.read_early(0, 1)
    assert early is not None and early.value == [2, 3]
    assert value(feed, 0, 1) == [2, 3]
    assert feed.read_early(1, 0) is not None
    feed.prefetch(1, RankRange(0, 1))  # the share changed, and the early batch belongs to the new one
    assert value(feed, 1, 0) == [4, 5]
    assert dataset.reads == list(range(6))


class Noisy(Numbers):
    def __getitem__(self, number: int) -> Any:
        return random.random(), float(np.random.rand()), float(torch.rand(()))


def test_random_numbers_of_items_are_those_of_step_and_logical_rank() -> None:
    plan = TrainingPlan(records=32, global_batch=8, logical_ranks=4)
    all_ranks, one_rank = feed_of(Noisy(32), plan), feed_of(Noisy(32), plan)
    all_ranks.prefetch(0, RankRange(0, 4))
    batches = [value(all_ranks, 0, rank) for rank in range(4)]
    one_rank.prefetch(0, RankRange(2, 1))
    torch.manual_seed(99)
    assert value(one_rank, 0, 2) == batches[2]
    assert batches[0] != batches[1]


def test_the_models_random_numbers_do_not_depend_on_what_the_dataset_drew() -> None:
    plan = TrainingPlan(records=8, global_batch=8, logical_ranks=1)
    draws = []
    for dataset in (Noisy(8), Numbers(8)):
        feed = feed_of(dataset, plan)
        feed.prefetch(0, RankRange(0, 1))
        feed.read_batch(0, 0)
        draws.append((random.random(), float(np.random.rand()), float(torch.rand(()))))
    assert draws[0] == draws[1]


def test_batches_keep_the_structure_that_collate_fn_gives() -> None:
    class Pair(NamedTuple):
        image: Any
        target: Any

    plan = TrainingPlan(records=4, global_batch=4, logical_ranks=1, shuffle=False)

    def first(collate: Any) -> Any:
        feed = feed_of(Numbers(4), plan, collate)
        feed.prefetch(0, RankRange(0, 1))
        return feed.read_batch(0, 0)

    pair = first(lambda items: Pair(torch.tensor(items), torch.zeros(4)))
    assert isinstance(pair.value, Pair) and pair.features is pair.value.image and pair.labels is pair.value.target
    assert first(lambda items: {"ids": items}).value == {"ids": [0, 1, 2, 3]}
    triple = first(lambda items: (1, 2, 3))
    assert triple.value == (1, 2, 3) and triple.features == (1, 2, 3) and triple.size == 4
    assert first(lambda items: None) is None


def test_a_collate_fn_that_fails_names_the_items() -> None:
    plan = TrainingPlan(records=4, global_batch=2, logical_ranks=1, shuffle=False)

    def stumble(items: list[int]) -> None:
        raise ValueError("no batch of these")

    feed = feed_of(Numbers(4), plan, stumble)
    feed.prefetch(1, RankRange(0, 1))
    with pytest.raises(DataError, match=r"numbers, items \[2, 3\]: .*stumble failed to collate them: ValueError: no"):
        feed.read_batch(1, 0)


def test_random_state_is_preserved() -> None:
    def draw() -> Iterator[float]:
        yield from (random.random(), float(np.random.rand()), float(torch.rand(())))

    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    expected = list(draw())
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    with preserve_random_state():
        list(draw())
    assert list(draw()) == expected


def test_structures_are_moved_to_a_device_as_they_are() -> None:
    class Encoding(dict[str, Any]):
        pass

    meta = torch.device("meta")
    moved = move_to_device({"a": [torch.zeros(1), (torch.zeros(2), "text")], "b": Encoding(x=torch.zeros(3))}, meta)
    assert moved["a"][0].device == meta and moved["a"][1][0].device == meta and moved["a"][1][1] == "text"
    assert isinstance(moved["b"], Encoding) and moved["b"]["x"].device == meta


class Flawed(Numbers):
    """A dataset of which some items cannot be read, each for a given number of times."""

    def __init__(self, count: int, failures: dict[int, int]) -> None:
        super().__init__(count)
        self.failures = failures

    def __getitem__(self, number: int) -> int:
        if self.failures.get(number, 0) > 0:
            self.failures[number] -= 1
            raise ValueError(f"item {number} is broken")
        return number


def test_an_item_that_fails_once_is_read_again() -> None:
    plan = TrainingPlan(records=8, global_batch=8, logical_ranks=2, shuffle=False)
    feed = feed_of(Flawed(8, {2: 1}), plan)
    feed.prefetch(0, RankRange(0, 2))

    assert [value(feed, 0, rank) for rank in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_items_that_fail_twice_are_skipped_and_reported_if_the_job_allows_it() -> None:
    plan = TrainingPlan(records=8, global_batch=8, logical_ranks=2, shuffle=False)
    reported: list[tuple[int, str]] = []
    fetcher = ItemFetcher(as_source(Flawed(8, {2: 99, 5: 99}), "numbers"), list, plan.seed, skips_bad=True)
    bad = BadRecords(2, lambda source, record, reason: reported.append((record, reason)))
    feed = LoaderFeed(ItemRequests(fetcher, plan, None, bad), plan, LoaderOptions(), CPU).start()
    feed.prefetch(0, RankRange(0, 2))

    batches = [feed.read_batch(0, rank) for rank in range(2)]

    assert [batch.value for batch in batches if batch] == [[0, 1, 3], [4, 6, 7]]
    assert [batch.size for batch in batches if batch] == [3, 3]
    assert reported == [
        (2, "numbers, item 2: ValueError: item 2 is broken"), (5, "numbers, item 5: ValueError: item 5 is broken")
    ]  # fmt: skip


def test_an_item_that_fails_twice_is_an_error_that_names_the_option_otherwise() -> None:
    plan = TrainingPlan(records=8, global_batch=8, logical_ranks=2, shuffle=False)
    feed = feed_of(Flawed(8, {2: 99}), plan)
    feed.prefetch(0, RankRange(0, 2))

    with pytest.raises(DataError, match=r"numbers, item 2: ValueError: item 2 is broken \(--bad_records=N skips"):
        feed.read_batch(0, 0)
