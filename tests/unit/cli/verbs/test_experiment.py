"""`elasticdl experiment`: a table, a figure and its data beside the original's claim."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from elasticdl.experiments import real_jobs
from elasticdl.experiments.results import ExperimentResult, JobRun
from tests.unit.cli.conftest import Run as Elasticdl


@pytest.mark.parametrize(("name", "claim"), [("two-jobs", "both at 1300 s"), ("mixed", "the service never waits")])
def test_an_experiment_prints_a_table_and_writes_a_figure_and_its_data(
    elasticdl: Elasticdl, tmp_path: Path, name: str, claim: str
) -> None:
    result = elasticdl("experiment", name, "--output", tmp_path / "out")

    assert result.exit_code == 0, result.output
    assert all(policy in result.output for policy in ("fifo-gang", "elastic-first-come", "max-min"))
    assert claim in result.output
    assert (tmp_path / "out" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    document = json.loads((tmp_path / "out" / f"{name}.json").read_text())
    assert [course_document["policy"] for course_document in document["courses"]] == [
        "fifo-gang",
        "elastic-first-come",
        "max-min",
    ]


def test_an_experiment_with_real_jobs_prints_the_same_table(
    elasticdl: Elasticdl, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = JobRun(0.0, 1.0, 3.5, 11.0, ((1.0, 11.0, 4),))
    course = ExperimentResult("max-min", 8, 11.0, {"first": run, "second": run})
    monkeypatch.setattr(real_jobs, "run_experiment", lambda name, say: [course])

    result = elasticdl("experiment", "two-jobs", "--real")

    assert result.exit_code == 0, result.output
    assert Path("two-jobs-real.png").exists()
    assert course.utilization == pytest.approx(80 / 88)
    assert "1.0 s" in result.output, "until it had its slots"
    assert "3.5 s" in result.output, "until its workers ran"


def test_an_unknown_experiment_is_refused(elasticdl: Elasticdl) -> None:
    assert elasticdl("experiment", "three-jobs").exit_code == 2
