"""A job is described from its files: status, jobs, logs, summary."""

from __future__ import annotations

import contextlib
import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from elasticdl.cli.screens import job_summary
from elasticdl.jobs import history
from elasticdl.jobs import home as jobs
from elasticdl.jobs.job_status import JobStatus
from elasticdl.jobs.local import GrowingFile, WatchedLocalJob
from elasticdl.spec import JobKind, Phase, load
from elasticdl.spec.directory import JobDirectory
from tests.unit.cli.conftest import Run

EVENTS: list[dict[str, Any]] = [
    {"at": 1002.0, "kind": "worker-joined", "replica": "worker-0", "reason": "", "round": 1, "step": 0, "cost_s": 0.0},
    {
        "at": 1008.0,
        "kind": "worker-lost",
        "replica": "worker-1",
        "reason": "SIGKILL",
        "round": 2,
        "step": 18,
        "cost_s": 0.18,
    },
]
RESULT: dict[str, Any] = {
    "phase": "succeeded",
    "reason": "",
    "exit_code": 0,
    "step": 85,
    "total_steps": 85,
    "records": 5391,
    "total_records": 5391,
    "metrics": {"accuracy": 0.97},
    "metrics_step": 85,
    "started_at": 1000.0,
    "ended_at": 1030.0,
}


def create_ended_job(name: str = "digits", result: dict[str, Any] | None = None) -> JobDirectory:
    directory = jobs.job_directory(name)
    directory.create(load.resolve_job({"name": name, "model": {"definition": "m.f"}, "plan": {"epochs": 3}}))
    directory.events.write_text("".join(json.dumps(event) + "\n" for event in EVENTS))
    if result is not None:
        directory.result.write_text(json.dumps(result))
    return directory


def test_the_status_of_an_ended_job_comes_from_its_files(elasticdl: Run) -> None:
    directory = create_ended_job(result=RESULT)

    status = json.loads(elasticdl("status", "digits", "--json").stdout)

    assert (status["phase"], status["exit_code"], status["records"]) == ("succeeded", 0, 5391)
    assert status["events"] == [EVENTS[0], EVENTS[1]]
    assert status["metrics"] == {"accuracy": 0.97}
    assert status["directory"] == str(directory.root)
    assert [worker["id"] for worker in status["workers"]] == ["worker-0", "worker-1"]


def test_workers_in_the_status_have_everything_a_script_needs(elasticdl: Run) -> None:
    worker = {"id": "worker-0", "pid": 7, "state": "left", "since": 3.0, "rank": 0, "logical_ranks": 2, "step": 85}
    create_ended_job(result=RESULT | {"workers": [worker]})

    workers = json.loads(elasticdl("status", "digits", "--json").stdout)["workers"]

    assert [worker.items() <= worker_status.items() for worker_status in workers] == [True]
    assert {"host", "reason", "step_s"} <= workers[0].keys()


def test_a_job_whose_processes_are_gone_is_reported_as_failed(elasticdl: Run) -> None:
    create_ended_job()

    status = json.loads(elasticdl("status", "digits", "--json").stdout)

    assert status["phase"] == "failed"
    assert "go on with --resume" in status["reason"]


def test_the_result_of_a_launcher_that_gave_up_is_enough(elasticdl: Run) -> None:
    create_ended_job(result={"phase": "failed", "reason": "the master refused the job", "exit_code": 2})

    result = elasticdl("status", "digits")

    assert result.exit_code == 0
    assert "the master refused the job" in result.stdout


def test_all_events_can_be_read_as_lines(elasticdl: Run) -> None:
    create_ended_job(result=RESULT)

    assert "worker-1 lost: SIGKILL (step 18, cost 180 ms)" in elasticdl("status", "digits", "--events").stdout


def test_jobs_lists_all_as_table_and_as_json(elasticdl: Run) -> None:
    create_ended_job("first", RESULT)
    create_ended_job("second")

    table, listed = elasticdl("jobs").stdout, json.loads(elasticdl("jobs", "--json").stdout)

    assert "first" in table and "second" in table and "5,391 of 5,391" in table
    assert {job["name"]: job["phase"] for job in listed} == {"first": "succeeded", "second": "failed"}


def test_without_jobs_the_output_says_how_to_start_one(elasticdl: Run) -> None:
    assert "elasticdl zoo init" in elasticdl("jobs").stdout
    assert json.loads(elasticdl("jobs", "--json").stdout) == []


@pytest.mark.parametrize(
    "verb", [["status"], ["logs"], ["stop"], ["scale", "--workers=2"], ["scale", "--ps=2"], ["timeline"]]
)
def test_an_unknown_job_is_refused_with_the_closest_name(elasticdl: Run, verb: list[str]) -> None:
    create_ended_job("digits", RESULT)

    result = elasticdl(*verb, "digist")

    assert result.exit_code == 2
    assert "no job 'digist'" in result.stderr
    assert "did you mean 'digits'?" in result.stderr


@pytest.mark.parametrize("name", ["../digits", "", ".", "a/b"])
def test_a_job_name_never_leaves_the_home_directory(elasticdl: Run, name: str) -> None:
    assert "no job" in elasticdl("status", name).stderr


@pytest.mark.parametrize("verb", [["stop"], ["scale", "--workers=2"]])
def test_a_job_that_is_over_can_neither_be_stopped_nor_scaled(elasticdl: Run, verb: list[str]) -> None:
    create_ended_job("over", RESULT)
    create_ended_job("gone")

    assert "job 'over' is over (succeeded)" in elasticdl(*verb, "over").stderr
    assert "job 'gone' does not run" in elasticdl(*verb, "gone").stderr
    assert elasticdl(*verb, "over").exit_code == 2


def test_a_torn_last_line_of_the_event_log_is_left_out() -> None:
    directory = create_ended_job()
    with directory.events.open("a") as file:
        file.write('{"at": 10')

    assert history.read_events(directory) == EVENTS


def test_logs_name_the_writer_of_each_line(elasticdl: Run) -> None:
    directory = create_ended_job(result=RESULT)
    directory.log_file("master").write_text("hello\n")
    directory.log_file("worker-0").write_text("one\ntwo")

    assert elasticdl("logs", "digits").stdout.splitlines() == [
        "   master | hello",
        " worker-0 | one",
        " worker-0 | two",
    ]
    assert elasticdl("logs", "digits", "--worker=0").stdout == "one\ntwo\n"
    assert elasticdl("logs", "digits", "--master").stdout == "hello\n"
    assert "has no worker-7; did you mean 'worker-0'?" in elasticdl("logs", "digits", "--worker=7").stderr


def test_logs_of_a_ps_are_found_by_its_id_or_its_number(elasticdl: Run) -> None:
    directory = create_ended_job(result=RESULT)
    directory.log_file("ps-0").write_text("serving\n")

    assert (
        elasticdl("logs", "digits", "--ps=ps-0").stdout == elasticdl("logs", "digits", "--ps=0").stdout == "serving\n"
    )
    assert "has no ps-7; did you mean 'ps-0'?" in elasticdl("logs", "digits", "--ps=7").stderr
    assert "exclude each other" in elasticdl("logs", "digits", "--ps=0", "--master").stderr


def test_scaling_without_a_number_is_refused(elasticdl: Run) -> None:
    create_ended_job("over", RESULT)

    assert "Give --workers N, --ps N, or both" in elasticdl("scale", "over").stderr


def test_a_tail_returns_each_line_once_and_complete(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    tail = GrowingFile(path)

    seen = [list(tail.read_new_lines())]
    for text in ("one\ntw", "o\n", ""):
        with path.open("a") as file:
            file.write(text)
        seen.append(list(tail.read_new_lines()))

    assert seen == [[], ["one"], ["two"], []]


@pytest.mark.parametrize(
    ("phase", "records", "expected"),
    [
        (Phase.SUCCEEDED, 5391, "5,391 trained = 1,797 records x 3 epochs, none lost, none twice"),
        (Phase.STOPPED, 5000, "5,000 trained of 1,797 records x 3 epochs, 391 to go"),
        (Phase.SUCCEEDED, 5000, "5,000 trained of 1,797 records x 3 epochs, the rest was not needed"),
        (Phase.SUCCEEDED, 5400, "5,400 trained, 9 too many for 1,797 records x 3 epochs"),
    ],
)
def test_the_summary_says_whether_records_were_lost_or_doubled(phase: Phase, records: int, expected: str) -> None:
    status = JobStatus("digits", JobKind.TRAINING, phase, records=records, total_records=5391, records_per_epoch=1797)

    assert job_summary.format_records(status) == expected


def test_the_summary_says_why_a_job_ended_before_its_last_epoch() -> None:
    early = JobStatus(
        "digits", JobKind.TRAINING, Phase.SUCCEEDED, reason="no better", records=5, total_records=9, epochs=1
    )

    assert ("why", "no better") in job_summary.summary_rows(early, None)
    assert "why" not in dict(job_summary.summary_rows(replace(early, records=9), None))


def test_the_summary_has_the_paths_and_the_next_commands(tmp_path: Path) -> None:
    directory = create_ended_job(
        result=RESULT | {"phase": "stopped", "reason": "SIGINT", "output": str(tmp_path), "checkpoint": "/c"}
    )

    lines = dict(job_summary.summary_rows(WatchedLocalJob(directory).final_status(), directory))

    assert lines["why"] == "SIGINT"
    assert lines["model"] == str(tmp_path)
    assert lines["took"] == "30 s"
    assert lines["metrics"] == "accuracy 0.9700 (step 85)"
    assert lines["go on"] == "elasticdl train --resume --job_name=digits"
    assert "timeline" not in lines


@pytest.mark.parametrize("moved", range(4))
def test_a_resumption_that_dies_half_way_can_be_resumed(monkeypatch: pytest.MonkeyPatch, moved: int) -> None:
    directory = create_ended_job(result=RESULT)
    spec, token, rename, count = directory.load_spec(), directory.load_token(), Path.rename, itertools.count()

    def die(path: Path, target: Path) -> Path:
        if next(count) == moved:
            raise KeyboardInterrupt
        return rename(path, target)

    with monkeypatch.context() as context, contextlib.suppress(KeyboardInterrupt):
        context.setattr(Path, "rename", die)
        directory.create_next_run(spec)

    assert directory.root.name in jobs.job_names()
    assert directory.load_spec() == spec
    directory.create_next_run(spec)
    assert not directory.result.exists() and not directory.events.exists()
    assert directory.load_token() != token
    assert sum((run.root / "result.json").exists() for run in directory.previous_runs()) == 1


def test_a_resumed_job_keeps_its_checkpoints_and_moves_its_other_files_aside() -> None:
    directory = create_ended_job(result=RESULT)
    checkpoint = directory.root / "checkpoints" / "step-5"
    checkpoint.mkdir(parents=True)
    token, spec = directory.load_token(), directory.load_spec()

    first = directory.create_next_run(spec)
    second = directory.create_next_run(spec)

    assert checkpoint.is_dir()
    assert not directory.result.exists() and not directory.events.exists()
    assert (first / "result.json").exists() and (first / "events.jsonl").exists()
    assert (first.name, second.name) == ("previous-1", "previous-2")
    assert directory.run_number == 3
    assert directory.load_token() != token
