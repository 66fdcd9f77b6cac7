"""What is carried out ends in an event, also where nothing can be done."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from elasticdl.scheduler.local import watching
from elasticdl.scheduler.local.events import Action, Close, Done, Ended, Event, Failed, Lost, Resize, Start, Suspend
from elasticdl.scheduler.local.hands import Hands
from elasticdl.scheduler.local.queue import Queue
from elasticdl.scheduler.local.submission import Submission
from elasticdl.spec import JobSpec
from elasticdl.spec.directory import JobDirectory, read_json

SPEC = JobSpec.model_validate({"name": "a", "model": {"definition": "m.forward"}, "workers": {"wish": 2, "max": 4}})


class Started:
    """Launchers that were started, without any."""

    def __init__(self) -> None:
        self.all: list[tuple[JobSpec, Mapping[str, str]]] = []

    def start(self, directory: JobDirectory, *, attached_fd: None, environ: Mapping[str, str]) -> int:
        self.all.append((directory.load_spec(), environ))
        return 1


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    made = Started()
    monkeypatch.setattr("elasticdl.launcher.process.start", made.start)
    monkeypatch.setattr("elasticdl.scheduler.local.hands.REACH_S", 0.05)
    monkeypatch.setattr(watching, "START_S", 30.0)
    return made


@pytest.fixture
def queue(tmp_path: Path, started: Started) -> Queue:
    made = Queue(tmp_path)
    made.put(Submission.of(SPEC, 1.0, {"MINE": "yes"}, priority=0, queue=""))
    return made


def carried_out(queue: Queue, action: Action, events: int) -> list[Event]:
    news: SimpleQueue[Event] = SimpleQueue()
    Hands(queue, news.put).carry_out(action)
    return [news.get(timeout=10.0) for _ in range(events)]


def kinds(events: list[Event]) -> list[type]:
    return [type(event) for event in events]


def test_a_job_is_started_with_the_workers_of_the_plan_and_the_environment_of_its_owner(
    queue: Queue, started: Started
) -> None:
    directory = queue.directory_of("a")
    directory.create(SPEC)

    assert kinds(carried_out(queue, Start("a", 3, resumes=False), 1)) == [Done]

    ((spec, environ),) = started.all
    assert (spec.workers.wish, spec.checkpoint.resume, environ) == (3, False, {"MINE": "yes"})
    assert spec.plan == SPEC.plan


@pytest.mark.parametrize("knows", [True, False])
def test_a_job_that_left_something_goes_on_from_there(queue: Queue, started: Started, knows: bool) -> None:
    directory = queue.directory_of("a")
    directory.create(SPEC)
    directory.result.write_text(json.dumps({"phase": "stopped"}))

    carried_out(queue, Start("a", 1, resumes=knows), 1)

    assert started.all[0][0].checkpoint.resume
    assert not directory.result.exists()
    assert (directory.root / "previous-1" / "result.json").exists()


def test_a_job_whose_directory_was_moved_away_half_is_made_again(queue: Queue, started: Started) -> None:
    directory = queue.directory_of("a")
    directory.create(SPEC)
    directory.spec.unlink()

    assert kinds(carried_out(queue, Start("a", 1, resumes=False), 1)) == [Done]


def test_a_start_that_fails_is_a_loss(queue: Queue) -> None:
    (queue.home / "jobs").write_text("in the way")

    lost, failed = carried_out(queue, Start("a", 1, resumes=False), 2)

    assert isinstance(lost, Lost) and lost.why.startswith("cannot be started: ")
    assert isinstance(failed, Failed)


def test_a_description_that_is_no_longer_one_is_a_loss_too(queue: Queue) -> None:
    queue.put(Submission("a", 1.0, 1, 4, 2, spec={"name": "no name!"}))

    assert kinds(carried_out(queue, Start("a", 1, resumes=False), 2)) == [Lost, Failed]


@pytest.mark.parametrize("action", [Resize("a", 2), Suspend("a", "others")])
def test_what_a_master_does_not_hear_has_failed(queue: Queue, action: Action) -> None:
    queue.directory_of("a").create(SPEC)

    assert kinds(carried_out(queue, action, 1)) == [Failed]


def test_a_job_that_is_closed_has_a_result_and_has_ended(queue: Queue) -> None:
    queue.directory_of("a").create(SPEC)

    ended, done = carried_out(queue, Close("a", "failed", "too wide"), 2)

    assert (ended, type(done)) == (Ended("a", "failed"), Done)
    result = read_json(queue.directory_of("a").result)
    assert result is not None
    assert (result["phase"], result["reason"], result["exit_code"]) == ("failed", "too wide", 2)


def followed(directory: JobDirectory) -> Any:
    news: SimpleQueue[Event] = SimpleQueue()
    watching.follow(directory, news.put)
    return news.get(timeout=10.0)


def test_a_job_without_processes_has_ended_if_it_left_a_result(queue: Queue) -> None:
    directory = queue.directory_of("a")
    directory.create(SPEC)
    directory.result.write_text(json.dumps({"phase": "succeeded"}))

    assert followed(directory) == Ended("a", "succeeded")


def test_a_job_whose_launcher_never_came_is_lost(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "START_S", 0.1)
    queue.directory_of("a").create(SPEC)

    assert followed(queue.directory_of("a")) == Lost("a")
