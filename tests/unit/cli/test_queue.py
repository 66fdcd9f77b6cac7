"""`train --queue`, and the other verbs with a job that waits."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from elasticdl.jobs import home as jobs
from elasticdl.jobs import submission
from elasticdl.scheduler.accounts.report import JobAccount, ScheduledJobState, ScheduledJobStatus, SchedulerReport
from elasticdl.scheduler.local.queue import SubmissionQueue
from elasticdl.spec.directory import read_json, write_private_file
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi


@pytest.fixture
def queue(home: Path) -> SubmissionQueue:
    return SubmissionQueue(home)


@pytest.fixture
def served(queue: SubmissionQueue) -> Iterator[SubmissionQueue]:
    """The queue is served by a scheduler with four devices that does not answer."""
    with queue.acquire_lock() as is_ours:
        assert is_ours
        queue.save_report(SchedulerReport(0.0, "goodput", {"here": 4}))
        yield queue


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elasticdl.jobs.queueing.DECISION_TIMEOUT_S", 0.1)


def words(zoo: Path, *more: str) -> list[str]:
    model = [f"--model_zoo={zoo}", "--model_def=digits.forward", f"--training_data={zoo}/train.csv"]
    return ["train", "--job_name=digits", *model, *more]


def decide(queue: SubmissionQueue, standing: ScheduledJobStatus) -> None:
    submission = queue.find("digits")
    assert submission is not None
    standing = replace(standing, submitted_at=submission.submitted_at)
    queue.save_report(SchedulerReport(1.0, "goodput", {"here": 4}, "", {"digits": standing}))


def test_the_time_of_checks_before_a_job_is_queued_does_not_count_as_waiting(
    elasticdl: Run, zoo: Path, queue: SubmissionQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[float] = []
    real = submission.prepare_directory
    monkeypatch.setattr(submission, "prepare_directory", lambda *words: (real(*words), checked.append(time.time())))

    assert elasticdl(*words(zoo, "--queue")).exit_code == 0

    queued = queue.find("digits")
    assert queued is not None and queued.submitted_at >= checked[0]


def test_a_job_is_queued_even_if_no_scheduler_runs(elasticdl: Run, zoo: Path, queue: SubmissionQueue) -> None:
    done = elasticdl(*words(zoo, "--queue", "--priority=3", "--num_workers=2"))

    assert done.exit_code == 0
    assert "start one with `elasticdl scheduler`" in done.stdout
    queued = queue.find("digits")
    assert queued is not None
    assert (
        queued.priority,
        queued.queue,
        queued.min_workers,
        queued.max_workers,
        queued.devices,
    ) == (3, "", 1, 2, 1)
    assert jobs.job_directory("digits").spec.exists(), "its name is taken"


@pytest.mark.parametrize(
    ("option_words", "name"), [(["--queue=team"], "team"), (["--queue", "team"], "team"), (["--queue"], "")]
)
def test_a_queue_may_have_a_name(
    elasticdl: Run, zoo: Path, queue: SubmissionQueue, option_words: list[str], name: str
) -> None:
    assert elasticdl(*words(zoo, *option_words)).exit_code == 0

    queued = queue.find("digits")
    assert queued is not None and queued.queue == name


def test_a_file_after_the_queue_option_is_the_job_file(elasticdl: Run, zoo: Path, queue: SubmissionQueue) -> None:
    (zoo / "job.yaml").write_text("name: digits\nmodel: {definition: digits.forward}\ndata: {training: train.csv}\n")

    assert elasticdl("train", "--queue", zoo / "job.yaml").exit_code == 0
    assert queue.has_job("digits")


@pytest.mark.parametrize(("option_words", "name"), [(["--queue"], ""), (["--queue", "team"], "team")])
def test_words_after_a_script_are_arguments_of_the_script(
    elasticdl: Run, zoo: Path, queue: SubmissionQueue, option_words: list[str], name: str
) -> None:
    (zoo / "own.py").write_text("import elasticdl.torch\n")

    done = elasticdl("run", "--job_name", "own", "--workers=1:2", *option_words, zoo / "own.py", "--queue", "./mine")

    assert done.exit_code == 0, done.stderr
    queued = queue.find("own")
    assert queued is not None and queued.queue == name
    assert queued.spec["script"]["arguments"] == ["--queue", "./mine"]


def test_a_queued_job_has_one_thread_per_worker_unless_set(elasticdl: Run, zoo: Path, queue: SubmissionQueue) -> None:
    elasticdl(*words(zoo, "--queue", "--threads=3"))

    queued = queue.find("digits")
    assert queued is not None and queued.devices == 3


def test_a_wrong_job_is_not_queued(elasticdl: Run, zoo: Path, queue: SubmissionQueue) -> None:
    done = elasticdl(*words(zoo, "--queue", "--training_data=nowhere.csv"))

    assert done.exit_code == 2
    assert queue.job_names() == []
    assert not jobs.job_directory("digits").root.exists()


def test_a_job_that_can_never_fit_is_refused_at_once(elasticdl: Run, zoo: Path, served: SubmissionQueue) -> None:
    done = elasticdl(*words(zoo, "--queue", "--num_workers=5", "--min_workers=5"))

    assert done.exit_code == 2
    assert "can never run here: needs 5 workers of 1 device, the empty cluster has room for 4" in done.stderr
    assert served.job_names() == []
    assert not jobs.job_directory("digits").root.exists()


def test_evaluation_cannot_be_queued_here(elasticdl: Run, zoo: Path) -> None:
    done = elasticdl("evaluate", *words(zoo, "--queue")[1:-2], f"--validation_data={zoo}/train.csv", "--queue")

    assert done.exit_code == 2
    assert "cannot be interrupted" in done.stderr


def test_a_priority_without_a_queue_is_refused(elasticdl: Run, zoo: Path) -> None:
    done = elasticdl(*words(zoo, "--priority=3"))

    assert (done.exit_code, "give --queue, too" in done.stderr) == (2, True)


def test_a_queue_of_a_cluster_has_a_name(elasticdl: Run, zoo: Path, cluster: FakeApi) -> None:
    done = elasticdl(*words(zoo, "--image_name=i", "--queue"))

    assert done.exit_code == 2
    assert "--queue=NAME" in done.stderr


def test_the_name_of_a_queued_job_cannot_be_used_again(elasticdl: Run, zoo: Path) -> None:
    elasticdl(*words(zoo, "--queue"))

    for again in (words(zoo, "--queue"), words(zoo, "--resume")):
        done = elasticdl(*again)
        assert done.exit_code == 2
        assert "is in the queue" in done.stderr


def test_a_name_is_free_again_after_its_job_ended_while_no_scheduler_ran(
    elasticdl: Run, zoo: Path, queue: SubmissionQueue
) -> None:
    elasticdl(*words(zoo, "--queue"))
    decide(queue, ScheduledJobStatus(ScheduledJobState.RUNNING, {"here": 1}, 4, "all", account=JobAccount(launches=1)))
    write_private_file(jobs.job_directory("digits").result, json.dumps({"phase": "succeeded", "exit_code": 0}))
    assert json.loads(elasticdl("status", "digits", "--json").stdout)["phase"] == "succeeded"

    done = elasticdl(*words(zoo, "--queue", "--resume"))

    assert done.exit_code == 0, done.stderr
    document = json.loads(elasticdl("status", "digits", "--json").stdout)
    assert (document["phase"], document["scheduling"]) == ("waiting", None), "the old plan is not about this one"


def test_the_status_of_a_waiting_job_has_the_reason_and_the_wait_time(
    elasticdl: Run, zoo: Path, served: SubmissionQueue
) -> None:
    elasticdl(*words(zoo, "--queue", "--priority=2"))
    decide(served, ScheduledJobStatus(ScheduledJobState.WAITING, {}, 4, "others were first", 65.0, priority=2))

    document = json.loads(elasticdl("status", "digits", "--json").stdout)

    assert (document["phase"], document["exit_code"]) == ("waiting", None)
    assert document["reason"] == "others were first; room expected in 1:05"
    assert document["scheduling"]["expected_wait_s"] == 65.0
    assert document["scheduling"]["priority"] == 2
    assert "others were first" in elasticdl("jobs").stdout
    assert "others were first" in elasticdl("status", "digits").stdout


def test_a_suspended_job_is_waiting_not_ended(elasticdl: Run, zoo: Path, served: SubmissionQueue) -> None:
    elasticdl(*words(zoo, "--queue"))
    result = {"phase": "stopped", "reason": "suspended", "exit_code": 130, "step": 7, "total_steps": 9}
    write_private_file(jobs.job_directory("digits").result, json.dumps(result))
    decide(
        served,
        ScheduledJobStatus(
            ScheduledJobState.WAITING, {}, 4, "others are greater", None, account=JobAccount(launches=1)
        ),
    )

    document = json.loads(elasticdl("status", "digits", "--json").stdout)

    assert (document["phase"], document["step"]) == ("waiting", 7)
    assert document["reason"] == "others are greater; room: wait unknown"


def test_a_job_that_its_owner_stopped_is_over(elasticdl: Run, zoo: Path, served: SubmissionQueue) -> None:
    elasticdl(*words(zoo, "--queue"))
    write_private_file(jobs.job_directory("digits").result, json.dumps({"phase": "stopped", "exit_code": 130}))
    decide(served, ScheduledJobStatus(ScheduledJobState.RUNNING, {"here": 1}, 4, "all", account=JobAccount(launches=1)))

    assert json.loads(elasticdl("status", "digits", "--json").stdout)["phase"] == "stopped"


def test_stopping_a_waiting_job_removes_it_from_the_queue(elasticdl: Run, zoo: Path, queue: SubmissionQueue) -> None:
    elasticdl(*words(zoo, "--queue"))

    done = elasticdl("stop", "digits")

    assert (done.exit_code, done.stdout) == (0, "digits: taken out of the queue\n")
    assert queue.job_names() == []
    result = read_json(jobs.job_directory("digits").result)
    assert result is not None and result["phase"] == "stopped"
    assert json.loads(elasticdl("status", "digits", "--json").stdout)["phase"] == "stopped"


def test_a_waiting_job_cannot_be_scaled(elasticdl: Run, zoo: Path, queue: SubmissionQueue) -> None:
    elasticdl(*words(zoo, "--queue"))

    done = elasticdl("scale", "digits", "--workers", "1")

    assert (done.exit_code, "waits in the queue" in done.stderr) == (2, True)


def test_while_a_scheduler_runs_a_user_cannot_scale_its_jobs(
    elasticdl: Run, zoo: Path, served: SubmissionQueue
) -> None:
    elasticdl(*words(zoo, "--queue"))

    done = elasticdl("scale", "digits", "--workers", "1")

    assert (done.exit_code, "the scheduler decides" in done.stderr) == (2, True)


def test_a_second_scheduler_is_refused(
    elasticdl: Run, served: SubmissionQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elasticdl.cli.verbs.scheduler.QUEUE_LOCK_TIMEOUT_S", 0.0)

    done = elasticdl("scheduler")

    assert (done.exit_code, "another scheduler serves" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("option_words", "message"),
    [
        (["--policy=nonsense"], "no policy 'nonsense'"),
        (["--nodes=4"], "expected NODESxDEVICES such as 4x8"),
        (["--nodes=4x8", "--budget=3"], "leave out one of them"),
        (["--budget=0"], "0 is not in the range"),
        (["--device=cpu"], "use --on kubernetes"),
        (["--on=kubernetes", "--budget=3"], "are for this machine"),
    ],
)
def test_wrong_scheduler_options_are_reported(elasticdl: Run, option_words: list[str], message: str) -> None:
    done = elasticdl("scheduler", *option_words)

    assert (done.exit_code, message in done.stderr) == (2, True)
