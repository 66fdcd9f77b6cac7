"""`elasticdl ctr search` up to its jobs: what is wrong is told before the data is read; how trials are shown."""

from __future__ import annotations

import io
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from elasticdl.cli.screens.search_table import SearchScreen, trials_table
from elasticdl.ctr import config as configs
from elasticdl.ctr.build import BuildResult
from elasticdl.ctr.search.loop import TrialProgress
from elasticdl.ctr.search.study import Trial, TrialStatus
from elasticdl.ctr.search.trial_jobs import TrialJobs, read_losses
from elasticdl.errors import SpecError
from elasticdl.jobs import find, home
from tests.unit.cli.conftest import Run as Elasticdl

LEAST = {"data": "nowhere.csv", "label": "clicked", "model": "deepfm"}
TRIALS = [
    Trial(
        0,
        TrialStatus.COMPLETE,
        {"learning_rate": 0.001, "embedding_dim": 8},
        (0.5, 0.45, 0.46),
        0.45,
        "",
        "ctr-trial-000",
    ),
    Trial(
        1,
        TrialStatus.PRUNED,
        {"learning_rate": 0.1, "embedding_dim": 8},
        (0.7,),
        None,
        "after evaluation 1",
        "ctr-trial-001",
    ),
    Trial(2, TrialStatus.RUNNING, {"learning_rate": 0.01, "embedding_dim": 16}, (), None, "", "ctr-trial-002"),
]


@pytest.mark.parametrize(
    ("more", "words", "complaint"),
    [
        (
            {"search": {"embeding_dim": [8]}},
            (),
            "search.embeding_dim: neither deepfm nor `training` has such a parameter",
        ),
        ({"search": {"dropout": "between(0, 1)"}}, (), "search.dropout: no range 'between'"),
        ({"split": [90, 0, 10]}, (), "a search needs validation rows"),
        ({"job": {"cluster": {"image": "x"}}}, (), "trials run on this machine"),
        ({"model": "depfm"}, (), "there is no CTR model 'depfm'"),
        ({}, ("--job_name", "…"), "cannot begin the name of a job"),
        ({}, ("--trials", "0"), "0 is not in the range"),
    ],
)
def test_what_is_wrong_is_told(elasticdl: Elasticdl, more: dict[str, Any], words: Any, complaint: str) -> None:
    Path("ctr.yaml").write_text(yaml.safe_dump({**LEAST, **more}))

    result = elasticdl("ctr", "search", "ctr.yaml", *words)

    assert result.exit_code == 2
    assert complaint in " ".join(result.output.split())


def test_without_optuna_the_fix_is_printed(elasticdl: Elasticdl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    Path("ctr.yaml").write_text(yaml.safe_dump(LEAST))

    result = elasticdl("ctr", "search", "ctr.yaml")

    assert result.exit_code == 2 and "[search]'" in result.output


def test_the_table_has_the_newest_trials_and_the_best_one() -> None:
    console = Console(file=io.StringIO(), width=120)
    console.print(trials_table(TRIALS, {2: TrialProgress((), "waiting")}, TRIALS[0], planned=20, max_rows=2))
    shown = console.file.getvalue()  # type: ignore[attr-defined]

    assert "2 of 20 trials" in shown
    assert "0.45000 best" in shown and "pruned after evaluation 1" in shown and "waiting" in shown
    assert "learning_rate 0.001, embedding_dim 8" in shown


def test_elsewhere_each_change_is_one_line() -> None:
    console = Console(file=io.StringIO(), width=200)
    screen = SearchScreen(console, None)
    for trials in (TRIALS, TRIALS, [*TRIALS[:2], replace(TRIALS[2], reports=(0.6,))]):
        screen.show(trials, {}, TRIALS[0], 3)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]

    assert len(lines) == 4
    assert (
        lines[-1]
        == "ctr-trial-002: running, evaluation 1: logloss 0.60000, best 0.60000; learning_rate 0.01, embedding_dim 16"
    )


def test_a_trial_is_an_ordinary_job_with_the_values_in_it(tmp_path: Path, elasticdl: Elasticdl) -> None:
    config = configs.parse_config(
        {**LEAST, "params": {"hidden_units": [4]}, "job": {"checkpoint": {"directory": "x"}}}, "ctr.yaml"
    )
    jobs = TrialJobs(config, BuildResult(tmp_path, None, 100_000), tmp_path / "ctr.yaml", 1)  # type: ignore[arg-type]
    spec = jobs.trial_job(TRIALS[2], is_resumed=False, is_queued=True).spec
    jobs.close()

    assert spec.name == "ctr-trial-002" and spec.model is not None and spec.model.zoo == str(tmp_path)
    assert spec.model.params == {"hidden_units": [4], "embedding_dim": 16} and spec.plan.learning_rate == 0.01
    assert (spec.output, spec.checkpoint.directory, spec.checkpoint.resume) == ("", "", False)
    assert spec.workers.threads == 1, "many share the cores"


def test_a_job_of_another_that_has_the_name_is_left_alone(tmp_path: Path, elasticdl: Elasticdl) -> None:
    jobs = TrialJobs(configs.parse_config(LEAST, "ctr.yaml"), BuildResult(tmp_path, None, 10), tmp_path / "ctr.yaml", 1)  # type: ignore[arg-type]
    home.job_directory("ctr-trial-002").root.mkdir(parents=True)
    for is_new in (True, False):
        with pytest.raises(SpecError, match=r"already exists in .* name the trials differently with --job_name"):
            jobs.start(TRIALS[2], is_new=is_new)
    jobs.close()
    assert os.listdir(home.job_directory("ctr-trial-002").root) == []


def test_what_was_reported_before_an_interruption_counts(elasticdl: Elasticdl) -> None:
    root = home.job_directory("ctr-trial-002").root
    root.mkdir(parents=True)
    (root / "spec.json").write_text("{}")
    for directory, steps in (("previous-1", (10, 20)), ("previous-2", (20, 30)), (".", (40,))):
        (root / directory).mkdir(exist_ok=True)
        lines = [
            f'{{"at": 1, "kind": "evaluation", "step": {step}, "metrics": {{"logloss": 0.{step}{len(steps)}}}}}\n'
            for step in steps
        ]
        (root / directory / "events.jsonl").write_text("".join(lines))

    assert read_losses(find("ctr-trial-002")) == (0.102, 0.202, 0.302, 0.401)
