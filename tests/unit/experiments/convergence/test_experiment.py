"""`elasticdl experiment convergence` without processes: its plan, changes of workers, and judgment."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from elasticdl.ctr import config
from elasticdl.errors import PermanentError, SpecError
from elasticdl.experiments.convergence import experiment, training_run
from elasticdl.experiments.convergence.experiment import FULL_SETTINGS, choose_settings, plan_runs
from elasticdl.experiments.convergence.judgment import (
    ConvergenceRun,
    fixed_band,
    judge_elastic_runs,
    permutation_p_value,
    summarize_best_aucs,
)
from elasticdl.experiments.convergence.training_run import RunPlan, WorkerChanges
from tests.unit.cli.conftest import Run as Elasticdl


def make_run(group: str, seed: int, values: Sequence[float], every: int = 10) -> ConvergenceRun:
    points = tuple((every * (index + 1), value) for index, value in enumerate(values))
    return ConvergenceRun(group, group.startswith("elastic"), seed, points, 60.0, points[-1][0], 8)


FIXED = [make_run("fixed 4", 0, [0.6, 0.7, 0.75]), make_run("fixed 8", 0, [0.58, 0.72, 0.74])]


def test_the_plan_has_nine_runs_ordered_by_seed() -> None:
    assert [(plan.group, plan.min_workers, plan.max_workers, plan.seed) for plan in plan_runs(FULL_SETTINGS)][:4] == [
        ("fixed 4", 4, 4, 0), ("fixed 8", 8, 8, 0), ("elastic 4-8", 4, 8, 0), ("fixed 4", 4, 4, 1),
    ]  # fmt: skip
    assert (
        len(plan_runs(FULL_SETTINGS)) == 9 and [plan.is_elastic for plan in plan_runs(FULL_SETTINGS)].count(True) == 3
    )
    assert (choose_settings("3,5", 1, quick=True).min_workers, choose_settings("3,5", 1, quick=True).seeds) == (3, 1)


@pytest.mark.parametrize("workers", ["4", "8,4", "4,4", "0,2", "a,b", "4,8,16"])
def test_workers_are_refused_if_they_are_not_two_increasing_numbers(workers: str) -> None:
    with pytest.raises(SpecError, match="expected the fewest and the most"):
        choose_settings(workers, None, quick=False)


def test_a_curve_between_the_fixed_runs_is_inside_the_spread() -> None:
    judgment = judge_elastic_runs([*FIXED, make_run("elastic 4-8", 0, [0.59, 0.71, 0.745])])

    assert judgment["every elastic curve inside the spread"] and judgment["mean elastic curve inside the spread"]
    assert (judgment["points inside"], judgment["points"], judgment["farthest outside"]) == (3, 3, 0.0)
    assert judgment["elastic best AUCs inside"] == "1 of 1"
    assert judgment["share expected if nothing differs"] == pytest.approx(1 / 3)


def test_a_curve_beyond_the_fixed_runs_is_outside_the_spread() -> None:
    judgment = judge_elastic_runs(
        [*FIXED, make_run("elastic 4-8", 0, [0.59, 0.71, 0.70]), make_run("elastic 4-8", 1, [0.59, 0.71, 0.785])]
    )

    assert not judgment["every elastic curve inside the spread"]
    assert judgment["mean elastic curve inside the spread"], "one below, one above"
    assert (judgment["points inside"], judgment["elastic best AUCs inside"]) == (4, "0 of 2")
    assert (judgment["points above"], judgment["points below"]) == (1, 1)
    assert (judgment["farthest outside"], judgment["farthest below"]) == (pytest.approx(0.04), pytest.approx(0.04))


def test_a_permutation_test_compares_fixed_and_elastic_runs() -> None:
    assert permutation_p_value([3.0, 1.0], [2.0, 2.5, 1.5, 2.0]) == 1.0, "their mean is that of the others"
    assert permutation_p_value([9.0], [1.0, 2.0, 3.0]) == 0.25, "one way of four"
    assert permutation_p_value([8.0, 9.0], [1.0, 2.0]) == pytest.approx(2 / 6), (
        "the same two, and the same two as the rest"
    )


def test_fixed_runs_are_judged_like_elastic_runs() -> None:
    fixed = [*FIXED, make_run("fixed 4", 1, [0.59, 0.71, 0.76])]

    judgment = judge_elastic_runs([*fixed, make_run("elastic 4-8", 0, [0.59, 0.71, 0.745])])

    # Of the nine points of fixed runs, the first two of the third run and 0.75 of the first run are inside.
    assert judgment["share of a fixed run inside the others"] == pytest.approx(3 / 9)
    assert judgment["share of an elastic run inside as many"] == pytest.approx((3 + 3 + 2) / 9)


def test_distances_are_measured_in_standard_deviations_of_the_fixed_runs() -> None:
    fixed = [make_run("fixed 4", seed, [0.6 + seed / 100, 0.7 - seed / 100]) for seed in range(3)]  # 0.01 at both steps

    judgment = judge_elastic_runs(
        [*fixed, make_run("elastic 4-8", 0, [0.629, 0.69]), make_run("elastic 4-8", 1, [0.61, 0.665])]
    )

    assert not judgment["every elastic curve within two standard deviations"]
    assert judgment["points within two standard deviations"] == 3
    assert judgment["farthest, in standard deviations"] == pytest.approx(2.5)
    assert "points within two standard deviations" not in judge_elastic_runs(
        [*FIXED, make_run("elastic 4-8", 0, [0.6, 0.7, 0.7])]
    )


def test_curves_with_different_steps_are_compared_at_common_steps() -> None:
    around = fixed_band([FIXED[0], make_run("fixed 8", 1, [0.5, 0.9], every=12)])

    assert (around.steps[0], around.steps[-1]) == (12, 24)
    assert around.maximum[0] == pytest.approx(0.62) and around.minimum[0] == 0.5


def test_the_spread_of_each_group_is_summarized() -> None:
    spreads = summarize_best_aucs([make_run("fixed 4", 0, [0.6, 0.7]), make_run("fixed 4", 1, [0.8, 0.7])])

    assert spreads == {"fixed 4": pytest.approx({"mean": 0.75, "least": 0.7, "most": 0.8, "spread": 0.1})}


def test_workers_change_after_updates_once_the_desired_number_is_reached_and_one_is_killed() -> None:
    changes = WorkerChanges(4, 8, updates_between=10)
    decisions = [
        changes.decide(step, members) for step, members in [(0, 0), (3, 4), (10, 4), (11, 4), (30, 6), (40, 8)]
    ]
    assert decisions == [None, None, 8, None, None, "kill"]
    assert [changes.decide(step, members) for step, members in [(41, 7), (60, 7), (61, 8), (70, 8)]] == [
        None, None, None, 4,
    ]  # fmt: skip
    assert [change for _, change in changes.applied] == [
        "scaled to 8 workers",
        "kill -9 of a worker",
        "scaled to 4 workers",
    ]


def test_a_run_is_summarized_from_its_event_log() -> None:
    events: list[dict[str, Any]] = [
        {"at": 1.0, "kind": "worker-launched", "replica": "worker-0"},
        {"at": 1.0, "kind": "worker-launched", "replica": "worker-1"},
        {"at": 2.0, "kind": "worker-joined", "replica": "worker-0"},
        {"at": 3.0, "kind": "worker-joined", "replica": "worker-1"},
        {"at": 4.0, "kind": "evaluation", "metrics": {"auc": 0.7, "logloss": 0.5}, "step": 10},
        {"at": 5.0, "kind": "worker-lost", "replica": "worker-1", "reason": "killed by signal 9"},
        {"at": 6.0, "kind": "evaluation", "metrics": {"auc": 0.69, "logloss": 0.51}, "step": 20},
    ]
    run = training_run.summarize_run(
        RunPlan("elastic 1-2", 1, 2, 5), events, {"step": 21}, 9.0, [(12, "kill -9 of a worker")]
    )

    assert (run.best_auc, run.last_auc, run.updates, run.seed) == (0.7, 0.69, 21, 5)
    assert (run.max_workers, run.joined, run.lost) == (2, 2, 1)
    with pytest.raises(PermanentError, match="never evaluated"):
        training_run.summarize_run(RunPlan("fixed 1", 1, 1, 0), events[:4], {}, 9.0, [])


def test_synthetic_clicks_have_the_format_of_the_criteo_challenge(tmp_path: Path) -> None:
    experiment.write_synthetic_clicks(tmp_path / "clicks.tsv", 20)

    rows = [line.split("\t") for line in (tmp_path / "clicks.tsv").read_text().splitlines()]
    assert len(rows) == 20 and {len(row) for row in rows} == {40} and {row[0] for row in rows} == {"0", "1"}
    parsed = config.parse_config(
        experiment.config_document(str(tmp_path / "clicks.tsv"), FULL_SETTINGS), "convergence.yaml"
    )
    assert len(parsed.columns) == 40 and parsed.job["ps"] == {"mode": "async"}
    assert parsed.training.patience == 0, "no run ends early or slows down by what it measured itself"


def test_an_experiment_prints_a_table_and_writes_a_figure_and_its_data(
    elasticdl: Elasticdl, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make_runs(plans: Sequence[RunPlan], *_: Any) -> Iterator[ConvergenceRun]:
        for plan in plans:
            yield make_run(plan.group, plan.seed, [0.6, 0.7 + plan.seed / 100])

    monkeypatch.setattr(experiment, "_run_plans", make_runs)

    result = elasticdl("experiment", "convergence", "--quick", "--output", "out")

    assert result.exit_code == 0, result.output
    assert "elastic 2-4" in result.output and "every elastic curve inside the spread: yes" in result.output
    assert Path("out/convergence.png").read_bytes().startswith(b"\x89PNG")
    document = json.loads(Path("out/convergence.json").read_text())
    assert len(document["runs"]) == 6 and document["best AUC"]["fixed 2"]["most"] == 0.71


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("convergence",), "which click log? Give --data FILE"),
        (("convergence", "--data", "nowhere.txt"), "no file nowhere.txt; --data made-up does without one"),
        (("convergence", "--quick", "--real"), "real processes anyway"),
        (("mixed", "--quick"), "are for `elasticdl experiment convergence`"),
    ],
)
def test_missing_or_wrong_options_are_reported(elasticdl: Elasticdl, words: Any, complaint: str) -> None:
    result = elasticdl("experiment", *words)

    assert result.exit_code == 2
    assert complaint in " ".join(result.output.split())
