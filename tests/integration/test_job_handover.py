"""Newcomers that freeze or read slowly, and donors that transfer nothing, do not change the bits of real jobs."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.job import Job, Jobs, members

WIDTH = 58_000  # of the net: 12 MiB of state, 4 MiB of gradient
STATE_MIB = 12
SLACK_MIB = 64 + 4 + 32  # of the backlog, one gradient, and what an allocator keeps for itself
WIDE = f"width={WIDTH}"
STEPS = ("--num_epochs", "20", "--min_workers", "1")
PATIENT = ("--timing", "heartbeat_timeout_s=60")  # nobody is taken for lost because of silence

# Of a join.
MOMENTS = ["updated", *(pytest.param(moment, marks=pytest.mark.slow) for moment in ("requested", "loaded"))]


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The bits of the wide net where nobody disturbs."""
    started = Jobs(tmp_path_factory.mktemp("wide"))
    try:
        return started.train("wide", 1, *STEPS, params=WIDE).digest()
    finally:
        started.end()


def memory_mib(pid: int) -> int:
    """The most memory a process ever had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) >> 10 for line in lines if line.startswith("VmHWM:"))


def pid_of(job: Job, worker: str) -> int:
    status = job.wait(lambda s: any(w.id == worker and w.pid for w in s.workers), f"{worker} is there")
    return next(w.pid for w in status.workers if w.id == worker)


def is_stopped(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return stat.rpartition(")")[2].split()[0] == "T"


def wait_steps(job: Job, more: int) -> None:
    status = job.status()
    assert status is not None
    job.wait(lambda s: s.step >= status.step + more, f"{more} steps further than {status.step}")


@contextlib.contextmanager
def slowed(pid: int) -> Iterator[None]:
    """The process runs for 10 ms of every 110."""
    is_over, pause = threading.Event(), threading.Event()

    def slow() -> None:
        while not is_over.is_set():
            os.kill(pid, signal.SIGCONT)
            pause.wait(0.01)
            os.kill(pid, signal.SIGSTOP)
            pause.wait(0.1)
        os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=slow)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def test_a_newcomer_that_freezes_costs_its_donor_one_copy_and_does_not_affect_the_job(jobs: Jobs, wide: str) -> None:
    job = jobs.train(
        "frozen", 1, *STEPS, *PATIENT, slow=True, pause_s=0.005, params=WIDE, faults="worker-1@1:requested=SIGSTOP"
    )
    donor = job.wait_members(1, step=3)["worker-0"]
    before = memory_mib(donor)
    job.scale(2)
    newcomer = pid_of(job, "worker-1")
    job.wait(lambda _: is_stopped(newcomer), "the newcomer has asked for the state and is frozen")
    wait_steps(job, 100)
    grown = memory_mib(donor) - before
    os.kill(newcomer, signal.SIGCONT)
    job.wait_members(2)
    job.hurry()

    assert job.digest() == wide
    assert grown <= STATE_MIB + SLACK_MIB, f"{grown} MiB for a state of {STATE_MIB}"
    assert "worker-lost" not in job.kinds()


@pytest.mark.slow
def test_a_stalled_state_transfer_is_aborted_and_retried(jobs: Jobs, wide: str) -> None:
    job = jobs.train(
        "stalled", 1, *STEPS, *PATIENT, "--timing", "state_transfer_timeout_s=1.5", slow=True, pause_s=0.005,
        params=WIDE, faults="worker-1@1:loaded=SIGSTOP",
    )  # fmt: skip
    job.wait_members(1, step=3)
    job.scale(2)
    newcomer = pid_of(job, "worker-1")
    job.wait_log("state transfer to worker-1 ended: it took nothing for 1.5 s")
    os.kill(newcomer, signal.SIGCONT)
    job.wait_members(2)
    job.hurry()

    assert job.digest() == wide
    (failed,) = [e for e in job.events() if e["kind"] == "state-transfer-failed"]
    assert failed["replica"] == "worker-1" and "tried again in 1 s" in failed["reason"]


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_newcomer_that_freezes_for_long_is_dropped_by_its_donor_and_joins_again(
    jobs: Jobs, undisturbed: str, moment: str
) -> None:
    job = jobs.train("dropped", 1, "--min_workers", "1", slow=True, pause_s=0.12, faults=f"worker-1@1:{moment}=SIGSTOP")
    job.wait_members(1, step=2)
    job.scale(2)
    newcomer = pid_of(job, "worker-1")
    job.wait_event("worker-lost")
    if moment != "updated":  # that may have been the update which told it to enter
        job.wait_log("state transfer to worker-1 ended: it is in no planned round any more")
    wait_steps(job, 3)
    os.kill(newcomer, signal.SIGCONT)
    job.wait(lambda s: len(members(s)) >= 2, "it has joined again, or another, or both")
    job.hurry()

    assert job.digest() == undisturbed


@pytest.mark.slow
def test_a_newcomer_that_reads_slowly_joins_and_costs_one_copy(jobs: Jobs, wide: str) -> None:
    job = jobs.train(
        "slow", 1, *STEPS, *PATIENT, slow=True, pause_s=0.02, params=WIDE, faults="worker-1@1:requested=SIGSTOP"
    )
    donor = job.wait_members(1, step=3)["worker-0"]
    before = memory_mib(donor)
    job.scale(2)
    newcomer = pid_of(job, "worker-1")
    job.wait(lambda _: is_stopped(newcomer), "the newcomer has asked for the state and is frozen")
    with slowed(newcomer):
        wait_steps(job, 40)
        grown = memory_mib(donor) - before
    job.wait_members(2)
    job.hurry()

    assert job.digest() == wide
    assert grown <= STATE_MIB + SLACK_MIB, f"{grown} MiB for a state of {STATE_MIB}"


@pytest.mark.parametrize("how", ["closes", pytest.param("silent", marks=pytest.mark.slow)])
def test_a_donor_that_trains_but_transfers_nothing_is_replaced_by_another(
    jobs: Jobs, undisturbed: str, how: str
) -> None:
    deaf = jobs.home / "deaf"
    deaf.write_text(f"worker-0 {how}")
    job = jobs.train(
        "deaf",
        2,
        "--min_workers",
        "1",
        "--timing",
        "state_transfer_timeout_s=1",
        slow=True,
        pause_s=0.2,
        params=f"deaf={deaf}",
    )
    job.wait_members(2, step=2)
    job.scale(3)
    job.wait_members(3)
    job.hurry()

    assert job.digest() == undisturbed
    (failed,) = [e for e in job.events() if e["kind"] == "state-transfer-failed"]
    assert failed["replica"] == "worker-2"
    assert failed["reason"].startswith("got no state from worker-0: no state from the donor")
    assert failed["reason"].endswith("worker-1 is asked instead")


@pytest.mark.slow
def test_the_only_donor_is_asked_repeatedly_until_it_responds(jobs: Jobs, undisturbed: str) -> None:
    deaf = jobs.home / "deaf"
    deaf.write_text("worker-0 closes")
    job = jobs.train("again", 1, "--min_workers", "1", slow=True, pause_s=0.12, params=f"deaf={deaf}")
    job.wait_members(1, step=2)
    job.scale(2)
    job.wait(lambda _: job.kinds().count("state-transfer-failed") == 2, "it was tried twice")
    deaf.unlink()
    job.wait_members(2)
    job.hurry()

    assert job.digest() == undisturbed
    reasons = [e["reason"] for e in job.events() if e["kind"] == "state-transfer-failed"]
    assert "no other worker has it, tried again in 1 s" in reasons[0] and "tried again in 2 s" in reasons[1]


@pytest.mark.slow
def test_a_donor_that_freezes_during_a_state_transfer_is_replaced_by_another(jobs: Jobs, undisturbed: str) -> None:
    job = jobs.train(
        "frozen-donor", 2, "--min_workers", "1", slow=True, pause_s=0.2, faults="worker-2@1:requested=SIGSTOP"
    )
    donor = job.wait_members(2, step=2)["worker-0"]
    job.scale(3)
    newcomer = pid_of(job, "worker-2")
    job.wait(lambda _: is_stopped(newcomer), "the newcomer has asked for the state and is frozen")
    os.kill(donor, signal.SIGSTOP)
    os.kill(newcomer, signal.SIGCONT)
    job.wait(lambda s: {"worker-1", "worker-2"} <= set(members(s)), "the newcomer has its state from worker-1")
    os.kill(donor, signal.SIGCONT)
    job.hurry()

    assert job.digest() == undisturbed


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_newcomer_that_is_killed_at_any_moment_of_its_join_does_not_affect_the_job(
    jobs: Jobs, undisturbed: str, moment: str
) -> None:
    job = jobs.train("killed", 1, "--min_workers", "1", slow=True, pause_s=0.15, faults=f"worker-1@1:{moment}=SIGKILL")
    job.wait_members(1, step=2)
    job.scale(2)
    job.wait_event("worker-lost")
    job.wait(lambda s: set(members(s)) == {"worker-0", "worker-2"}, "another has joined")
    job.hurry()

    assert job.digest() == undisturbed
