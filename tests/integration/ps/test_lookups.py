"""Lookups against real ps: every pushed gradient is in the rows once, also while slots move."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests import native

native.require()

from elasticdl.ps.client.lookups import EmbeddingLookups  # noqa: E402
from elasticdl.spec import PsId  # noqa: E402
from tests.integration.ps.cluster import TABLES, Cluster  # noqa: E402


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster(2)
    yield cluster
    cluster.close()


def train(lookups: EmbeddingLookups, batches: list[list[int]], first: int = 1) -> None:
    """SGD at a rate of 1 with a gradient of 1 for each occurrence, the next batch pulled ahead."""
    arrays = [np.array(batch) for batch in batches]
    for number, ids in enumerate(arrays, first):
        lookups.begin_batch()
        if number - first + 1 < len(arrays):
            lookups.prefetch({"users": arrays[number - first + 1]})
        for _ in range(2):  # two layers with one table
            rows = lookups.lookup("users", ids)
            lookups.add_gradients("users", rows, rows.plan.sum_gradients(np.ones((len(ids), 4), np.float32)))
        lookups.push_gradients(sender=0, number=number, rate=1.0, step=number)


def rows(cluster: Cluster, ids: list[int]) -> list[float]:
    lookups = EmbeddingLookups(cluster.client(), depth=0)
    lookups.declare(TABLES)
    pulled = lookups.lookup("users", np.array(ids), create=False)
    return pulled.rows[pulled.plan.inverse][:, 0].tolist()


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_every_gradient_is_in_the_rows_once(cluster: Cluster, depth: int) -> None:
    lookups = EmbeddingLookups(cluster.client(), depth)
    lookups.declare(TABLES)
    batches = [[number, number + 1, -number] for number in range(1, 21)]

    train(lookups, batches)
    lookups.wait_for_pushes()

    occurrences = [sum(batch.count(id) for batch in batches) for id in range(-20, 22)]
    assert rows(cluster, list(range(-20, 22))) == [1.0 - 2 * times for times in occurrences]
    assert lookups.prefetched == (19 if depth else 0)


def test_the_same_push_from_another_worker_changes_nothing(cluster: Cluster) -> None:
    workers = [EmbeddingLookups(cluster.client(), depth=2) for _ in range(2)]
    for lookups in workers:
        lookups.declare(TABLES)
        train(lookups, [[1, 2, 3], [2, 3, 4]])
        lookups.wait_for_pushes()

    assert rows(cluster, [1, 2, 3, 4]) == [-1.0, -3.0, -3.0, -1.0]


def test_pushes_follow_slots_that_move_meanwhile(cluster: Cluster) -> None:
    lookups = EmbeddingLookups(cluster.client(), depth=2)
    lookups.declare(TABLES)
    batch = list(range(200))
    train(lookups, [batch] * 3)

    newcomer = cluster.add()
    cluster.rebalance([PsId("ps-1"), newcomer])
    lookups.client.update_fleet(cluster.fleet)  # type: ignore[attr-defined]
    train(lookups, [batch] * 3, first=4)
    lookups.wait_for_pushes()

    assert rows(cluster, batch) == [1.0 - 2 * 6] * 200


def test_a_lookup_without_create_creates_no_rows(cluster: Cluster) -> None:
    assert rows(cluster, [5, 6]) == [1.0, 1.0]
    assert sum(held.status()["tables"]["users"]["rows"] for held in cluster.holdings.values()) == 0


def test_a_push_carries_the_age_of_its_rows(cluster: Cluster) -> None:
    lookups = EmbeddingLookups(cluster.client(), depth=1)
    lookups.declare(TABLES)

    train(lookups, [[1, 2, 3, 4, 5, 6]] * 10)
    lookups.wait_for_pushes()

    ages = [held.heartbeat()["staleness"] for held in cluster.holdings.values()]
    assert all(sum(counts[1:]) > 0 for counts in ages), "pulled ahead of the update before"
