from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.job import Jobs


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    """Jobs in a home of their own; none of their processes outlives the test."""
    started = Jobs(tmp_path)
    yield started
    started.end()


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The bits every history must end with: those of one worker that nobody disturbs."""
    started = Jobs(tmp_path_factory.mktemp("undisturbed"))
    try:
        return started.train("undisturbed", 1).digest()
    finally:
        started.end()


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Checkpoints of a few steps."""
    started = Jobs(tmp_path_factory.mktemp("trained"))
    job = started.train("trained", 1, "--max_steps", "4")
    job.digest()
    yield job.directory.root / "checkpoints"
    started.end()
