from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pytest

from elasticdl.ps.tables.push_policy import ACCEPT_ALL, PushPolicy
from tests.integration.ps.cluster import Cluster


class Start(Protocol):
    def __call__(self, count: int, terms: PushPolicy = ACCEPT_ALL) -> Cluster: ...


@pytest.fixture
def start() -> Iterator[Start]:
    running: list[Cluster] = []

    def begin(count: int, terms: PushPolicy = ACCEPT_ALL) -> Cluster:
        running.append(Cluster(count, terms))
        return running[-1]

    yield begin
    for cluster in running:
        cluster.close()
