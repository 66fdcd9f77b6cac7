"""Which model a report is on, and what is said where there can be none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from elasticdl.cli.screens.progress_bars import TerminalReporter
from elasticdl.ctr.report import generation, subjects
from elasticdl.errors import ElasticDLError, SpecError
from elasticdl.jobs import home
from elasticdl.spec import DataSpec, JobKind, JobSpec, ModelSpec
from elasticdl.spec.directory import JobDirectory
from tests.unit.cli.conftest import Run

CONFIG = "data: clicks.csv\nlabel: clicked\nmodel: lr\n"


def make_job(name: str, **result: Any) -> JobDirectory:
    """A job of ./ctr.yaml, over with this result."""
    file = Path("ctr.yaml").absolute()
    if not file.exists():
        file.write_text(CONFIG)
    spec = JobSpec(
        name=name, kind=JobKind.TRAINING, data=DataSpec(training="clicks.csv#rows=0%:80%"),
        model=ModelSpec(zoo=str(file.parent / "ctr-ctr"), definition="lr.forward"),
        output=str(file.parent / "ctr-ctr" / "model"),
    )  # fmt: skip
    directory = home.job_directory(name)
    directory.create(spec)
    if result:
        directory.result.write_text(json.dumps(result))
    return directory


def add_checkpoint(directory: JobDirectory) -> Path:
    path = directory.root / "checkpoints" / "checkpoint-000000010"
    path.mkdir(parents=True)
    return path.parent


def test_a_job_without_an_export_is_judged_by_its_checkpoints() -> None:
    directory = make_job("stopped", phase="stopped")
    checkpoints = add_checkpoint(directory)

    subject = subjects.find_subject("stopped")

    assert (subject.model, subject.file.name, subject.job) == (checkpoints, "ctr.yaml", directory)
    assert subjects.find_subject("ctr.yaml").model == checkpoints


def test_a_job_that_has_no_model_says_so() -> None:
    make_job("new")

    with pytest.raises(SpecError, match="job new has no model yet"):
        subjects.find_subject("new")


def test_a_config_that_was_never_trained_says_how(elasticdl: Run) -> None:
    Path("ctr.yaml").write_text(CONFIG)

    done = elasticdl("ctr", "report", "ctr.yaml")

    assert done.exit_code == 2 and "train it first: elasticdl train ctr.yaml" in done.output


def test_a_job_whose_config_is_gone_says_which(elasticdl: Run) -> None:
    make_job("orphan")
    Path("ctr.yaml").unlink()

    done = elasticdl("ctr", "report", "orphan")

    assert done.exit_code == 2 and "ctr.yaml does not exist any more" in done.output


def test_a_job_of_another_kind_of_file_is_refused() -> None:
    spec = JobSpec(
        name="mnist",
        kind=JobKind.TRAINING,
        data=DataSpec(training="x.csv"),
        model=ModelSpec(zoo="/zoo", definition="m.forward"),
    )
    home.job_directory("mnist").create(spec)

    with pytest.raises(SpecError, match=r"expected a job that trains the model of a ctr\.yaml"):
        subjects.find_subject("mnist")


def test_a_wrong_name_is_refused_with_the_closest_match(elasticdl: Run) -> None:
    make_job("clicks")

    done = elasticdl("ctr", "report", "clocks")

    assert done.exit_code == 2 and "'clicks'" in done.output


@pytest.mark.parametrize(
    "problem", [ElasticDLError("the model is too odd"), OSError("the disk is full"), KeyError("x")]
)
def test_a_report_that_fails_costs_one_line_and_not_the_job(
    problem: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    add_checkpoint(make_job("clicks", phase="succeeded"))

    def fail(*arguments: object) -> Path:
        raise problem

    monkeypatch.setattr(generation, "generate_report", fail)
    generation.report_finished_job("clicks", Path("ctr.yaml"), "elasticdl train", TerminalReporter())

    assert capsys.readouterr().out == f"no report: {problem}; try again with `elasticdl ctr report clicks`\n"


@pytest.mark.parametrize(
    ("config", "result"),
    [
        (CONFIG + "report: false\n", {"phase": "succeeded"}),
        (CONFIG, {"phase": "failed", "checkpoint": "somewhere"}),
        (CONFIG, {"phase": "stopped"}),
    ],
)
def test_no_report_is_generated_if_it_is_disabled_or_there_is_no_model(
    config: str, result: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("ctr.yaml").write_text(config)
    add_checkpoint(make_job("clicks", **result))
    pages: list[object] = []
    monkeypatch.setattr(generation, "generate_report", lambda *arguments: pages.append(arguments))

    generation.report_finished_job("clicks", Path("ctr.yaml"), "elasticdl train", TerminalReporter())

    assert pages == [] and capsys.readouterr().out == ""


def test_a_job_that_is_resumed_by_its_name_is_reported_on_if_it_came_from_a_config(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    add_checkpoint(make_job("clicks", phase="succeeded"))
    monkeypatch.setattr(generation, "generate_report", lambda *arguments: Path("made"))

    generation.report_finished_job(
        "clicks", None, "elasticdl train", TerminalReporter()
    )  # nothing was built for it yet
    before = capsys.readouterr().out
    Path("ctr-ctr").mkdir()
    Path("ctr-ctr", "preprocessor.json").touch()
    generation.report_finished_job("clicks", None, "elasticdl train", TerminalReporter())

    assert before == "" and capsys.readouterr().out == "report       made\n"
