"""What columns are worth, of a model that is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from elasticdl.ctr.report.importance import (
    Importance,
    permutation_importances,
    permute_column,
    rank_importances,
    sample_rows,
)
from elasticdl.ctr.report.metrics import Floats, auc, logloss, probabilities

ROWS = 4000


def labelled_rows() -> tuple[Any, Floats]:
    random = np.random.default_rng(0)
    much, little, none = random.normal(size=(3, ROWS))
    labels = random.random(ROWS) < probabilities(2 * much + 0.5 * little)
    return pa.RecordBatch.from_pydict({"none": none, "little": little, "much": much}), labels.astype(np.float32)


def model(rows: Any) -> Floats:
    columns = {name: rows.column(name).to_numpy() for name in ("much", "little")}
    scores: Floats = 2 * columns["much"] + 0.5 * columns["little"]
    return scores


def test_the_most_important_column_comes_first_and_an_unused_one_has_no_importance() -> None:
    rows, labels = labelled_rows()

    importances = permutation_importances(model, rows, labels, rows.schema.names, repeats=3, seed=1)

    assert [importance.column for importance in importances] == ["much", "little", "none"]
    assert importances[0].logloss_rise > 10 * importances[1].logloss_rise > 0
    assert importances[1].auc_drop is not None and importances[1].auc_drop > 0
    assert (importances[2].logloss_rise, importances[2].logloss_deviation, importances[2].auc_drop) == (0.0, 0.0, 0.0)


def test_the_rise_is_that_of_the_column_in_another_order() -> None:
    rows, labels = labelled_rows()

    (importance,) = permutation_importances(model, rows, labels, ["much"], repeats=1, seed=7)

    order = np.random.default_rng([7, 0, 0]).permutation(ROWS)
    scores = 2 * rows.column("much").to_numpy()[order] + 0.5 * rows.column("little").to_numpy()
    assert importance.logloss_rise == pytest.approx(logloss(scores, labels) - logloss(model(rows), labels))
    before, after = auc(model(rows), labels), auc(scores, labels)
    assert before is not None and after is not None and importance.auc_drop == pytest.approx(before - after)
    assert importance.logloss_deviation is None and importance.auc_deviation is None  # of one there is none


def test_the_same_seed_finds_the_same_and_another_not() -> None:
    rows, labels = labelled_rows()

    first, again, other_seed = (
        permutation_importances(model, rows, labels, ["much", "little"], repeats=2, seed=seed) for seed in (3, 3, 4)
    )

    assert first == again != other_seed


def test_each_permutation_reports_progress() -> None:
    rows, labels = labelled_rows()
    heard: list[int] = []

    permutation_importances(model, rows, labels, ["much", "little"], repeats=2, seed=0, progress=heard.append)

    assert heard == [1, 2, 3, 4]


def test_labels_that_are_all_the_same_have_no_drop_in_auc() -> None:
    rows, _ = labelled_rows()

    (importance,) = permutation_importances(model, rows, np.zeros(ROWS, np.float32), ["much"], repeats=2, seed=0)

    assert importance.auc_drop is None and importance.auc_deviation is None and importance.logloss_deviation is not None


def test_a_permuted_column_keeps_its_place_type_and_missing_values() -> None:
    rows = pa.RecordBatch.from_pydict({"a": ["x", None, "z"], "b": [1, 2, 3]})

    permuted = permute_column(rows, "a", np.array([2, 0, 1]))

    assert permuted.schema == rows.schema
    assert permuted.to_pydict() == {"a": ["z", "x", None], "b": [1, 2, 3]}


def test_equal_columns_stay_in_their_order() -> None:
    importances = [
        Importance(column=name, logloss_rise=rise, logloss_deviation=0, auc_drop=0, auc_deviation=0)
        for name, rise in (("a", 0.0), ("b", 0.1), ("c", 0.0))
    ]

    assert [importance.column for importance in rank_importances(importances)] == ["b", "a", "c"]


def test_a_sample_is_distinct_rows_in_order_and_all_where_there_are_few() -> None:
    sample = sample_rows(1000, 100, seed=5)

    assert len(set(sample.tolist())) == 100 and (np.diff(sample) > 0).all() and sample[-1] < 1000
    assert sample.tolist() == sample_rows(1000, 100, seed=5).tolist() != sample_rows(1000, 100, seed=6).tolist()
    assert sample_rows(10, 100, seed=5).tolist() == list(range(10))
