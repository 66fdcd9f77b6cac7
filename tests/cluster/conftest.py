"""One cluster for the whole suite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.kube import Kube, running, why_not


@pytest.fixture(scope="session")
def kube() -> Iterator[Kube]:
    if reason := why_not():
        pytest.skip(reason)
    with running() as found:
        yield found
