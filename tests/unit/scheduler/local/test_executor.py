"""Every action ends in an event, even if nothing can be done."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from elasticdl.scheduler.accounts.events import (
    ActionFailed,
    ActionSucceeded,
    CloseJob,
    JobAction,
    JobEvent,
    JobExited,
    JobLost,
    ResizeJob,
    StartJob,
    SuspendJob,
)
from elasticdl.scheduler.accounts.submission import JobSubmission
from elasticdl.scheduler.local import executor
from elasticdl.scheduler.local.executor import ActionExecutor
from elasticdl.scheduler.local.queue import SubmissionQueue
from elasticdl.spec import JobSpec
from elasticdl.spec.directory import JobDirectory, read_json

SPEC = JobSpec.model_validate({"name": "a", "model": {"definition": "m.forward"}, "workers": {"replicas": 2, "max": 4}})


class Started:
    """Records the launchers that would be started."""

    def __init__(self) -> None:
        self.all: list[tuple[JobSpec, Mapping[str, str]]] = []

    def start(self, directory: JobDirectory, *, attached_fd: None, environ: Mapping[str, str]) -> int:
        self.all.append((directory.load_spec(), environ))
        return 1


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    launches = Started()
    monkeypatch.setattr("elasticdl.launcher.local.processes.start_launcher", launches.start)
    monkeypatch.setattr("elasticdl.scheduler.local.executor.CONNECT_TIMEOUT_S", 0.05)
    monkeypatch.setattr(executor, "LAUNCH_TIMEOUT_S", 30.0)
    return launches


@pytest.fixture
def queue(tmp_path: Path, started: Started) -> SubmissionQueue:
    launches = SubmissionQueue(tmp_path)
    launches.submit(JobSubmission.from_spec(SPEC, 1.0, {"MINE": "yes"}, priority=0, queue=""))
    return launches


def carry_out(queue: SubmissionQueue, action: JobAction, events: int) -> list[JobEvent]:
    news: SimpleQueue[JobEvent] = SimpleQueue()
    ActionExecutor(queue, news.put).execute(action)
    return [news.get(timeout=10.0) for _ in range(events)]


def kinds(events: list[JobEvent]) -> list[type]:
    return [type(event) for event in events]


def test_a_job_is_started_with_the_workers_of_the_plan_and_the_environment_of_its_user(
    queue: SubmissionQueue, started: Started
) -> None:
    directory = queue.job_directory("a")
    directory.create(SPEC)

    assert kinds(carry_out(queue, StartJob("a", 3, resumes=False), 1)) == [ActionSucceeded]

    ((spec, environ),) = started.all
    assert (spec.workers.replicas, spec.checkpoint.resume, environ) == (3, False, {"MINE": "yes"})
    assert spec.plan == SPEC.plan


@pytest.mark.parametrize("knows", [True, False])
def test_a_job_with_earlier_results_is_resumed(queue: SubmissionQueue, started: Started, knows: bool) -> None:
    directory = queue.job_directory("a")
    directory.create(SPEC)
    directory.result.write_text(json.dumps({"phase": "stopped"}))

    carry_out(queue, StartJob("a", 1, resumes=knows), 1)

    assert started.all[0][0].checkpoint.resume
    assert not directory.result.exists()
    assert (directory.root / "previous-1" / "result.json").exists()


def test_a_job_whose_directory_is_incomplete_is_created_again(queue: SubmissionQueue, started: Started) -> None:
    directory = queue.job_directory("a")
    directory.create(SPEC)
    directory.spec.unlink()

    assert kinds(carry_out(queue, StartJob("a", 1, resumes=False), 1)) == [ActionSucceeded]


def test_a_failed_start_counts_as_a_loss(queue: SubmissionQueue) -> None:
    (queue.home / "jobs").write_text("in the way")

    lost, failed = carry_out(queue, StartJob("a", 1, resumes=False), 2)

    assert isinstance(lost, JobLost) and lost.reason.startswith("cannot be started: ")
    assert isinstance(failed, ActionFailed)


def test_an_invalid_description_counts_as_a_loss_too(queue: SubmissionQueue) -> None:
    queue.submit(JobSubmission("a", 1.0, 1, 4, 2, spec={"name": "no name!"}))

    assert kinds(carry_out(queue, StartJob("a", 1, resumes=False), 2)) == [JobLost, ActionFailed]


@pytest.mark.parametrize("action", [ResizeJob("a", 2), SuspendJob("a", "others")])
def test_an_action_that_does_not_reach_the_master_has_failed(queue: SubmissionQueue, action: JobAction) -> None:
    queue.job_directory("a").create(SPEC)

    assert kinds(carry_out(queue, action, 1)) == [ActionFailed]


def test_a_job_that_is_closed_has_a_result_and_has_ended(queue: SubmissionQueue) -> None:
    queue.job_directory("a").create(SPEC)

    ended, done = carry_out(queue, CloseJob("a", "failed", "too wide"), 2)

    assert (ended, type(done)) == (JobExited("a", "failed"), ActionSucceeded)
    result = read_json(queue.job_directory("a").result)
    assert result is not None
    assert (result["phase"], result["reason"], result["exit_code"]) == ("failed", "too wide", 2)


def followed(directory: JobDirectory) -> Any:
    news: SimpleQueue[JobEvent] = SimpleQueue()
    executor.follow_job(directory, news.put)
    return news.get(timeout=10.0)


def test_a_job_without_processes_has_ended_if_it_left_a_result(queue: SubmissionQueue) -> None:
    directory = queue.job_directory("a")
    directory.create(SPEC)
    directory.result.write_text(json.dumps({"phase": "succeeded"}))

    assert followed(directory) == JobExited("a", "succeeded")


def test_a_job_whose_launcher_never_started_is_lost(queue: SubmissionQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "LAUNCH_TIMEOUT_S", 0.1)
    queue.job_directory("a").create(SPEC)

    assert followed(queue.job_directory("a")) == JobLost("a")
