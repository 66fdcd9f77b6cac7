from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.integration.ps.cluster import Cluster

Start = Callable[[int], Cluster]


@pytest.fixture
def start() -> Iterator[Start]:
    running: list[Cluster] = []

    def begin(count: int) -> Cluster:
        running.append(Cluster(count))
        return running[-1]

    yield begin
    for cluster in running:
        cluster.close()
