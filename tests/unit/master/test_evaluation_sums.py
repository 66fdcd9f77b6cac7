from __future__ import annotations

import math
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from elasticdl.master.strategies.evaluation import EvaluationState, ExactSum, OpenEvaluation
from elasticdl.master.strategies.shards import ShardQueue

FINITE = st.floats(-1e300, 1e300, allow_nan=False)


def exact(values: list[float]) -> ExactSum:
    total = ExactSum()
    for value in values:
        total.add(value)
    return total


@given(st.lists(FINITE, max_size=30), st.randoms())
def test_a_sum_is_exact_and_the_same_in_any_order(values: list[float], random: object) -> None:
    shuffled = list(values)
    random.shuffle(shuffled)  # type: ignore[attr-defined]

    assert exact(values).value == exact(shuffled).value == float(sum(map(Fraction, values)))


def test_the_memory_of_a_sum_does_not_grow() -> None:
    assert len(exact([0.1 * number for number in range(10_000)]).partials) < 40


def test_a_sum_with_a_nan_is_nan() -> None:
    assert math.isnan(exact([1.0, math.nan, 2.0]).value)


def test_each_metric_is_reduced_by_its_own_rule() -> None:
    evaluation = OpenEvaluation(1, ShardQueue("validation", 10, 10), None)
    for _ in range(2):
        evaluation.add_sums(
            (("accuracy", (3.0,), 4.0), ("recall|ratio", (1.0, 2.0), 4.0), ("odd|unheard", (1.0,), 1.0))
        )

    metrics = evaluation.metrics()

    assert (metrics["accuracy"], metrics["recall"]) == (0.75, 0.5)
    assert math.isnan(metrics["odd"])


def best_of(
    results: list[dict[str, float]], watched_metric: str = "", *, lower_is_better: bool = False
) -> tuple[str, float, int] | None:
    evaluations = EvaluationState()
    for step, metrics in enumerate(results, start=1):
        evaluation = OpenEvaluation(step, ShardQueue("validation", 4, 4), None)
        evaluation.add_sums(tuple((name, (value,), 1.0) for name, value in metrics.items()))
        evaluations.open[step] = evaluation
        evaluations.finish_evaluation(evaluation, watched_metric, lower_is_better=lower_is_better)
    return evaluations.best


RESULTS = [{"accuracy": 0.5, "auc": 0.9}, {"accuracy": 0.75, "auc": 0.125}, {"accuracy": 0.625, "auc": 0.5}]


def test_the_best_is_the_highest_accuracy_or_the_lowest_loss() -> None:
    assert best_of(RESULTS) == ("accuracy", 0.75, 2)
    assert best_of([{"loss": 0.5}, {"loss": 0.25}, {"loss": math.nan}]) == ("loss", 0.25, 2)
    assert best_of([{}]) is None


def test_the_best_result_follows_the_metric_that_the_model_watches() -> None:
    assert best_of(RESULTS, "auc") == ("auc", 0.9, 1)
    assert best_of(RESULTS, "auc", lower_is_better=True) == ("auc", 0.125, 2)
