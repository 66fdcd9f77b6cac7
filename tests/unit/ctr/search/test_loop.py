"""A search step by step, with jobs that are only told of: what is reported, given up, gone on with."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

from elasticdl.ctr import config
from elasticdl.ctr.search import best_config
from elasticdl.ctr.search.loop import Search, TrialProgress
from elasticdl.ctr.search.space import ChoiceDimension, RangeDimension, Space
from elasticdl.ctr.search.study import SearchOptions, Study, Trial, TrialStatus
from elasticdl.errors import PermanentError, SpecError
from elasticdl.jobs import history

pytest.importorskip("optuna")
pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning", "default::FutureWarning")

SPACE: Space = {
    "learning_rate": RangeDimension(1e-4, 1e-2, is_log=True),
    "hidden_units": ChoiceDimension(([8], [16, 8])),
}
MANNER = SearchOptions("median", startup_trials=1, seed=0, max_reports=6)


class Told:
    """Jobs by what they are told to have reported; `courses` by number, an evaluation each time it is looked at."""

    def __init__(self, courses: dict[int, list[float]], ends: dict[int, TrialProgress] | None = None) -> None:
        self.courses, self.ends = courses, ends or {}
        self.looks: dict[int, int] = {}
        self.running: set[str] = set()
        self.started: list[tuple[str, bool]] = []
        self.stopped: list[str] = []
        self.cleared: list[str] = []

    def start(self, trial: Trial, *, is_new: bool) -> None:
        self.started.append((trial.job, is_new))
        self.running.add(trial.job)

    def poll(self, trial: Trial) -> TrialProgress:
        if trial.number in self.ends:
            return self.ends[trial.number]
        count = self.looks[trial.number] = self.looks.get(trial.number, 0) + 1
        course = self.courses[trial.number]
        return TrialProgress(tuple(course[:count]), "succeeded" if count > len(course) else "running")

    def stop(self, trial: Trial) -> None:
        self.stopped.append(trial.job)
        self.running.discard(trial.job)

    def clean_up(self, trial: Trial) -> None:
        self.cleared.append(trial.job)


def opened(path: Path, of: dict[str, str] | None = None, space: Space = SPACE) -> Study:
    return Study.open(path / "study.db", space, MANNER, of or {"model": "lr"})


def run(search: Search, turns: int = 50) -> None:
    for _ in range(turns):
        if not search.step():
            return
    raise AssertionError("it does not end")


def test_the_best_is_the_least_logloss_of_a_trial_that_ran_to_its_end(tmp_path: Path) -> None:
    study, jobs = opened(tmp_path), Told({0: [0.6, 0.4, 0.5], 1: [0.59, 0.39, 0.38]})

    run(Search(study, jobs, trials=2, parallel=1, name="ctr"))

    assert [trial.state for trial in study.trials] == [TrialStatus.COMPLETE, TrialStatus.COMPLETE]
    assert study.best is not None and (study.best.number, study.best.value, study.best.best_evaluation) == (1, 0.38, 2)
    assert (study.trials[0].value, study.trials[0].best_evaluation) == (0.4, 1)
    assert jobs.started == [("ctr-trial-000", True), ("ctr-trial-001", True)]
    assert jobs.cleared == ["ctr-trial-000", "ctr-trial-001"]
    assert set(study.best.values) == set(SPACE) and study.best.values["hidden_units"] in ([8], [16, 8])


def test_a_hopeless_trial_is_stopped_at_once_and_its_place_taken(tmp_path: Path) -> None:
    study, jobs = opened(tmp_path), Told({0: [0.6, 0.4, 0.3], 1: [0.9, 0.9, 0.9], 2: [0.6, 0.4, 0.2]})
    search = Search(study, jobs, trials=3, parallel=1, name="ctr")

    run(search)

    assert jobs.stopped == ["ctr-trial-001"]
    assert [trial.state for trial in study.trials] == [TrialStatus.COMPLETE, TrialStatus.PRUNED, TrialStatus.COMPLETE]
    assert study.trials[1].reports == (0.9, 0.9), "nothing after that"


def test_no_more_trials_run_at_a_time_than_allowed(tmp_path: Path) -> None:
    study, jobs = opened(tmp_path), Told({number: [0.5, 0.4] for number in range(5)})
    search = Search(study, jobs, trials=5, parallel=2, name="ctr")

    search.step()
    assert len(jobs.started) == 2
    run(search)
    assert len(jobs.started) == 5


def test_an_interrupted_trial_is_resumed_with_its_earlier_reports(tmp_path: Path) -> None:
    jobs = Told({0: [0.6, 0.5, 0.4], 1: [0.6, 0.5, 0.3]})
    search = Search(opened(tmp_path), jobs, trials=2, parallel=1, name="ctr")
    search.step()
    search.step()
    search.stop()
    assert jobs.stopped == ["ctr-trial-000"]

    study = opened(tmp_path)
    assert [trial.reports for trial in study.running] == [(0.6,)]
    run(Search(study, jobs, trials=2, parallel=1, name="another"))

    assert jobs.started == [("ctr-trial-000", True), ("ctr-trial-000", False), ("another-trial-001", True)]
    assert [trial.value for trial in study.trials] == [0.4, 0.3]
    assert study.trials[0].reports == (0.6, 0.5, 0.4)


def test_more_trials_later_are_added_to_those_there(tmp_path: Path) -> None:
    jobs = Told({number: [0.5, 0.4] for number in range(3)})
    run(Search(opened(tmp_path), jobs, trials=2, parallel=1, name="ctr"))
    study = opened(tmp_path)
    run(Search(study, jobs, trials=3, parallel=1, name="ctr"))

    assert len(study.trials) == len(jobs.started) == 3
    learnt = [trial.values["learning_rate"] for trial in study.trials]
    assert len(set(learnt)) == 3, "the third is none of those before"


def test_a_job_that_failed_is_a_trial_that_failed_with_its_reason(tmp_path: Path) -> None:
    study = opened(tmp_path)
    jobs = Told({1: [0.5]}, {0: TrialProgress((0.7,), "failed", "the loss is NaN")})

    run(Search(study, jobs, trials=2, parallel=1, name="ctr"))

    assert [(trial.state, trial.reason) for trial in study.trials] == [
        (TrialStatus.FAILED, "the loss is NaN"),
        (TrialStatus.COMPLETE, ""),
    ]


def test_a_search_whose_trials_all_fail_ends_with_the_reason(tmp_path: Path) -> None:
    jobs = Told({}, {number: TrialProgress((), "failed", "no memory") for number in range(9)})

    with pytest.raises(PermanentError, match="the first 3 trials failed; the last one: no memory"):
        run(Search(opened(tmp_path), jobs, trials=9, parallel=1, name="ctr"))


def test_a_study_of_another_config_is_not_continued(tmp_path: Path) -> None:
    opened(tmp_path)
    with pytest.raises(SpecError, match=r"another config: model changed since.*remove .* to start over"):
        opened(tmp_path, {"model": "fm"})
    with pytest.raises(SpecError, match="search changed since"):
        opened(tmp_path, space={**SPACE, "hidden_units": ChoiceDimension(([8], [4]))})
    opened(tmp_path, space={**SPACE, "learning_rate": RangeDimension(1e-3, 1e-2, is_log=True)})


def test_evaluations_are_read_from_the_log_each_step_once() -> None:
    def event(step: int, kind: str = "evaluation", **metrics: float) -> dict[str, object]:
        return {"at": 1.0 * step, "kind": kind, "reason": "", "step": step, "metrics": metrics}

    evaluations = history.read_evaluations(
        [
            event(20, auc=0.7, logloss=0.5),
            event(10, auc=0.6, logloss=0.6),
            event(20, auc=0.75, logloss=0.45),
            event(30),
            {"at": 40.0, "kind": "evaluation", "reason": "given up", "step": 40},
            event(50, logloss=float("nan"), auc=0.5),
            event(60, "checkpoint", auc=0.9, logloss=0.1),
        ]
    )

    assert [(evaluation.step, dict(evaluation.metrics)) for evaluation in evaluations] == [
        (10, {"auc": 0.6, "logloss": 0.6}),
        (20, {"auc": 0.75, "logloss": 0.45}),
        (50, {"auc": 0.5}),
    ]


def test_the_best_config_has_the_values_filled_in_and_what_was_changed_by_hand(tmp_path: Path) -> None:
    document = {
        "data": "c.csv", "label": "y", "model": {"deepfm": {"embedding_dim": 4}}, "search": {"embedding_dim": [4, 8]},
        "training": {"epochs": 10, "batch_size": 100}, "workers": {"min": 1, "max": 4},
    }  # fmt: skip
    of = config.parse_config(document, "ctr.yaml").model_copy(update={"data": "/d/c.csv"})
    trial = Trial(3, TrialStatus.COMPLETE, {"embedding_dim": 8, "learning_rate": 0.01}, (0.5, 0.4, 0.3, 0.35), 0.3)

    best = best_config.make_best_config(document, of, trial)

    assert best == {
        "data": "/d/c.csv", "label": "y", "model": {"deepfm": {"embedding_dim": 8}}, "workers": {"min": 1, "max": 4},
        "training": {"epochs": 10, "batch_size": 100, "learning_rate": 0.01},
    }  # fmt: skip
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "features.yaml").write_text("mine\n")
    best_config.write_best_config(tmp_path / "best.yaml", best, trial, 7, tmp_path / "made")
    again = config.parse_config(yaml.safe_load((tmp_path / "best.yaml").read_text()), "best.yaml")
    assert again == of.model_copy(
        update={
            "params": {"embedding_dim": 8},
            "search": {},
            "training": of.training.model_copy(update={"learning_rate": 0.01}),
        }
    )
    assert (tmp_path / "best-ctr" / "features.yaml").read_text() == "mine\n"


def test_without_optuna_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)

    with pytest.raises(SpecError, match=r"pip install .*\[search\]'"):
        opened(tmp_path)
