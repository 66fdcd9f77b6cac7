"""Watching a job: what ends it, and what signals do."""

from __future__ import annotations

import io
import json
import signal
from queue import SimpleQueue

import pytest
from rich.console import Console

from elasticdl.cli import attach
from elasticdl.cli.screens.live_job import JobScreen
from elasticdl.errors import ElasticDLError
from elasticdl.jobs import home as jobs
from elasticdl.jobs import watch as feed
from elasticdl.jobs.job_status import JobStatus
from elasticdl.jobs.local import WatchedLocalJob, kill_job
from elasticdl.jobs.user_output import FirstWorkerOutput
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec import load
from elasticdl.spec.directory import JobDirectory

Stops = list[str]


@pytest.fixture
def directory() -> JobDirectory:
    job_directory = jobs.job_directory("digits")
    job_directory.create(load.resolve_job({"name": "digits", "model": {"definition": "m.f"}}))
    return job_directory


@pytest.fixture
def stops(monkeypatch: pytest.MonkeyPatch) -> Stops:
    """The reasons of all requests to stop that the master received."""
    reasons: Stops = []

    class Client:
        def __init__(self, *arguments: object, **named: object) -> None:
            pass

        @classmethod
        def connect(cls, *arguments: object, **named: object) -> Client:
            return cls()

        def __enter__(self) -> Client:
            return self

        def __exit__(self, *exception: object) -> None:
            pass

        def stop(self, at_once: bool, reason: str) -> str:
            reasons.append(reason)
            return ""

    monkeypatch.setattr("elasticdl.rpc.client.MasterClient", Client)
    return reasons


def watch(directory: JobDirectory, *news: feed.WatchEvent) -> tuple[int, str]:
    queue: SimpleQueue[feed.WatchEvent] = SimpleQueue()
    for item in news:
        queue.put(item)
    console = Console(file=io.StringIO(), width=200)
    with JobScreen.open(console) as screen:
        prints = FirstWorkerOutput(WatchedLocalJob(directory).open_log)
        code = attach.show_until_over(WatchedLocalJob(directory), queue, screen, prints)
    assert isinstance(console.file, io.StringIO)
    return code, console.file.getvalue()


@pytest.mark.parametrize("code", [0, 1, 2, 130])
def test_the_exit_code_is_the_jobs(directory: JobDirectory, status: pb.JobStatus, code: int) -> None:
    directory.result.write_text(json.dumps({"phase": "ended", "exit_code": code}))

    assert watch(directory, feed.StatusChanged(JobStatus.from_message(status, "here")), feed.WatchEnded())[0] == code


def test_the_death_of_the_master_is_reported_once_and_watching_continues(
    directory: JobDirectory, status: pb.JobStatus
) -> None:
    directory.result.write_text(json.dumps({"phase": "succeeded", "exit_code": 0}))
    directory.master.write_text("{}")

    _, output = watch(
        directory,
        feed.MasterUnresponsive(),
        feed.MasterUnresponsive(),
        feed.StatusChanged(JobStatus.from_message(status, "here")),
        feed.WatchEnded(),
    )

    assert output.count("master restarting…") == 1
    assert "digits running" in output


def test_the_first_interrupt_requests_a_stop_and_explains_how_to_kill(directory: JobDirectory, stops: Stops) -> None:
    directory.result.write_text(json.dumps({"phase": "stopped", "exit_code": 130}))

    code, output = watch(directory, feed.SignalReceived(signal.SIGINT), feed.WatchEnded())

    assert code == 130
    assert "a checkpoint is written. Ctrl-C again kills" in output


def test_the_second_interrupt_ends_the_watching_at_once(directory: JobDirectory, stops: Stops) -> None:
    interrupt = feed.SignalReceived(signal.SIGINT)

    assert watch(directory, interrupt, interrupt)[0] == 130
    assert not directory.result.exists()


def test_a_repeated_termination_never_kills(directory: JobDirectory, stops: Stops) -> None:
    directory.result.write_text(json.dumps({"phase": "stopped", "exit_code": 130}))
    termination = feed.SignalReceived(signal.SIGTERM)

    code, _ = watch(directory, termination, feed.SignalReceived(signal.SIGHUP), termination, feed.WatchEnded())

    assert code == 130


def test_a_job_that_vanishes_without_a_result_is_an_error_that_names_the_logs(directory: JobDirectory) -> None:
    with pytest.raises(ElasticDLError, match=f"its processes are gone; see the logs in {directory.logs}"):
        watch(directory, feed.WatchEnded("its processes are gone"))


def test_the_result_of_a_killed_job_says_that_it_was_killed(directory: JobDirectory) -> None:
    kill_job(directory)

    assert json.loads(directory.result.read_text())["exit_code"] == 130


def test_killing_does_not_touch_the_result_of_a_job_that_is_over(directory: JobDirectory) -> None:
    directory.result.write_text('{"phase": "succeeded"}')

    kill_job(directory)

    assert directory.result.read_text() == '{"phase": "succeeded"}'
