from __future__ import annotations

import math
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from elasticdl.master.evaluation import Evaluation, ExactSum, better
from elasticdl.master.shards import ShardQueue

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
    evaluation = Evaluation(1, ShardQueue("validation", 10, 10), None)
    for _ in range(2):
        evaluation.count((("accuracy", (3.0,), 4.0), ("recall|ratio", (1.0, 2.0), 4.0), ("odd|unheard", (1.0,), 1.0)))

    metrics = evaluation.metrics()

    assert (metrics["accuracy"], metrics["recall"]) == (0.75, 0.5)
    assert math.isnan(metrics["odd"])


def test_the_best_is_the_highest_accuracy_or_the_lowest_loss() -> None:
    best = better(None, {"accuracy": 0.5, "auc": 0.9}, 1)
    best = better(best, {"accuracy": 0.7, "auc": 0.1}, 2)
    best = better(best, {"accuracy": 0.6, "auc": 0.9}, 3)
    lowest = better(better(None, {"loss": 0.5}, 1), {"loss": 0.3}, 2)

    assert best == ("accuracy", 0.7, 2)
    assert lowest == ("loss", 0.3, 2)
