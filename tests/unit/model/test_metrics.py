"""Metrics are parts that add up; reductions finish them without a framework."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score, precision_score, recall_score, roc_auc_score

from elasticdl.errors import ModelError
from elasticdl.model import metrics, reduction
from elasticdl.model.metrics import AUC, F1, Accuracy, BatchMean, MeanLoss, Metric, Perplexity, Precision, Recall

pairs = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1000)), min_size=2, max_size=40).filter(
    lambda found: {label for label, _ in found} == {0, 1}
)


def value(metric: Metric, labels: torch.Tensor, predictions: torch.Tensor, cut: int) -> float:
    """The metric over two batches, as two workers would measure it."""
    sums: dict[str, reduction.MetricPart] = {}
    for rows in (slice(None, cut), slice(cut, None)):
        if len(labels[rows]):
            parts = metrics.measure_parts("m", metric, labels[rows], predictions[rows])
            sums = reduction.add_parts(
                sums, {reduction.metric_key("m", metric.reduction): (parts, float(len(labels[rows])))}
            )
    return reduction.compute_results(sums)["m"]


@given(pairs, st.data())
def test_binary_metrics_agree_with_scikit_learn_however_records_are_split(
    found: list[tuple[int, int]], data: st.DataObject
) -> None:
    labels = torch.tensor([label for label, _ in found])
    scores = torch.tensor([score / 1000 for _, score in found], dtype=torch.float64)
    predicted = (scores > 0.5).long()
    cut = data.draw(st.integers(0, len(found)))

    assert value(AUC(bins=2001), labels, scores, cut) == pytest.approx(roc_auc_score(labels, scores))
    assert value(F1(), labels, scores, cut) == pytest.approx(f1_score(labels, predicted, zero_division=0))
    assert value(Recall(), labels, scores, cut) == pytest.approx(recall_score(labels, predicted))
    if predicted.any():
        assert value(Precision(), labels, scores, cut) == pytest.approx(precision_score(labels, predicted))
    assert value(Accuracy(), labels, scores, cut) == pytest.approx(float((predicted == labels).double().mean()))


def test_accuracy_takes_the_highest_of_several_scores() -> None:
    scores = torch.tensor([[1.0, 2.0], [3.0, 0.0], [0.0, 1.0]])

    assert value(Accuracy(), torch.tensor([1, 0, 0]), scores, 1) == pytest.approx(2 / 3)


def test_accuracy_of_sequences_counts_each_token() -> None:
    scores = torch.eye(3)[torch.tensor([[0, 1], [2, 2]])]

    assert value(Accuracy(), torch.tensor([[0, 1], [2, 0]]), scores, 1) == pytest.approx(0.75)


def test_accuracy_takes_a_column_of_scores() -> None:
    assert value(Accuracy(), torch.tensor([1.0, 0.0]), torch.tensor([[0.9], [0.8]]), 1) == pytest.approx(0.5)


def test_perplexity_of_ignorance_is_the_number_of_tokens() -> None:
    assert value(Perplexity(), torch.tensor([[0, 1], [2, 3]]), torch.zeros(2, 2, 4), 1) == pytest.approx(4.0)


def test_a_plain_function_is_averaged_by_records_not_by_batches() -> None:
    metric = BatchMean("mean", lambda labels, predictions: labels.mean())
    labels = torch.tensor([1.0, 1.0, 1.0, 5.0])

    assert value(metric, labels, labels, 3) == pytest.approx(2.0)
    assert value(MeanLoss(lambda labels, predictions: labels.mean()), labels, labels, 3) == pytest.approx(2.0)


def test_a_metric_of_many_numbers_is_refused() -> None:
    with pytest.raises(ModelError, match=r"metric m: expected one number.*shape \[2\]"):
        BatchMean("m", lambda labels, predictions: labels).update(torch.zeros(2), None)


def test_auc_refuses_logits() -> None:
    with pytest.raises(ModelError, match="from_logits=True"):
        AUC().update(torch.tensor([0, 1]), torch.tensor([-3.0, 4.0]))

    assert value(AUC(from_logits=True), torch.tensor([0, 1]), torch.tensor([-3.0, 4.0]), 1) == 1.0


def test_an_update_that_returns_no_numbers_is_refused() -> None:
    class Odd:
        reduction = "mean"

        def update(self, labels: object, predictions: object) -> list[float]:
            return "3"  # type: ignore[return-value]

    with pytest.raises(ModelError, match="list of numbers"):
        metrics.measure_parts("odd", Odd(), None, None)


def test_each_reduction_finishes_its_sum() -> None:
    sums: dict[str, reduction.MetricPart] = {
        "a": ([6.0], 4.0),
        "b|root_mean": ([36.0], 4.0),
        "c|total": ([7.0], 4.0),
        "d|ratio": ([1.0, 4.0], 9.0),
        "e|perplexity": ([math.log(3) * 5, 5.0], 1.0),
        "f|f1": ([1.0, 1.0, 3.0], 5.0),
        "g|auc": ([1.0, 1.0, 0.0, 2.0], 4.0),
    }

    assert reduction.compute_results(sums) == pytest.approx(
        {"a": 1.5, "b": 3.0, "c": 7.0, "d": 0.25, "e": 3.0, "f": 1 / 3, "g": 0.75}
    )


def test_a_metric_without_measurements_is_nan() -> None:
    results = reduction.compute_results({"a": ([0.0], 0.0), "g|auc": ([1.0, 1.0, 0.0, 0.0], 2.0)})

    assert all(math.isnan(number) for number in results.values())


def test_parts_of_different_lengths_cannot_be_added() -> None:
    with pytest.raises(ValueError):
        reduction.add_parts({"a": ([1.0], 1.0)}, {"a": ([1.0, 2.0], 1.0)})
