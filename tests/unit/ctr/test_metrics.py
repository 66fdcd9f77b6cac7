"""How good scores are: held to what scikit-learn finds, and to what must be true of any scores."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn import metrics

from elasticdl.ctr.report import metrics as q


def scored_rows(rows: int, seed: int = 0, ties: int = 0) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Scores that tell something of labels; with `ties`, of so many distinct values."""
    random = np.random.default_rng(seed)
    scores = random.normal(-1.0, 1.5, rows)
    if ties:
        scores = np.round(scores * ties / 4) / ties * 4
    labels = random.random(rows) < q.probabilities(scores)
    labels[:2] = (0, 1)
    return scores.astype(np.float32), labels.astype(np.float32)


@given(st.integers(2, 300), st.integers(0, 50), st.integers(0, 6))
def test_logloss_and_auc_are_those_of_scikit_learn(rows: int, seed: int, ties: int) -> None:
    scores, labels = scored_rows(rows, seed, ties)

    click_metrics = q.compute_metrics(scores, labels)

    assert click_metrics.auc == pytest.approx(metrics.roc_auc_score(labels, scores), abs=1e-12)
    assert click_metrics.logloss == pytest.approx(metrics.log_loss(labels, q.probabilities(scores)), abs=1e-9)
    assert click_metrics.clicks == labels.sum() and click_metrics.rows == rows


def test_a_score_that_is_the_base_rate_gains_nothing_and_is_calibrated() -> None:
    labels = np.array([1, 0, 0, 0] * 25, np.float32)
    scores = np.full(100, np.log(0.25 / 0.75), np.float64)

    metrics = q.compute_metrics(scores, labels)

    assert metrics.logloss == pytest.approx(metrics.base_logloss)
    assert metrics.gain == pytest.approx(0.0, abs=1e-12)
    assert metrics.calibration == pytest.approx(1.0)
    assert metrics.auc == 0.5


def test_a_score_however_sure_and_wrong_costs_no_infinity() -> None:
    assert q.logloss(np.array([1e4, -1e4]), np.array([0.0, 1.0])) == 1e4


@pytest.mark.parametrize("label", [0.0, 1.0])
def test_labels_that_are_all_the_same_have_no_auc_and_no_curve(label: float) -> None:
    scores, labels = np.array([0.1, 0.2, 0.3]), np.full(3, label)

    metrics = q.compute_metrics(scores, labels)

    assert metrics.auc is None and metrics.gain is None and q.roc_curve(scores, labels) == ()
    assert (metrics.calibration is None) == (label == 0.0)


@given(st.integers(2, 2000), st.integers(0, 50), st.integers(0, 6))
def test_a_thinned_roc_curve_has_its_ends_never_falls_and_keeps_its_area(rows: int, seed: int, ties: int) -> None:
    scores, labels = scored_rows(rows, seed, ties)

    points = np.array(q.roc_curve(scores, labels, points=100))

    assert len(points) <= 100
    assert points[0].tolist() == [0, 0] and points[-1].tolist() == [1, 1]
    assert (np.diff(points, axis=0) >= 0).all()
    area = metrics.auc(points[:, 0], points[:, 1])
    assert area == pytest.approx(metrics.roc_auc_score(labels, scores), abs=0.01)


@given(st.integers(2, 1000), st.integers(0, 50), st.integers(0, 6))
def test_every_row_is_in_one_bin_and_bins_add_up_to_all_clicks(rows: int, seed: int, ties: int) -> None:
    scores, labels = scored_rows(rows, seed, ties)

    bins = q.calibration_bins(scores, labels)

    assert 1 <= len(bins) <= q.CALIBRATION_BINS
    assert sum(interval.rows for interval in bins) == rows
    assert sum(interval.click_rate * interval.rows for interval in bins) == pytest.approx(labels.sum())
    assert sum(interval.predicted * interval.rows for interval in bins) == pytest.approx(q.probabilities(scores).sum())
    assert [interval.predicted for interval in bins] == sorted(interval.predicted for interval in bins)
    assert all(
        0 <= interval.lower_bound <= interval.click_rate + 1e-9
        and interval.click_rate - 1e-9 <= interval.upper_bound <= 1
        for interval in bins
    )


def test_bins_of_distinct_scores_are_of_equal_size() -> None:
    scores, labels = scored_rows(2000)

    assert {interval.rows for interval in q.calibration_bins(scores, labels)} <= {99, 100, 101}


def test_a_model_with_one_score_for_all_rows_has_one_bin() -> None:
    (only,) = q.calibration_bins(np.zeros(50, np.float32), np.array([1, 0] * 25, np.float32))

    assert (only.rows, only.predicted, only.click_rate) == (50, 0.5, 0.5)


def test_the_histogram_counts_every_row_under_its_label() -> None:
    scores, labels = scored_rows(500)

    histogram = q.probability_histogram(scores, labels)

    assert len(histogram.edges) == len(histogram.clicks) + 1 == len(histogram.others) + 1
    assert sum(histogram.clicks) == labels.sum() and sum(histogram.others) == 500 - labels.sum()
