"""What is known of a value's clicks: told by other rows only, right on the whole, the same when it is served."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.features import features_file
from elasticdl.features.preprocessing.preprocessor import Preprocessor
from elasticdl.features.preprocessing.target_encoding import FOLD_COUNT, TargetFolds, assign_folds
from elasticdl.features.statistics import ColumnKind, ColumnStatistics, Statistics

VALUES = tuple("abcde")
KNOWN = Statistics(
    source="made-up",
    rows=100,
    label="y",
    columns={
        "t": ColumnStatistics(kind=ColumnKind.TEXT, missing=0, distinct=5, values=VALUES, counts=(9, 9, 9, 9, 1)),
        "n": ColumnStatistics(
            kind=ColumnKind.NUMBER, missing=0, distinct=9, minimum=0.5, maximum=9.5, quantiles=(0.5, 9.5)
        ),
        "y": ColumnStatistics(kind=ColumnKind.NUMBER, missing=0, distinct=2),
    },
)
PREPROCESSOR = Preprocessor.build(
    features_file.parse_features_file(
        "{version: 1, label: y, columns: {t: [index_lookup, target_encoding], n: [log_square, target_encoding]}}", "f"
    ),
    KNOWN,
)
ROWS = st.lists(st.tuples(st.sampled_from([*VALUES, "new", None]), st.floats(0, 1e6)), min_size=2, max_size=40)


def batch(rows: list[tuple[str | None, float]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"t": pa.array([text for text, _ in rows], pa.string()), "n": [number for _, number in rows]}
    )


def counted(rows: list[tuple[str | None, float]], labels: list[int]) -> tuple[Preprocessor, TargetFolds]:
    folds = TargetFolds(PREPROCESSOR.target_encoders)
    folds.add_batch(batch(rows), PREPROCESSOR.encode_ids(batch(rows)), np.array(labels, np.float32))
    return PREPROCESSOR.model_copy(update={"target_encoders": folds.fitted_encoders(0.3)}), folds


@given(ROWS, st.data())
def test_the_encoding_of_a_row_does_not_depend_on_its_own_label(
    rows: list[tuple[str | None, float]], data: st.DataObject
) -> None:
    labels = data.draw(st.lists(st.integers(0, 1), min_size=len(rows), max_size=len(rows)))
    position = data.draw(st.integers(0, len(rows) - 1))
    changed_labels = [1 - label if index == position else label for index, label in enumerate(labels)]

    (encoders, folds), (two, changed) = counted(rows, labels), counted(rows, changed_labels)
    left = encoders.encode(batch(rows), folds)["numbers"][position]
    right = two.encode(batch(rows), changed)["numbers"][position]

    assert left.tolist() == right.tolist()


def test_a_value_that_is_clicked_often_has_the_greater_number() -> None:
    rows: list[tuple[str | None, float]] = [*[("a", 1.0)] * 50, *[("b", 1.0)] * 50]
    encoders, _ = counted(rows, [1] * 40 + [0] * 10 + [1] * 10 + [0] * 40)
    numbers = encoders.encode(batch([("a", 1.0), ("b", 1.0), ("new", 1.0), (None, 1.0)]))["numbers"]
    a, b, new, missing = numbers[:, encoders.layout.numbers.index("t.target_encoding")]

    assert a > 0 > b
    assert new == missing == pytest.approx(0.0)  # nobody had them: the mean
    assert len(encoders.layout.numbers) == numbers.shape[1] == 4


def test_folds_are_about_as_large_and_a_row_has_always_the_same() -> None:
    rows: list[tuple[str | None, float]] = [(VALUES[row % 5], float(row)) for row in range(4000)]
    ids = np.arange(40_000).reshape(-1, 4) * 7919
    folds = assign_folds(ids)

    assert np.bincount(folds, minlength=FOLD_COUNT).min() > 0.8 * len(ids) / FOLD_COUNT
    assert (
        assign_folds(PREPROCESSOR.encode_ids(batch(rows))) == assign_folds(PREPROCESSOR.encode_ids(batch(rows)))
    ).all()
    assert (assign_folds(ids[::-1]) == folds[::-1]).all()


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    rows: list[tuple[str | None, float]] = [("a", 1.0), ("b", 5.0), ("a", 99.0)]
    encoders, folds = counted(rows, [1, 0, 1])
    folds.save(tmp_path)
    again = TargetFolds.load(tmp_path, encoders.target_encoders)

    assert np.array_equal(
        encoders.encode(batch(rows), folds)["numbers"], encoders.encode(batch(rows), again)["numbers"]
    )
