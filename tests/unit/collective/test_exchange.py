"""The exchange over real connections, each member a thread of the test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn

from elasticdl.collective.exchange import GradientExchange
from elasticdl.collective.gradients import GradientBuffers
from elasticdl.collective.group import Group
from elasticdl.collective.tree import RankRange, ReductionTree, split_ranks
from elasticdl.errors import RoundBroken
from tests.unit.collective.members import build_groups

WIDTH = 600  # large enough for several parts


@pytest.fixture(scope="module")
def groups() -> Iterator[Callable[[int], list[Group]]]:
    """Groups of any size; dropped at the end."""
    groups_to_close: list[Group] = []

    def build(size: int) -> list[Group]:
        built = build_groups(size)
        groups_to_close.extend(built)
        return built

    yield build
    for group in groups_to_close:
        group.close()


class Member:
    """A worker's part of a step."""

    def __init__(self, group: Group, ranks: int, split: list[RankRange], *, ordered: bool = True) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 3))
        self.gradients = GradientBuffers(
            self.model.parameters(), ReductionTree(ranks), 4, ordered=ordered
        ).register_hooks()
        self.exchange = GradientExchange(group, self.gradients, ReductionTree(ranks), split, ordered=ordered)
        self.group = group
        self.share = split[group.rank]

    def compute(self) -> None:
        self.exchange.start_step()
        for rank in range(self.share.first, self.share.stop):
            x = torch.randn(2, WIDTH, generator=torch.Generator().manual_seed(rank))
            self.gradients.backward(self.model(x).pow(2).mean(), rank, 0.5)

    def step(self) -> torch.Tensor:
        self.compute()
        tail = self.gradients.tail(self.gradients.node_sums()[0])
        tail[self.group.rank] = self.group.rank + 1
        return self.exchange.reduce()[: self.gradients.length].clone()


def run(members: list[Member]) -> list[torch.Tensor]:
    with ThreadPoolExecutor(len(members)) as pool:
        return list(pool.map(Member.step, members))


@pytest.fixture(scope="module")
def expected(groups: Callable[[int], list[Group]]) -> Callable[[int], torch.Tensor]:
    (alone,) = groups(1)

    def of(ranks: int) -> torch.Tensor:
        return Member(alone, ranks, [RankRange(0, ranks)]).step()

    return of


@pytest.mark.parametrize(
    "counts", [[1, 1], [2, 2], [3, 1], [1, 3], [2, 1, 1], [3, 3, 2], [1, 5, 1], [4, 4, 4], [8, 4, 3]], ids=str
)
def test_all_members_get_the_bits_of_one_worker(
    groups: Callable[[int], list[Group]], expected: Callable[[int], torch.Tensor], counts: list[int]
) -> None:
    ranks, split = sum(counts), split_ranks(counts)
    members = [Member(group, ranks, split) for group in groups(len(counts))]

    for _ in range(2):  # buffers are used again
        reduced = run(members)
        for sums in reduced:
            assert torch.equal(sums[:-4], expected(ranks)[:-4])
            assert sums[-4:].tolist() == [1, 2, *([3] if len(counts) > 2 else [0]), 0]


@pytest.mark.parametrize("counts", [[1, 1], [2, 1, 1]], ids=str)
def test_without_order_the_sums_are_right_to_rounding(
    groups: Callable[[int], list[Group]], expected: Callable[[int], torch.Tensor], counts: list[int]
) -> None:
    ranks, split = sum(counts), split_ranks(counts)
    reduced = run([Member(group, ranks, split, ordered=False) for group in groups(len(counts))])

    for sums in reduced:
        torch.testing.assert_close(sums[:-4], expected(ranks)[:-4])
        assert torch.equal(sums, reduced[0])


@pytest.mark.parametrize("counts", [[1, 1], [3, 3, 2]], ids=str)
def test_a_round_dropped_during_the_backward_pass_is_reported_at_its_end(
    groups: Callable[[int], list[Group]], counts: list[int]
) -> None:
    built = groups(len(counts))
    member = Member(built[0], sum(counts), split_ranks(counts))
    built[0].abort()
    ended: list[BaseException] = []

    def step() -> None:
        try:
            member.step()
        except RoundBroken as exc:
            ended.append(exc)

    thread = threading.Thread(target=step, daemon=True)
    thread.start()
    thread.join(20.0)

    assert ended, "the pass never ends"


def test_dropping_a_group_wakes_its_peers(groups: Callable[[int], list[Group]]) -> None:
    first, second = groups(2)
    failure: list[Any] = []

    def wait() -> None:
        with pytest.raises(RoundBroken) as caught:
            first.broadcast(torch.zeros(4), 1)
        failure.append(caught.value)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    second.close()
    thread.join(20.0)

    assert failure, "the peer still waits"


def test_a_dropped_group_refuses_work(groups: Callable[[int], list[Group]]) -> None:
    (alone,) = groups(1)
    alone.abort()

    with pytest.raises(RoundBroken):
        alone.check()
