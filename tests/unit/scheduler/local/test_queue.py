"""The queue's files: complete, private, and sufficient for the next scheduler."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from elasticdl.errors import SpecError
from elasticdl.scheduler.accounts.events import JobRecovered, JobSubmitted
from elasticdl.scheduler.accounts.report import JobAccount, ScheduledJobState, ScheduledJobStatus, SchedulerReport
from elasticdl.scheduler.accounts.submission import JobSubmission
from elasticdl.scheduler.local.queue import SubmissionQueue, close_job
from elasticdl.scheduler.local.server import recover_jobs
from elasticdl.spec import JobSpec
from elasticdl.spec.directory import read_json
from tests.unit.scheduler.local.jobs import submission

SPEC = JobSpec.model_validate(
    {"name": "a", "model": {"definition": "m.forward"}, "workers": {"replicas": 2, "min": 1, "max": 4, "threads": 3}}
)


@pytest.fixture
def queue(tmp_path: Path) -> SubmissionQueue:
    return SubmissionQueue(tmp_path)


def test_a_submission_is_read_as_it_was_written(queue: SubmissionQueue) -> None:
    put = JobSubmission.from_spec(SPEC, 5.0, {"PATH": "/bin"}, priority=3, queue="team")

    queue.submit(put)

    assert queue.find("a") == put
    assert (put.min_workers, put.max_workers, put.requested, put.devices) == (1, 4, 2, 3)
    assert queue.job_names() == ["a"]
    assert os.stat(queue.root / "queue" / "a.json").st_mode & 0o077 == 0, "its owner's environment is in it"


def test_a_job_is_launched_with_the_allocated_workers_and_its_own_plan() -> None:
    put = JobSubmission.from_spec(SPEC, 5.0, {}, priority=0, queue="")

    launched = put.to_launch_spec(4, resumes=True)

    assert launched.workers.replicas == 4
    assert launched.checkpoint.resume
    assert launched.plan == SPEC.plan


def test_an_invalid_submission_is_reported_with_its_path(queue: SubmissionQueue) -> None:
    queue.submit(submission("a"))
    wrong = json.dumps(submission("a").to_document() | {"submitted_at": "yesterday"})
    for text in ("{", "[]", '{"name": "a"}', wrong):
        (queue.root / "queue" / "a.json").write_text(text)
        with pytest.raises(SpecError):
            queue.find("a")


def test_removing_a_job_removes_its_request_to_stop(queue: SubmissionQueue) -> None:
    queue.submit(submission("a"))
    queue.request_stop("a")
    assert queue.stop_requests() == {"a"}

    queue.remove("a")

    assert (queue.job_names(), queue.stop_requests()) == ([], set())


def test_only_one_scheduler_serves_a_queue(queue: SubmissionQueue) -> None:
    assert not queue.is_served()
    with queue.acquire_lock() as is_ours:
        assert is_ours
        assert queue.is_served()
        with queue.acquire_lock() as is_ours_too:
            assert not is_ours_too
    assert not queue.is_served()


def test_a_report_is_read_as_it_was_written(queue: SubmissionQueue) -> None:
    standing = ScheduledJobStatus(
        ScheduledJobState.SUSPENDING,
        {},
        4,
        "others",
        12.5,
        9.0,
        5.0,
        1,
        "team",
        2,
        3,
        JobAccount(started_at=1.0, launches=2),
    )
    report = SchedulerReport(10.0, "goodput", {"here": 8}, "", {"a": standing})
    queue.root.mkdir(parents=True)

    queue.save_report(report)

    assert queue.load_report() == report


@pytest.mark.parametrize("text", ["", "{", '{"jobs": {}}', '{"jobs": {"a": {"state": "dreaming"}}}'])
def test_an_unreadable_report_is_none(queue: SubmissionQueue, text: str) -> None:
    queue.root.mkdir(parents=True)
    queue.report_path.write_text(text)

    assert queue.load_report() is None


def test_a_report_counts_used_devices() -> None:
    running = ScheduledJobStatus(ScheduledJobState.RUNNING, {"here": 3}, 4, "all", devices=2)

    assert SchedulerReport(10.0, "goodput", {"here": 8, "there": 8}, "", {"a": running}).used_devices == 6


def write(queue: SubmissionQueue, name: str, state: ScheduledJobState, launches: int, phase: str = "") -> None:
    """Leaves a job as a scheduler that died may leave it."""
    queue.submit(submission(name))
    report = queue.load_report()
    jobs = dict(report.jobs) if report else {}
    jobs[name] = ScheduledJobStatus(
        state, {"here": 1} if state is ScheduledJobState.RUNNING else {}, 4, "so", account=JobAccount(launches=launches)
    )
    queue.save_report(SchedulerReport(1.0, "in-order", {"here": 4}, "", jobs))
    if phase:
        directory = queue.job_directory(name)
        directory.root.mkdir(parents=True)
        directory.result.write_text(json.dumps({"phase": phase}))


def test_the_next_scheduler_restores_every_job(queue: SubmissionQueue) -> None:
    write(queue, "running", ScheduledJobState.RUNNING, 1)
    write(queue, "suspended", ScheduledJobState.WAITING, 1, "stopped")
    write(queue, "stopping", ScheduledJobState.SUSPENDING, 1, "stopped")
    queue.submit(submission("new"))

    events = recover_jobs(queue, lambda line: pytest.fail(line))

    assert [event for event in events if isinstance(event, JobSubmitted)] == [JobSubmitted(submission("new"))]
    states = {
        event.submission.name: (event.state, event.allocated) for event in events if isinstance(event, JobRecovered)
    }
    assert states == {
        "running": (ScheduledJobState.RUNNING, {"here": 1}),
        "suspended": (ScheduledJobState.WAITING, {}),
        "stopping": (ScheduledJobState.SUSPENDING, {}),
    }


def test_a_job_closed_by_a_scheduler_that_died_leaves_the_queue(queue: SubmissionQueue) -> None:
    write(queue, "rejected", ScheduledJobState.WAITING, 0, "failed")
    write(queue, "lost", ScheduledJobState.WAITING, 3, "failed")

    assert recover_jobs(queue, lambda line: pytest.fail(line)) == []
    assert queue.job_names() == []


def test_an_unreadable_file_is_ignored_and_reported(queue: SubmissionQueue) -> None:
    queue.submit(submission("good"))
    (queue.root / "queue" / "bad.json").write_text("{")
    messages: list[str] = []

    events = recover_jobs(queue, messages.append)

    assert [event.submission.name for event in events if isinstance(event, JobSubmitted)] == ["good"]
    assert len(messages) == 1 and messages[0].startswith("bad is ignored: ")


def test_closing_leaves_a_result_and_keeps_that_of_a_suspended_job(queue: SubmissionQueue) -> None:
    directory = queue.job_directory("a")
    directory.root.mkdir(parents=True)

    close_job(directory, "stopped", "taken out")
    close_job(directory, "stopped", "again")

    result = read_json(directory.result)
    assert result is not None
    assert (result["phase"], result["exit_code"], result["reason"]) == ("stopped", 130, "taken out")
