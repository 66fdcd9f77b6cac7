"""A worker that compiles its model joins without stopping the others."""

from __future__ import annotations

import json
import time
from itertools import pairwise
from pathlib import Path
from shutil import which
from typing import Any

import pytest

from tests.integration.job import Job, Jobs, members

SCRIPT = Path(__file__).parent / "scripts" / "compiled.py"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(which("g++") is None, reason="torch.compile needs a C++ compiler"),
]


def grow(jobs: Jobs, kind: str) -> tuple[Job, float]:
    """A job of which a second worker was taken away and came back, and when it was called back."""
    job = Job(jobs.home, kind)
    job.slow.touch()
    options = ["--detach", "--job_name", kind, "--workers", "1:2", "--threads", "1", "--logical_ranks", "4"]
    jobs.launch(job, ["run", *options, str(SCRIPT), str(jobs.home / kind), kind, str(job.slow)])
    job.wait_members(2, step=3)
    job.scale(1)
    step = job.wait(lambda status: len(members(status)) == 1, "one member").step
    job.wait_members(1, step=step + 5)
    called_at = time.time()
    job.scale(2)
    job.wait_members(2, step=step + 6)
    job.hurry()
    result = job.result()
    assert result["phase"] == "succeeded", f"{result}\n{job.story()}"
    job.wait_gone()
    assert "worker-lost" not in job.kinds(), job.story()
    return job, called_at


def member_and_newcomer(jobs: Jobs, kind: str, called_at: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """The records of the worker that trained from the start, and of the one that came after `called_at`."""
    records = [json.loads(path.read_text()) for path in jobs.home.glob(f"{kind}-worker-*.json")]
    (newcomer,) = [record for record in records if record["ends"] and record["ends"][0] >= called_at]
    return max(records, key=lambda record: len(record["ends"])), newcomer


def longest_gap(ends: list[float], since: float) -> float:
    """The longest time between two steps of a worker."""
    late = [end for end in ends if end >= since]
    return max(after - before for before, after in pairwise(late))


def test_workers_do_not_wait_for_a_newcomer_that_compiles_in_its_warm_up(jobs: Jobs) -> None:
    _, called_at = grow(jobs, "warm")

    member, newcomer = member_and_newcomer(jobs, "warm", called_at)

    assert newcomer["joined_s"] > 1.0
    assert longest_gap(member["ends"], called_at) < newcomer["joined_s"] / 2


def test_a_newcomer_that_compiles_in_its_first_step_causes_a_warning_and_is_not_removed(jobs: Jobs) -> None:
    job, called_at = grow(jobs, "cold")

    _, newcomer = member_and_newcomer(jobs, "cold", called_at)

    assert len(newcomer["ends"]) > 1
    assert all("warm_up=lambda features, labels: loss" in job.log(worker) for worker in ("worker-0", "worker-1"))
