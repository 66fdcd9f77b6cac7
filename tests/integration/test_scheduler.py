"""Jobs that share a machine: they start, grow, shrink and are suspended, and end with the same bits."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

import pytest
import torch

from elasticdl.launcher.local import processes
from elasticdl.launcher.local.watched_process import start_ticks
from elasticdl.scheduler.accounts.report import ScheduledJobState
from tests.integration import test_compat_ddp as ddp
from tests.integration.job import EPOCHS, PATIENCE_S, RECORDS, Job, Jobs
from tests.integration.scheduling import Scheduler
from tests.waiting import until

QUEUED = ("--queue", "--min_workers", "1")
URGENT = ("--queue", "--priority", "5")


@pytest.fixture
def scheduler(jobs: Jobs) -> Iterator[Scheduler]:
    """A scheduler in the home of `jobs`; it ends before the jobs do, or it would restart them."""
    started = Scheduler(jobs.home)
    yield started
    started.end()


def result_of(job: Job) -> str:
    return str(job.result()["phase"])


@pytest.mark.slow
def test_a_job_starts_at_once_with_the_free_slots_and_grows_when_another_ends(
    jobs: Jobs, scheduler: Scheduler, undisturbed: str
) -> None:
    scheduler.start(3, "elastic-first-come")
    first = jobs.train("first", 2, *QUEUED, "--max_workers", "2", slow=True, pause_s=0.15)
    first.wait_members(2, step=2)
    second = jobs.train("second", 2, *QUEUED, slow=True, pause_s=0.15)
    second.wait_members(1, step=2)
    shrunk = second.document()
    assert (shrunk["phase"], shrunk["desired_workers"]) == ("running", 1)
    assert "1 of 4 workers" in shrunk["reason"]
    assert shrunk["scheduling"]["workers"] == 1

    first.hurry()
    second.wait_members(3)
    second.hurry()

    assert first.digest() == second.digest() == undisturbed
    scheduler.wait_empty()


def test_higher_priority_takes_workers_and_a_suspended_job_ends_with_the_same_bits(
    jobs: Jobs, scheduler: Scheduler, undisturbed: str
) -> None:
    scheduler.start(3, "elastic-first-come")
    low = jobs.train("low", 3, *QUEUED, slow=True, pause_s=0.15)
    low.wait_members(3, step=5)
    high = jobs.train("high", 3, *URGENT, "--min_workers", "3", slow=True, pause_s=0.15)
    high.wait_members(3, step=2)
    waiting = low.document()
    assert (waiting["phase"], waiting["exit_code"]) == ("waiting", None)
    assert 5 <= waiting["step"] < waiting["total_steps"]
    assert waiting["reason"] != ""
    assert not low.living()

    high.hurry()
    low.hurry()
    scheduler.wait_gone("low")

    assert high.digest() == low.digest() == undisturbed
    assert "state of step" in low.log("worker-0"), "it did not begin anew"
    assert low.document()["records"] == EPOCHS * RECORDS


@pytest.mark.slow
def test_an_unmodified_script_shrinks_is_suspended_and_resumes_from_its_snapshot(
    jobs: Jobs, scheduler: Scheduler, undisturbed: str
) -> None:
    expected = ddp.run_alone(jobs.home / "alone")
    scheduler.start(2, "elastic-first-come")
    directory = jobs.home / "work"
    low = ddp.start(jobs, directory, "1:2", "--queue")
    low.wait_members(2)
    ddp.wait_printed(low, "epoch 5 of 2 processes")

    first = jobs.train("first", 1, *URGENT, "--max_workers", "1", slow=True, pause_s=0.15)
    ddp.wait_printed(low, "of 1 processes")
    shrunk = low.document()
    assert (shrunk["phase"], shrunk["desired_workers"]) == ("running", 1)
    second = jobs.train("second", 1, *URGENT, "--max_workers", "1", slow=True, pause_s=0.15)
    second.wait_members(1, step=1)
    waiting = low.document()
    assert (waiting["phase"], waiting["exit_code"]) == ("waiting", None)
    assert not low.living()

    (directory / "slow").unlink()
    first.hurry()
    second.hurry()
    scheduler.wait_gone(low.name)

    result = low.result()
    assert (result["phase"], result["workers_failed"]) == ("succeeded", 0), low.story()
    assert first.digest() == second.digest() == undisturbed
    torch.testing.assert_close(ddp.weights(directory), expected, rtol=1e-9, atol=1e-12)
    (begun,) = re.findall(r"begins at epoch (\d+)", low.log("worker-0"))  # the log since it was suspended
    assert int(begun) > 5


@pytest.mark.slow
def test_a_job_shrinks_for_another_and_the_capacity_is_never_exceeded(
    jobs: Jobs, scheduler: Scheduler, undisturbed: str
) -> None:
    scheduler.start(3)
    low = jobs.train("low", 3, *QUEUED, slow=True, pause_s=0.15)
    low.wait_members(3, step=3)
    high = jobs.train("high", 2, *URGENT, "--max_workers", "2", slow=True, pause_s=0.15)
    high.wait_members(2, step=1)
    before = low.wait_members(1)
    assert sum(name.startswith("worker") for job in (low, high) for name in job.living()) <= 3

    high.hurry()
    after = low.wait_members(3)
    low.hurry()

    assert set(before) < set(after), "the other workers are still there"
    assert high.digest() == low.digest() == undisturbed


@pytest.mark.slow
def test_jobs_continue_without_the_scheduler_and_the_next_scheduler_adopts_them(
    jobs: Jobs, scheduler: Scheduler, undisturbed: str
) -> None:
    scheduler.start(3)
    first = jobs.train("first", 2, *QUEUED, "--max_workers", "2", slow=True, pause_s=0.15)
    second = jobs.train("second", 2, *QUEUED, slow=True, pause_s=0.15)
    first.wait_members(2, step=2)
    before = second.wait_members(1, step=1)
    scheduler.end(signal.SIGKILL)

    first.hurry()
    assert first.digest() == undisturbed
    third = jobs.train("third", 1, *QUEUED, "--max_workers", "1")
    assert third.document()["phase"] == "waiting"
    assert "no scheduler runs" in third.document()["reason"]
    assert scheduler.queue.job_names() == ["first", "second", "third"]
    scheduler.start(3)
    after = second.wait_members(2)
    second.hurry()

    assert set(before) < set(after), "the job that ran was left alone"
    assert second.digest() == third.digest() == undisturbed
    scheduler.wait_empty()


@pytest.mark.slow
def test_a_scheduler_that_dies_while_it_suspends_a_job_loses_nothing(
    jobs: Jobs, scheduler: Scheduler, undisturbed: str
) -> None:
    scheduler.start(2)
    low = jobs.train("low", 2, *QUEUED, slow=True, pause_s=0.15)
    low.wait_members(2, step=3)
    high = jobs.train("high", 2, *URGENT, "--min_workers", "2", "--max_workers", "2")
    scheduler.wait("low", lambda item: item.state is ScheduledJobState.SUSPENDING, "is being suspended")
    scheduler.end(signal.SIGKILL)
    low.hurry()
    scheduler.start(2)

    assert high.digest() == undisturbed
    scheduler.wait_gone("low")
    assert low.digest() == undisturbed


@pytest.mark.slow
def test_a_job_whose_launcher_and_master_were_killed_is_restarted_with_one_set_of_workers(
    jobs: Jobs, scheduler: Scheduler, undisturbed: str
) -> None:
    scheduler.start(2)
    job = jobs.train("job", 2, *QUEUED, slow=True, pause_s=0.15)
    job.wait_members(2, step=3)
    left = processes.find_replicas(job.directory)
    job.kill_launcher_and_master()

    until("their end", lambda: not any(start_ticks(item.pid) == item.start_ticks for item in left), PATIENCE_S)
    job.hurry()
    scheduler.wait_gone("job")

    assert job.digest() == undisturbed
    assert "state of step" in job.log("worker-0"), "it did not begin anew"
    assert processes.find_processes(job.directory) == []


def test_ctrl_c_ends_the_scheduler_and_no_job(jobs: Jobs, scheduler: Scheduler, undisturbed: str) -> None:
    scheduler.start(2)
    job = jobs.train("job", 2, *QUEUED, slow=True, pause_s=0.15)
    job.wait_members(2, step=1)

    assert scheduler.end(signal.SIGINT) == 0
    assert "1 job runs on" in scheduler.log.read_text()
    job.hurry()

    assert job.digest() == undisturbed


@pytest.mark.slow
def test_a_policy_that_raises_does_not_affect_jobs(jobs: Jobs, scheduler: Scheduler, undisturbed: str) -> None:
    fails = jobs.home / "fails"
    scheduler.start(3, f"in-order:fails={fails}")
    first = jobs.train("first", 2, *QUEUED, "--max_workers", "2", slow=True, pause_s=0.15)
    before = first.wait_members(2, step=2)
    fails.touch()
    second = jobs.train("second", 1, *QUEUED)

    waiting = scheduler.wait("second", lambda item: "the policy failed" in item.reason, "hears of it")
    assert waiting.is_waiting
    assert first.wait_members(2) == before
    assert "ZeroDivisionError: made to fail" in scheduler.log.read_text()
    fails.unlink()
    first.hurry()

    assert first.digest() == second.digest() == undisturbed


@pytest.mark.slow
def test_jobs_of_the_queue_are_stopped_for_good(jobs: Jobs, scheduler: Scheduler) -> None:
    scheduler.start(1)
    running = jobs.train("running", 1, *QUEUED, slow=True, pause_s=0.15)
    waiting = jobs.train("waiting", 1, *QUEUED, slow=True, pause_s=0.15)
    running.wait_members(1, step=2)

    waiting.stop()
    assert (result_of(waiting), waiting.directory.launcher.exists()) == ("stopped", False)
    running.stop()
    assert result_of(running) == "stopped"
    scheduler.wait_empty()

    assert running.document()["phase"] == "stopped"


def test_a_job_that_can_never_fit_is_rejected_when_the_scheduler_sees_it(jobs: Jobs, scheduler: Scheduler) -> None:
    wide = jobs.train("wide", 3, "--queue", "--min_workers", "3")

    scheduler.start(2)
    scheduler.wait_gone("wide")

    document = wide.document()
    assert (document["phase"], document["exit_code"]) == ("failed", 2)
    assert "can never run here: needs 3 workers" in document["reason"]


@pytest.mark.slow
def test_measurements_of_masters_reach_the_policy_and_its_batch_scale_is_trained(
    jobs: Jobs, scheduler: Scheduler, undisturbed: str
) -> None:
    scheduler.start(2, "in-order:passes=3", "--interval=0.5")
    options = (*QUEUED, "--max_workers", "1")
    adaptive = jobs.train("adaptive", 1, *options, "--adaptive_batch", "sqrt", slow=True, pause_s=0.05)
    fixed = jobs.train("fixed", 1, *options, slow=True, pause_s=0.05)

    status = adaptive.wait(lambda s: s.batch_scale == 3, "an update of three batches")
    assert status.speeds and status.gradient_variance > 0
    assert [item.scale for item in status.batch_scales] == [3], "it was asked for once"
    assert adaptive.document()["scheduling"]["batch_scale"] == 3
    fixed.wait(lambda s: s.step >= status.step and bool(s.speeds), "that the other was measured as well")
    assert fixed.document()["scheduling"]["batch_scale"] is None
    adaptive.hurry()
    fixed.hurry()

    assert fixed.digest() == undisturbed != adaptive.digest()
    assert adaptive.document()["records"] == EPOCHS * RECORDS
