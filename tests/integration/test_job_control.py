"""Master and launcher die, a user stops and resumes: training continues and ends with the same bits."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest

from elasticdl.checkpoint import manifest
from tests.integration.job import EPOCHS, RECORDS, Jobs, members
from tests.waiting import until

AT_ONCE = ("--min_workers", "1")


def test_training_continues_while_the_master_is_dead(jobs: Jobs, undisturbed: str) -> None:
    job = jobs.train("master", 2, *AT_ONCE, slow=True)
    before = job.wait_members(2, step=3)
    old = job.record().master
    job.kill_master()
    status = job.wait(lambda s: len(members(s)) == 2 and s.step > 5, "the master is back and knows its workers")
    job.hurry()

    assert members(status) == before, "nobody was replaced"
    assert old != job.record().master
    assert job.digest() == undisturbed
    assert "worker-lost" not in job.kinds()
    assert job.document()["records"] == EPOCHS * RECORDS


@pytest.mark.slow
def test_the_death_of_the_master_during_a_join_loses_no_worker(jobs: Jobs, undisturbed: str) -> None:
    job = jobs.train("joining", 1, *AT_ONCE, slow=True, pause_s=0.04)
    job.wait_members(1, step=3)
    job.scale(2)
    job.wait(lambda s: any(w.id == "worker-1" and w.state in ("ready", "joining") for w in s.workers), "one joins")
    job.kill_master()
    job.wait_members(2)
    job.hurry()

    assert job.digest() == undisturbed
    assert "worker-lost" not in job.kinds()


def test_a_killed_launcher_is_replaced_and_its_successor_launches_workers(jobs: Jobs, undisturbed: str) -> None:
    job = jobs.train("launcher", 2, *AT_ONCE, slow=True, pause_s=0.04)
    before = job.wait_members(2, step=3)
    old = job.record().launcher.pid
    os.kill(old, signal.SIGKILL)
    job.wait(lambda s: job.record().launcher.pid != old, "a new launcher")
    os.kill(before["worker-0"], signal.SIGKILL)
    job.wait(lambda s: set(members(s)) == {"worker-1", "worker-2"}, "the new launcher has launched another worker")
    job.hurry()

    assert job.digest() == undisturbed
    job.wait_gone()


def test_a_worker_that_leaves_while_the_master_is_dead_does_not_end_the_job(jobs: Jobs, undisturbed: str) -> None:
    job = jobs.train("away", 2, *AT_ONCE, "--timing", "grace_period_s=12", slow=True, pause_s=0.2)
    before = job.wait_members(2, step=3)
    launcher = job.record().launcher.pid
    os.kill(launcher, signal.SIGSTOP)  # so that no other master is started for a while
    job.kill_master()
    os.kill(before["worker-0"], signal.SIGTERM)
    job.wait_log("exit reason: the master is gone for good")
    os.kill(launcher, signal.SIGCONT)
    job.hurry()

    assert job.digest() == undisturbed
    assert job.document()["records"] == EPOCHS * RECORDS


@pytest.mark.slow
def test_workers_whose_master_and_launcher_are_gone_for_good_keep_the_state_and_end(
    jobs: Jobs, undisturbed: str
) -> None:
    job = jobs.train("orphans", 2, "--timing", "orphan_timeout_s=1", slow=True, pause_s=0.04)
    job.wait_members(2, step=3)
    record = job.record()
    assert record.master is not None
    for number in (signal.SIGSTOP, signal.SIGKILL):  # stopped first, so that neither starts the other again
        os.kill(record.launcher.pid, number)
        os.kill(record.master.pid, number)
    job.wait_gone()

    assert "the last checkpoint is written" in job.log("worker-0")
    again = jobs.train("orphans", 1, "--resume")
    assert again.digest() == undisturbed
    assert "state of step" in again.log("worker-0"), "it did not begin anew"


def test_workers_keep_their_state_when_the_master_is_given_up(jobs: Jobs, undisturbed: str) -> None:
    job = jobs.train("given-up", 2, slow=True, pause_s=0.3)
    job.wait_members(2, step=3)
    killed: set[int] = set()

    def kill_next() -> bool:
        """Ends each master by a fault of its own, until no other is started."""
        master = job.record().master
        if master is not None and master.pid not in killed:
            killed.add(master.pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(master.pid, signal.SIGSEGV)
        return job.directory.result.exists()

    until("the end of all masters", kill_next, tell=job.story)
    result = job.result()
    job.wait_gone()

    assert (result["phase"], result["exit_code"]) == ("failed", 1)
    assert "the master ended 5 times" in result["reason"] and "continue with --resume" in result["reason"]
    checkpoint = manifest.find_newest(job.directory.root / "checkpoints")
    assert checkpoint is not None and (manifest.parse_step(checkpoint) or 0) >= 3, job.story()
    job.hurry()
    again = jobs.train("given-up", 1, "--resume")
    assert again.digest() == undisturbed
    assert "state of step" in again.log("worker-0"), "it did not begin anew"


@pytest.mark.slow
def test_a_stopped_job_resumes_with_another_number_of_workers(jobs: Jobs, undisturbed: str) -> None:
    job = jobs.train("resumed", 2, slow=True, pause_s=0.01)
    job.wait_members(2, step=10)
    job.stop()
    stopped = job.result()
    assert (stopped["phase"], stopped["exit_code"]) == ("stopped", 130)
    job.wait_gone()
    job.hurry()
    again = jobs.train("resumed", 1, "--resume")

    assert again.digest() == undisturbed
    assert "state of step" in again.log("worker-0")
    assert again.document()["records"] == EPOCHS * RECORDS


@pytest.mark.slow
def test_a_corrupt_newest_checkpoint_is_skipped_with_a_warning(jobs: Jobs, undisturbed: str) -> None:
    job = jobs.train("corrupt", 1, "--checkpoint_steps", "10", slow=True, pause_s=0.01)
    job.wait(lambda s: s.checkpoint_step >= 20, "two checkpoints")
    job.stop()
    job.wait_gone()
    *_, before, newest = checkpoints(job.directory.root / "checkpoints")
    largest = max((path for path in newest.iterdir() if path.is_file()), key=lambda path: path.stat().st_size)
    damaged = bytearray(largest.read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    largest.write_bytes(damaged)
    job.hurry()
    again = jobs.train("corrupt", 1, "--resume")

    assert again.digest() == undisturbed
    assert f"state of step {int(before.name.rpartition('-')[2])}" in again.log("worker-0")
    assert newest.name in again.log("worker-0")


def checkpoints(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if path.is_dir() and not path.name.startswith("."))
