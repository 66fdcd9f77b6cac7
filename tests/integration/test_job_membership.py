"""Workers that fall silent, leave, join or are scaled do not change the result."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest

from tests.integration.job import EPOCHS, RECORDS, Job, Jobs, members

AT_ONCE = ("--min_workers", "1")


def lost(job: Job, worker: str) -> list[dict[str, Any]]:
    return [e for e in job.events() if e["kind"] == "worker-lost" and e["replica"] == worker]


def test_a_silent_worker_is_expelled_and_rejoins_without_a_restart(jobs: Jobs, undisturbed: str) -> None:
    job = jobs.train("silent", 2, *AT_ONCE, slow=True)
    here = job.wait_members(2, step=3)
    worker, pid = list(here.items())[1]
    os.kill(pid, signal.SIGSTOP)
    job.wait_event("worker-lost")
    lost_at = job.status()
    assert lost_at is not None
    job.wait(lambda s: s.step > lost_at.step + 2, "the others go on")
    os.kill(pid, signal.SIGCONT)
    status = job.wait(lambda s: members(s).get(worker) == pid, f"{worker} is back with process {pid}")
    job.wait(lambda s: s.step > status.step + 2, "the round with it steps")
    job.hurry()

    assert job.digest() == undisturbed
    assert "silent" in lost(job, worker)[0]["reason"]


@pytest.mark.slow
def test_a_worker_that_is_asked_to_leave_exits_cleanly_and_is_replaced(jobs: Jobs, undisturbed: str) -> None:
    job = jobs.train("leaving", 2, *AT_ONCE, slow=True, pause_s=0.04)
    here = job.wait_members(2, step=3)
    asked_at = time.time()
    os.kill(here["worker-0"], signal.SIGTERM)
    job.wait_event("worker-left", after=asked_at)
    job.wait_event("round-entered", after=asked_at)
    job.wait(lambda s: set(members(s)) == {"worker-1", "worker-2"}, "a replacement has joined")
    job.hurry()

    assert job.digest() == undisturbed
    exits = {process.replica: (process.code, process.signal) for process in job.record().exited}
    assert exits["worker-0"] == (0, None)
    assert "worker-lost" not in job.kinds()


def test_the_only_worker_transfers_its_state_to_its_successor_when_it_is_asked_to_leave(
    jobs: Jobs, undisturbed: str
) -> None:
    job = jobs.train("only", 1, *AT_ONCE, slow=True, pause_s=0.04)
    here = job.wait_members(1, step=3)
    os.kill(here["worker-0"], signal.SIGTERM)
    job.wait_event("worker-left")
    job.wait(lambda s: list(members(s)) == ["worker-1"], "its successor trains")
    job.hurry()

    assert job.digest() == undisturbed
    assert "worker-lost" not in job.kinds()


def test_scaling_up_and_down_changes_nothing(jobs: Jobs, undisturbed: str) -> None:
    job = jobs.train("scaled", 1, *AT_ONCE, slow=True, pause_s=0.04)
    job.wait_members(1, step=3)
    job.scale(3)
    job.wait_members(3)
    job.scale(1)
    job.wait_members(1)
    job.hurry()

    assert job.digest() == undisturbed
    assert job.kinds().count("scaled") == 2
    assert "worker-lost" not in job.kinds()
    assert job.document()["records"] == EPOCHS * RECORDS
    job.wait_gone()


def test_training_continues_from_the_newest_checkpoint_after_all_workers_die_at_once(
    jobs: Jobs, undisturbed: str
) -> None:
    job = jobs.train("all-dead", 2, *AT_ONCE, "--checkpoint_steps", "10", slow=True, pause_s=0.01)
    job.wait(lambda s: s.checkpoint_step >= 10, "a checkpoint is written")
    status = job.wait(lambda s: len(members(s)) == 2, "two members")
    for pid in members(status).values():
        os.kill(pid, signal.SIGKILL)
    job.wait(lambda s: bool(members(s)) and "worker-0" not in members(s), "others train")
    job.hurry()

    assert job.digest() == undisturbed
    assert any(f"state of step {status.checkpoint_step}" in job.log(w) for w in ("worker-2", "worker-3")), job.story()
    assert job.document()["records"] == EPOCHS * RECORDS


@pytest.mark.slow
def test_workers_that_are_asked_to_leave_before_they_are_ready_end_at_once(jobs: Jobs, undisturbed: str) -> None:
    held = jobs.home / "held"
    job = jobs.train("early", 1, *AT_ONCE, slow=True, pause_s=0.2, params=f"held={held}")
    job.wait_members(1, step=2)
    held.touch()
    job.scale(3)
    job.wait(lambda s: [worker.state for worker in s.workers].count("starting") == 2, "two are building their models")
    job.scale(1)

    job.wait(lambda _: job.kinds().count("worker-left") == 2, "they do not build them to the end")
    job.hurry()

    assert held.exists() and job.digest() == undisturbed
    assert "worker-lost" not in job.kinds()
