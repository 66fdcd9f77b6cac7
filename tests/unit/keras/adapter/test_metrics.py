"""Metrics of Keras files add up over batches and workers to what Keras says of all records at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from elasticdl.errors import ModelError
from elasticdl.keras.adapter.metrics import FunctionMean, KerasMetric, OutputMetric, flatten_metrics
from elasticdl.keras.runtime import keras, tf
from elasticdl.model import reduction
from elasticdl.model.metrics import Metric

NUMBERS = np.random.default_rng(2)
SCORES = NUMBERS.uniform(size=(50, 1)).astype(np.float32)
TRUTH = (NUMBERS.uniform(size=(50, 1)) < 0.2 + 0.6 * SCORES).astype(np.float32)


def over_batches(metric: Metric, labels: Any, predictions: Any) -> float:
    sums: dict[str, reduction.MetricPart] = {}
    for start, stop in ((0, 7), (7, 30), (30, 50)):
        part = metric.update(tf.constant(labels[start:stop]), tf.constant(predictions[start:stop]))
        sums = reduction.add_parts(sums, {reduction.metric_key("m", metric.reduction): (part, float(stop - start))})
    return reduction.compute_results(sums)["m"]


@pytest.mark.parametrize(
    "metric",
    [
        keras.metrics.BinaryAccuracy(),
        keras.metrics.MeanSquaredError(),
        keras.metrics.RootMeanSquaredError(),
        keras.metrics.Precision(),
        keras.metrics.Recall(),
        keras.metrics.AUC(num_thresholds=1000),
    ],
    ids=lambda metric: metric.name,
)
def test_a_metric_of_keras_says_the_same_in_parts(metric: Any) -> None:
    metric.update_state(TRUTH, SCORES)
    expected = float(metric.result())

    assert over_batches(KerasMetric(metric), TRUTH, SCORES) == pytest.approx(expected, abs=0.005)


def test_a_function_may_give_one_number_for_each_record_or_one_for_all() -> None:
    def each(labels: Any, predictions: Any) -> Any:
        return tf.equal(labels, tf.round(predictions))

    def mean(labels: Any, predictions: Any) -> Any:
        return tf.reduce_mean(tf.cast(each(labels, predictions), tf.float32))

    expected = float(np.mean(np.round(SCORES) == TRUTH))

    assert over_batches(FunctionMean("each", each), TRUTH, SCORES) == pytest.approx(expected)
    assert over_batches(FunctionMean("mean", mean), TRUTH, SCORES) == pytest.approx(expected)


def test_a_function_that_gives_no_numbers_is_named() -> None:
    with pytest.raises(ModelError, match="metric odd: expected numbers"):
        FunctionMean("odd", lambda labels, predictions: "much").update(tf.zeros(1), tf.zeros(1))


def test_metrics_of_several_outputs_are_named_by_output_and_name() -> None:
    metrics = flatten_metrics({"click": {"auc": "a"}, "loss": "b"})
    metric = OutputMetric("click", FunctionMean("sum", lambda labels, predictions: labels + predictions))

    assert metrics == {"click_auc": ("click", "a"), "loss": "b"}
    assert metric.update({"click": tf.constant([1.0, 2.0])}, {"click": tf.constant([1.0, 1.0])}) == [5.0]
    with pytest.raises(ModelError, match="no output 'click'"):
        metric.update(tf.zeros(1), tf.zeros(1))
