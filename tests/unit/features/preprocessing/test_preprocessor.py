"""A front: raw columns to ids and numbers, the same with and without ElasticDL."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticdl.errors import DataError, SpecError
from elasticdl.features import features_file
from elasticdl.features.layout import FIELD_BITS
from elasticdl.features.preprocessing import standalone
from elasticdl.features.preprocessing.preprocessor import Preprocessor
from elasticdl.features.preprocessing.target_encoding import TargetFolds
from elasticdl.features.statistics import ColumnKind, ColumnStatistics, Statistics
from tests.properties import examples

NUMBER = ColumnStatistics(
    kind=ColumnKind.NUMBER, missing=1, distinct=9, minimum=-2.0, maximum=98.0, mean=5.0, standard_deviation=4.0,
    quantiles=(-2.0, 0.0, 1.0, 7.0, 98.0), values=("7", "0"), counts=(3, 2), is_integer=True,
)  # fmt: skip
TEXT = ColumnStatistics(kind=ColumnKind.TEXT, missing=0, distinct=3, values=("a", "ä", "rare"), counts=(5, 2, 1))
DATE = ColumnStatistics(kind=ColumnKind.DATE, missing=0, distinct=3)
KNOWN = Statistics(
    source="made-up", rows=10, label="y", columns={"n": NUMBER, "t": TEXT, "d": DATE, "s": TEXT, "y": NUMBER}
)
EVERYTHING = """
version: 1
label: y
columns:
  n:
    - normalizer(log=true)
    - normalizer
    - number
    - clip
    - missing_indicator
    - discretization(quantiles=4)
    - discretization(bins=[0, 10])
    - log_square
    - log_round(num_bins=8, base=2)
    - round_identity(num_buckets=50)
    - index_lookup
    - hashing(num_bins=7)
    - target_encoding
  t:
    - index_lookup(min_count=2, num_oov_tokens=3)
    - hashing(num_bins=1000)
    - missing_indicator
    - target_encoding(min_count=1)
  d: date_parts(parts=[year, month, day, yearday, weekday, hour, minute, second])
  s: sequence(sep=",", max_length=3, like=t)
crosses: ["cross(n, t, num_bins=100)"]
groups: {user: [t, d]}
"""


def front(text: str = EVERYTHING) -> Preprocessor:
    preprocessor = Preprocessor.build(features_file.parse_features_file(text, "features.yaml"), KNOWN)
    rows: list[dict[str, Any]] = [{"n": 7.0, "t": "a"}, {"n": 0.0, "t": "ä"}, {"n": 7.0}]
    folds = TargetFolds(preprocessor.target_encoders)
    if preprocessor.target_encoders:
        folds.add_batch(batch(rows), preprocessor.encode_ids(batch(rows)), np.array([1, 0, 1], np.float32))
    return preprocessor.model_copy(update={"target_encoders": folds.fitted_encoders(0.6)})


def batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    names = ("n", "t", "d", "s")
    return pa.RecordBatch.from_pydict(
        {
            name: pa.array([row.get(name) for row in rows], pa.float64() if name == "n" else pa.string())
            for name in names
        }
    )


def values(front: Preprocessor, rows: list[dict[str, Any]]) -> dict[str, list[int]]:
    """Ids without their fields, by the name of the field."""
    ids = front.encode(batch(rows))["ids"]
    assert (ids >> FIELD_BITS == np.arange(ids.shape[1])).all()
    return {
        name: (ids[:, column] & ((1 << FIELD_BITS) - 1)).tolist()
        for column, name in enumerate(front.layout.field_names)
    }


def test_ids_are_missing_unknown_or_those_of_the_transform() -> None:
    encoded = values(front(), [{"n": 7.0, "t": "a"}, {"n": None, "t": None}, {"n": -9.0, "t": "new"}])

    assert encoded["n.index_lookup"] == [2, 0, 1]
    assert encoded["t.index_lookup"][:2] == [4, 0] and 1 <= encoded["t.index_lookup"][2] <= 3
    assert encoded["n.round_identity"] == [2 + 7, 0, 1]
    assert encoded["n.log_round"] == [2 + 3, 0, 1]
    assert encoded["d.hour"] == [0, 0, 0]
    assert encoded["n*t"][1] == 0 and min(encoded["n*t"][0], encoded["n*t"][2]) >= 2


def test_numbers_are_around_zero_and_zero_where_they_are_missing() -> None:
    preprocessor = front()
    numbers = preprocessor.encode(batch([{"n": 5.0}, {"n": None}, {"n": 1e9}]))["numbers"]
    of = dict(zip(preprocessor.layout.numbers, numbers.T.tolist(), strict=True))

    assert of["n.normalizer-2"][0] == 0.0 and of["n.clip"] == [pytest.approx(0.07), 0.0, 1.0]
    assert of["n.missing_indicator"] == [0.0, 1.0, 0.0] and of["t.missing_indicator"] == [1.0, 1.0, 1.0]
    assert all(
        encoder[1] == 0.0
        for name, encoder in of.items()
        if not name.endswith(("missing_indicator", "target_encoding", "target_frequency"))
    )


def test_a_sequence_has_the_ids_of_the_field_it_is_like() -> None:
    preprocessor = front()
    encoded = preprocessor.encode(batch([{"s": "a,ä,,a,ä", "t": "a"}, {"s": ""}, {"s": "a", "t": "ä"}]))
    field = preprocessor.layout.field_names.index("t.index_lookup")
    a, umlaut = encoded["ids"][0, field], encoded["ids"][2, field]

    assert encoded["s.sequence"].tolist() == [[umlaut, a, umlaut], [-1, -1, -1], [a, -1, -1]]
    assert preprocessor.layout.sequences == {"s.sequence": "t.index_lookup"}


def test_a_layout_has_sizes_and_groups() -> None:
    fields = {field.name: field for field in front().layout.fields}

    assert (fields["t.index_lookup"].size, fields["t.index_lookup"].group) == (1 + 3 + 2, "user")
    assert (fields["n.discretization"].size, fields["n.discretization"].group) == (2 + 3 + 1, "")
    assert len({field.name for field in front().layout.fields}) == len(front().layout.fields)


NUMBERS = st.none() | st.floats(-1e12, 1e12) | st.integers(-5, 60).map(float) | st.just(math.nan) | st.just(1e-320)
TEXTS = st.none() | st.sampled_from(["a", "ä", "rare", "", " a"]) | st.text(st.characters(codec="utf-8"), max_size=80)
DATES = (
    st.none() | st.datetimes().map(lambda date: date.replace(microsecond=0).isoformat(sep=" ")) | st.just("2014-10-21")
)
LISTS = st.none() | st.lists(st.sampled_from(["a", "ä", "x", ""]), max_size=5).map(",".join)
ROWS = st.lists(st.fixed_dictionaries({"n": NUMBERS, "t": TEXTS, "d": DATES, "s": LISTS}), min_size=1, max_size=6)


@given(ROWS)
@settings(max_examples=examples(60))
def test_rows_served_without_elasticdl_are_the_same_to_the_last_bit(rows: list[dict[str, Any]]) -> None:
    preprocessor = front()
    alone = standalone.Preprocessor.__new__(standalone.Preprocessor)
    alone.load_spec(json.loads(preprocessor.model_dump_json()))

    inside, outside = preprocessor.encode(batch(rows)), alone.encode(rows)

    assert inside.keys() == outside.keys()
    for name, array in inside.items():
        assert array.dtype == outside[name].dtype
        assert array.tobytes() == outside[name].tobytes(), name


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    front().save(tmp_path)

    assert Preprocessor.load(tmp_path) == front()


def test_labels_are_0_or_1() -> None:
    preprocessor = front()

    assert preprocessor.read_labels(pa.RecordBatch.from_pydict({"y": ["1", "0"]})).tolist() == [1.0, 0.0]
    for wrong, complaint in (("2", "received 2"), ("", "received nothing"), ("yes", "expected numbers")):
        with pytest.raises(DataError, match=complaint):
            preprocessor.read_labels(pa.RecordBatch.from_pydict({"y": ["1", wrong]}))


def test_a_column_that_is_not_there_is_named() -> None:
    with pytest.raises(DataError, match="no column 'n' in the data; there are t"):
        front().encode(pa.RecordBatch.from_pydict({"t": ["a"]}))


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("like=t", "like=d", "d has no ids; give it hashing"),
        ("index_lookup(min_count=2, num_oov_tokens=3)", "log_square", "takes numbers, and this column has text"),
    ],
)
def test_transforms_that_do_not_fit_the_statistics_are_refused(old: str, new: str, complaint: str) -> None:
    with pytest.raises(SpecError, match=complaint):
        front(EVERYTHING.replace(old, new))


def test_a_file_that_drops_all_is_refused() -> None:
    with pytest.raises(SpecError, match="every column is dropped"):
        front("{version: 1, label: y, columns: {t: drop}}")
