"""One cluster for the whole suite."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cluster.job import ClusterJob, Named
from tests.cluster.kube import Kube, NotStarted, running, why_not
from tests.integration.job import Jobs


@pytest.fixture(scope="session")
def kube() -> Iterator[Kube]:
    if reason := why_not():
        pytest.skip(reason)
    with ExitStack() as stack:
        try:
            cluster = stack.enter_context(running())
        except NotStarted as exc:
            if os.environ.get("ELASTICDL_CLUSTER") != "optional":
                raise
            pytest.skip(str(exc))
        yield cluster


@pytest.fixture
def named(kube: Kube, tmp_path: Path) -> Iterator[Named]:
    """A job by its name; it is deleted when the test is over, however that ended."""
    jobs: list[ClusterJob] = []

    def make(name: str) -> ClusterJob:
        jobs.append(ClusterJob(kube, name, tmp_path))
        return jobs[-1]

    yield make
    for job in jobs:
        job.delete()


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bits of the same job as one process of this machine."""
    started = Jobs(tmp_path_factory.mktemp("undisturbed"))
    yield started.train("undisturbed", 1).digest()
    started.end()
