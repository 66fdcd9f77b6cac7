"""Communicators of members that are all in this process: XGBoost has one for each thread."""

from __future__ import annotations

import hashlib
import os
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import pytest
from xgboost import Booster, QuantileDMatrix, collective

from elasticdl.boosting.communicator import TreeCommunicator
from elasticdl.collective.group import Group
from elasticdl.errors import RoundBroken
from tests.unit.collective.members import HERE, SOON_S, build_groups

T = TypeVar("T")
ROWS, COLUMNS = 300, 4
PARAMS = {"objective": "binary:logistic", "max_depth": 3, "max_bin": 16, "nthread": 1, "base_score": 0.5}


def make_communicators(groups: Sequence[Group]) -> list[TreeCommunicator]:
    return [TreeCommunicator(group, f"worker-{group.rank}", [HERE] * group.size) for group in groups]


def run_all(communicators: Sequence[TreeCommunicator], work: Callable[[int], T]) -> list[T]:
    """What each member's work returns, each in the thread of its communicator."""

    def run(rank: int) -> T:
        communicator = communicators[rank].open()
        try:
            return work(rank)
        finally:
            communicator.close()

    with ThreadPoolExecutor(len(communicators)) as pool:
        return list(pool.map(run, range(len(communicators))))


def grow(rank: int, size: int, rounds: int = 5) -> str:
    """Grow trees on one part of the same rows, and digest them."""
    draw = np.random.default_rng(0)
    rows = draw.normal(size=(ROWS, COLUMNS)).astype(np.float32)
    labels = rows[:, 0] + rows[:, 1] > 0
    reference = QuantileDMatrix(rows, max_bin=16, nthread=1)
    part = slice(ROWS * rank // size, ROWS * (rank + 1) // size)
    data = QuantileDMatrix(rows[part], max_bin=16, ref=reference, nthread=1)
    booster = Booster(PARAMS, [data])
    for round_ in range(rounds):
        scores = 1 / (1 + np.exp(-booster.predict(data, output_margin=True, training=True)))
        gradient = np.round((scores - labels[part]) * 256) / 256
        booster.boost(data, round_, grad=gradient, hess=np.full_like(gradient, 0.25))
    return hashlib.sha256(booster.save_raw("json")).hexdigest()


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_members_get_their_ranks_and_grow_the_same_trees(size: int) -> None:
    communicators = make_communicators(build_groups(size))

    def work(rank: int) -> tuple[int, int, str]:
        return collective.get_rank(), collective.get_world_size(), grow(rank, size)

    results = run_all(communicators, work)

    assert [rank for rank, _, _ in results] == list(range(size))
    assert {world for _, world, _ in results} == {size}
    assert {digest for _, _, digest in results} == {grow(0, 1)}


def test_the_next_communicator_is_made_in_another_thread_meanwhile() -> None:
    first, second = make_communicators(build_groups(2)), make_communicators(build_groups(3))
    has_met = threading.Barrier(5, timeout=SOON_S)

    def meet(rank: int, size: int) -> str:
        has_met.wait()  # all five are connected
        return grow(rank, size)

    with ThreadPoolExecutor(2) as pool:
        older: Future[list[str]] = pool.submit(run_all, first, lambda rank: meet(rank, 2))
        newer: Future[list[str]] = pool.submit(run_all, second, lambda rank: meet(rank, 3))
        digests = {*older.result(SOON_S), *newer.result(SOON_S)}

    assert digests == {grow(0, 1)}


def test_a_round_is_broken_from_outside_while_a_member_waits_for_another() -> None:
    """One member never grows its trees, as if it stood still."""
    communicators = make_communicators(build_groups(2))
    is_growing, is_over = threading.Event(), threading.Event()

    def work(rank: int) -> str:
        if rank == 1:
            is_over.wait(SOON_S)
            return "still"
        is_growing.set()
        try:
            return grow(rank, 2)
        finally:
            is_over.set()

    with ThreadPoolExecutor(1) as pool:
        results = pool.submit(run_all, communicators, work)
        assert is_growing.wait(SOON_S)
        communicators[0].abort()
        with pytest.raises(Exception, match="collective"):
            results.result(SOON_S)
    assert collective.get_world_size() == 1


def test_a_member_that_does_not_come_is_given_up_from_outside() -> None:
    groups = build_groups(2)
    (communicator, _) = make_communicators(groups)

    with ThreadPoolExecutor(1) as pool:
        opening = pool.submit(communicator.open)
        communicator.abort()
        with pytest.raises(RoundBroken):
            opening.result(SOON_S)
    groups[1].close()


def test_an_aborted_communicator_is_not_opened() -> None:
    (communicator,) = make_communicators(build_groups(1))
    communicator.abort()

    with pytest.raises(RoundBroken, match="aborted"):
        communicator.open()


def test_nobody_can_end_the_process_through_the_port_for_errors() -> None:
    """XGBoost leaves the process when it is told so on that port, by anybody."""
    communicators = make_communicators(build_groups(2))

    def work(rank: int) -> None:
        own_port, tracker_port = communicators[rank]._tracker._error_port, communicators[rank]._tracker.port
        assert own_port != tracker_port
        with socket.create_connection((HERE, own_port)) as stranger:
            stranger.sendall((1).to_bytes(4, "little"))

    run_all(communicators, work)


def test_communicators_leave_no_descriptor_and_no_thread_behind() -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    run_all(make_communicators(build_groups(2)), lambda rank: grow(rank, 2, 1))
    before = descriptors(), len(os.listdir("/proc/self/task"))
    for _ in range(3):
        groups = build_groups(2)
        run_all(make_communicators(groups), lambda rank: grow(rank, 2, 1))
        for group in groups:
            group.close()
    after = descriptors(), len(os.listdir("/proc/self/task"))

    assert after[0] <= before[0]
    assert after[1] <= before[1] + 2  # OpenMP keeps some
