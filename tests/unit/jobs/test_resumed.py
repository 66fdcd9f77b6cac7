from __future__ import annotations

import json
from typing import Any

import pytest

from elasticdl.cli.screens import job_summary
from elasticdl.jobs import history
from elasticdl.jobs import home as jobs
from elasticdl.jobs.job_status import JobStatus
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec import load
from elasticdl.spec.directory import JobDirectory
from tests.unit.cli.conftest import Run

RESULT: dict[str, Any] = {
    "phase": "stopped", "exit_code": 130, "step": 1177, "total_steps": 4800, "records": 140954, "total_records": 574800,
    "epoch": 98, "loss": 0.0034, "metrics": {"accuracy": 0.95}, "metrics_step": 924, "checkpoint_step": 1177,
    "best": "accuracy 0.96 at step 636",
}  # fmt: skip
EVENTS = [
    {"at": 1.0, "kind": "worker-lost", "replica": "worker-1", "reason": "SIGKILL"},
    {"at": 2.0, "kind": "checkpoint", "step": 1000},
]


def resumed_job(result: dict[str, Any] | None = RESULT) -> JobDirectory:
    directory = jobs.job_directory("mnist")
    spec = load.resolve_job({"name": "mnist", "model": {"definition": "digits.forward"}, "plan": {"epochs": 400}})
    directory.create(spec)
    directory.events.write_text("".join(json.dumps(event) + "\n" for event in EVENTS))
    if result is not None:
        directory.result.write_text(json.dumps(result))
    directory.create_next_run(spec)
    return directory


def test_before_its_first_step_a_resumed_job_shows_its_earlier_progress() -> None:
    earlier = history.read_earlier_run(resumed_job())
    status = history.add_earlier_run(pb.JobStatus(name="mnist", phase="pending"), earlier)

    assert (status.step, status.total_steps, status.records, status.total_records) == (1177, 4800, 140954, 574800)
    assert (status.loss, dict(status.metrics), status.metrics_step) == (0.0034, {"accuracy": 0.95}, 924)
    assert [(event.kind, event.reason) for event in status.events] == [
        ("resumed", "from step 1,177 of 4,800, loss 0.0034, best accuracy 0.96 at step 636")
    ]


def test_a_job_resumed_for_more_epochs_shows_its_progress_of_the_new_total() -> None:
    earlier = history.read_earlier_run(resumed_job(RESULT | {"step": 1200, "checkpoint_step": 1200, "records": 143700}))
    status = history.add_earlier_run(pb.JobStatus(name="mnist", phase="pending", epochs=800), earlier)

    assert (status.total_steps, status.total_records, status.epoch) == (9600, 1149600, 100)


def test_measurements_of_the_new_run_win_over_earlier_ones() -> None:
    reported = pb.JobStatus(
        name="mnist", phase="running", step=1200, records=150000, loss=0.5, metrics={"accuracy": 0.97}
    )
    status = history.add_earlier_run(reported, history.read_earlier_run(resumed_job()))

    assert (status.step, status.records, status.loss, dict(status.metrics)) == (1200, 150000, 0.5, {"accuracy": 0.97})


def test_a_killed_run_reports_its_last_checkpoint() -> None:
    earlier = history.read_earlier_run(resumed_job({"phase": "stopped", "exit_code": 130}))

    assert earlier is not None and earlier.describe() == "from step 1,000"
    assert history.add_earlier_run(pb.JobStatus(phase="pending"), earlier).step == 1000


def test_a_run_that_ended_before_its_first_step_shows_the_earlier_progress() -> None:
    reported = pb.JobStatus(name="mnist", phase="stopped", reason="SIGINT at the command line")
    status = history.add_earlier_run(
        reported, history.read_earlier_run(resumed_job(RESULT | {"checkpoint": "/checkpoints/1177"}))
    )

    assert (status.phase, status.reason) == ("stopped", "SIGINT at the command line")
    assert (status.step, status.records, status.loss, status.loss_step) == (1177, 140954, 0.0034, 1177)
    assert status.checkpoint_path == "/checkpoints/1177"


def test_an_ended_or_never_resumed_job_is_unchanged() -> None:
    over = pb.JobStatus(phase="failed", step=1300)
    jobs.job_directory("new").create(load.resolve_job({"name": "new", "model": {"definition": "digits.forward"}}))

    assert history.add_earlier_run(over, history.read_earlier_run(resumed_job())) == pb.JobStatus(
        phase="failed", step=1300
    )
    assert history.read_earlier_run(jobs.job_directory("new")) is None


@pytest.mark.parametrize("words", [["status", "mnist", "--events"], ["status", "mnist"]])
def test_the_status_includes_earlier_runs(elasticdl: Run, words: list[str]) -> None:
    directory = resumed_job()
    directory.result.write_text(json.dumps(RESULT | {"step": 2000}))

    shown = elasticdl(*words).stdout

    assert ("worker-1 lost: SIGKILL" if "--events" in words else "from step 1,177 of 4,800") in shown


def test_the_summary_of_a_job_on_a_cluster_has_the_progress_of_the_checkpoint() -> None:
    event = pb.EventStatus(kind="resumed", reason="from step 79, 775 of 1,230 records", step=79)
    over = pb.JobStatus(name="mnist", kind="training", phase="succeeded", events=[event])

    assert ("resumed", event.reason) in job_summary.summary_rows(JobStatus.from_message(over, "here"), None)
