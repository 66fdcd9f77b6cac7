"""Deaths at the worst moments: during a state transfer, at the end, of several workers at once."""

from __future__ import annotations

import os
import signal

import pytest

from tests.integration.job import EPOCHS, RECORDS, STEPS, Jobs, members

AT_ONCE = ("--min_workers", "1")


def test_a_newcomer_that_dies_while_it_joins_does_not_stop_others(jobs: Jobs, undisturbed: str) -> None:
    job = jobs.train("newcomer", 1, *AT_ONCE, slow=True, pause_s=0.04)
    job.wait_members(1, step=2)
    job.scale(2)
    status = job.wait(
        lambda s: any(w.id == "worker-1" and w.state in ("ready", "joining", "member") for w in s.workers), "one joins"
    )
    os.kill(next(w.pid for w in status.workers if w.id == "worker-1"), signal.SIGKILL)
    job.wait_event("worker-lost")
    job.wait_members(2)
    job.hurry()

    assert job.digest() == undisturbed


@pytest.mark.slow
def test_a_donor_that_dies_during_the_state_transfer_is_replaced_by_another(jobs: Jobs, undisturbed: str) -> None:
    job = jobs.train("donor", 2, *AT_ONCE, slow=True, pause_s=0.04)
    here = job.wait_members(2, step=2)
    job.scale(3)
    job.wait(lambda s: any(w.id == "worker-2" and w.state in ("ready", "joining") for w in s.workers), "one joins")
    os.kill(here["worker-0"], signal.SIGKILL)
    job.wait_event("worker-lost")
    job.wait(lambda s: {"worker-1", "worker-2"} <= set(members(s)), "the newcomer is in")
    job.hurry()

    assert job.digest() == undisturbed


def test_the_last_of_three_workers_continues_after_the_others_die_at_once(jobs: Jobs, undisturbed: str) -> None:
    faults = "worker-0@30:reduced=SIGKILL,worker-2@30:computed=SIGKILL"
    job = jobs.train("two", 3, "--min_workers", "1", faults=faults, slow=True, pause_s=0.005)
    job.wait_event("worker-lost")
    job.hurry()

    assert job.digest() == undisturbed
    assert job.document()["records"] == EPOCHS * RECORDS


@pytest.mark.slow
def test_two_workers_that_are_asked_to_leave_at_once_transfer_their_state_to_others(
    jobs: Jobs, undisturbed: str
) -> None:
    job = jobs.train("both", 2, *AT_ONCE, slow=True, pause_s=0.04)
    for pid in job.wait_members(2, step=3).values():
        os.kill(pid, signal.SIGTERM)
    job.wait(lambda s: set(members(s)) == {"worker-2", "worker-3"}, "two others train")
    job.hurry()

    assert job.digest() == undisturbed
    assert "worker-lost" not in job.kinds()


@pytest.mark.slow
@pytest.mark.parametrize("worker", ["worker-0", "worker-1"])
def test_a_worker_killed_after_the_last_step_does_not_lose_the_model(jobs: Jobs, undisturbed: str, worker: str) -> None:
    job = jobs.train("last", 2, "--min_workers", "2", faults=f"{worker}@{STEPS - 1}:applied=SIGKILL")

    assert job.digest() == undisturbed
    assert job.document()["records"] == EPOCHS * RECORDS


@pytest.mark.slow
def test_a_job_survives_a_silent_first_worker(jobs: Jobs, undisturbed: str) -> None:
    job = jobs.train("first", 2, *AT_ONCE, slow=True, pause_s=0.03)
    pid = job.wait_members(2, step=3)["worker-0"]
    os.kill(pid, signal.SIGSTOP)
    job.wait_event("worker-lost")
    os.kill(pid, signal.SIGCONT)
    job.wait(lambda s: members(s).get("worker-0") == pid, "it is back")
    job.hurry()

    assert job.digest() == undisturbed


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_worker_that_is_asked_to_leave_in_its_first_step_transfers_its_state(
    jobs: Jobs, undisturbed: str, workers: int
) -> None:
    job = jobs.train(
        "first-step", workers, "--min_workers", str(workers), "--timing", "grace_period_s=8",
        slow=True, pause_s=0.04, faults="worker-0@0:computed=SIGTERM",
    )  # fmt: skip
    job.wait_event("worker-left")
    job.hurry()

    assert job.digest() == undisturbed
    exits = {process.replica: (process.code, process.signal) for process in job.record().exited}
    assert exits["worker-0"] == (0, None)
