"""features.yaml: read whole, changed by names, patterns and groups, refused with the place."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticdl.errors import SpecError
from elasticdl.features import features_file, transform_specs
from elasticdl.features.statistics import ColumnKind, ColumnStatistics, Statistics
from elasticdl.features.transform_specs import (
    CrossSpec,
    DiscretizationSpec,
    DropSpec,
    HashingSpec,
    IndexLookupSpec,
    NormalizerSpec,
)

TEXT = """
version: 1
label: clicked
columns:
  I1: [normalizer(log=true), discretization(quantiles=20)]
  I2: normalizer()
  C1: index_lookup(min_count=2)
  C2: drop
crosses: [cross(C1, C2)]
groups: {user: [C1, C2]}
"""


def test_a_file_is_read_in_the_order_of_its_columns() -> None:
    parsed = features_file.parse_features_file(TEXT, "features.yaml")

    assert parsed.label == "clicked"
    assert list(parsed.columns) == ["I1", "I2", "C1", "C2"]
    assert parsed.columns["I1"] == (NormalizerSpec(log=True), DiscretizationSpec(quantiles=20))
    assert parsed.crosses == (CrossSpec(columns=("C1", "C2")),)
    assert parsed.used_columns == ("I1", "I2", "C1", "C2")  # C2 is dropped by itself, but crossed


def test_columns_are_changed_by_name_pattern_and_group_and_later_ones_win() -> None:
    parsed = features_file.parse_features_file(TEXT, "features.yaml")

    changed = parsed.override(
        {"I*": "drop", "user": "hashing(num_bins=9)", "C2": "index_lookup", "crosses": []}, "ctr.yaml"
    )

    assert changed.columns == {
        "I1": (DropSpec(),),
        "I2": (DropSpec(),),
        "C1": (HashingSpec(num_bins=9),),
        "C2": (IndexLookupSpec(),),
    }
    assert changed.used_columns == ("C1", "C2")


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("version: 1", "version: 3", "expected version: 1, received 3"),
        ("label: clicked", "", "expected label: the column to predict"),
        ("label: clicked", "label: I1", "'I1' is the label and cannot be a feature"),
        ("crosses: [", "croses: [", "no key 'croses'; did you mean 'crosses'?"),
        ("[cross(C1, C2)]", "[cross(C1, C9)]", "cross(C1, C9, num_bins=1000000): no column 'C9'"),
        ("[C1, C2]", "[C3]", "features.yaml.groups.user: no column 'C3'"),
        ("I2: normalizer()", "I2: normalise()", "features.yaml.columns.I2: 'normalise()': no transform"),
        ("I2: normalizer()", "I2: [drop, drop]", "the same transform is listed twice"),
        ("I2: normalizer()", "I2: cross(I1, I2)", "it belongs in `crosses`"),
        ("I2: normalizer()", "I2: 7", "expected a transform such as hashing(num_bins=1000)"),
    ],
)
def test_each_mistake_is_reported_with_its_key(old: str, new: str, complaint: str) -> None:
    with pytest.raises(SpecError) as refused:
        features_file.parse_features_file(TEXT.replace(old, new), "features.yaml")
    assert complaint in str(refused.value)


def test_a_change_of_nothing_is_refused() -> None:
    with pytest.raises(
        SpecError, match=r"ctr.yaml.X1: no column, group or pattern of columns; there are I1, I2, C1, C2"
    ):
        features_file.parse_features_file(TEXT, "features.yaml").override({"X1": "drop"}, "ctr.yaml")


def test_statistics_of_another_data_set_are_refused() -> None:
    column = ColumnStatistics(kind=ColumnKind.TEXT, missing=0, distinct=1)
    parsed = features_file.parse_features_file(TEXT, "features.yaml")

    with pytest.raises(
        SpecError, match=r"no statistics of I2, C1, C2: the file belongs to another data set than x.csv"
    ):
        parsed.check_against(Statistics(source="x.csv", rows=1, columns={"I1": column}), "features.yaml")
    every = Statistics(source="x.csv", rows=1, columns={name: column for name in parsed.columns})
    with pytest.raises(SpecError, match=r"columns.I1: normalizer\(log=true\) takes numbers, and this column has text"):
        parsed.check_against(every, "features.yaml")


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "features.yaml").write_bytes(b"version: 1\n\xff\xfe")

    with pytest.raises(SpecError, match="UTF-8"):
        features_file.load_features_file(tmp_path / "features.yaml")


def test_an_option_that_cannot_be_a_value_is_refused() -> None:
    with pytest.raises(SpecError, match="nothing computed"):
        transform_specs.parse_transform("hashing(num_bins={[]: 1})")
