"""One cluster for the whole suite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.kube import Kube, running, why_not
from tests.integration.job import Jobs


@pytest.fixture(scope="session")
def kube() -> Iterator[Kube]:
    if reason := why_not():
        pytest.skip(reason)
    with running() as found:
        yield found


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bits of the same job as one process of this machine."""
    started = Jobs(tmp_path_factory.mktemp("undisturbed"))
    yield started.train("undisturbed", 1).digest()
    started.end()
