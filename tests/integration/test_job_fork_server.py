"""Jobs whose workers are forked: they end like others, and continue without the fork server when it fails."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from elasticdl.launcher.local import fork_client
from tests.integration.job import PATIENCE_S, Job, Jobs
from tests.waiting import until

FORKED = "was forked by"


def find_server(job: Job) -> int | None:
    """The pid of the fork server of the job's launcher."""
    launcher = job.record().launcher.pid
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    for pid in children:
        if fork_client.SERVER_MODULE in Path(f"/proc/{pid}/cmdline").read_text():
            return int(pid)
    return None


def wait_server(job: Job) -> int:
    pid = until("a fork server", lambda: find_server(job), PATIENCE_S, tell=job.story)
    assert pid is not None
    return pid


def test_workers_are_forked_and_so_are_later_ones(jobs: Jobs, undisturbed: str) -> None:
    job = jobs.train("forked", 1, slow=True)
    job.wait_members(1)

    job.scale(2)

    job.wait_members(2)
    job.hurry()
    assert job.digest() == undisturbed
    assert job.log("launcher").count(FORKED) == 2


def test_workers_are_spawned_if_the_job_says_so(jobs: Jobs, undisturbed: str) -> None:
    job = jobs.train("spawned", 1, "--start_method=spawn")

    assert job.digest() == undisturbed
    assert FORKED not in job.log("launcher")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_job_whose_fork_server_fails_while_it_imports_continues(jobs: Jobs, undisturbed: str, number: int) -> None:
    job = jobs.train("importing", 2, slow=True)

    os.kill(wait_server(job), number)

    job.wait_members(2)
    job.hurry()
    assert job.digest() == undisturbed


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_job_whose_fork_server_fails_later_continues_with_a_new_one(
    jobs: Jobs, undisturbed: str, number: int
) -> None:
    job = jobs.train("later", 1, slow=True)
    job.wait_members(1)
    first = wait_server(job)
    os.kill(first, number)

    job.scale(2)

    job.wait_members(2)
    job.hurry()
    assert job.digest() == undisturbed
    assert "replacing the fork server" in job.log("launcher")


def test_a_launcher_that_replaces_another_forks_from_a_server_of_its_own(jobs: Jobs, undisturbed: str) -> None:
    job = jobs.train("adopted", 1, slow=True)
    job.wait_members(1)
    first_launcher, first_server = job.record().launcher.pid, wait_server(job)
    os.kill(first_launcher, signal.SIGKILL)
    until("another launcher", lambda: job.record().launcher.pid != first_launcher, PATIENCE_S, tell=job.story)

    job.scale(2)

    job.wait_members(2)
    assert not Path(f"/proc/{first_server}").exists()
    assert wait_server(job) != first_server
    job.hurry()
    assert job.digest() == undisturbed
    assert job.log("launcher").count(FORKED) == 2
