"""Statistics are written and read whole, or refused with what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticdl.errors import DataError
from elasticdl.features.statistics import ColumnKind, ColumnStatistics, Statistics

FOUND = Statistics(
    source="clicks.csv",
    rows=3,
    label="label",
    columns={
        "I1": ColumnStatistics(kind=ColumnKind.NUMBER, missing=1, distinct=2, minimum=0.1, maximum=1e300, mean=0.3),
        "C1": ColumnStatistics(kind=ColumnKind.TEXT, missing=0, distinct=2, values=("ä", "b"), counts=(2, 1)),
    },
)


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    FOUND.save(tmp_path / "statistics.json")

    assert Statistics.load(tmp_path / "statistics.json") == FOUND


def test_a_missing_column_is_named_with_the_columns_that_exist() -> None:
    with pytest.raises(DataError, match="no statistics of column 'I2'; there are those of I1, C1"):
        FOUND.column("I2")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "expected statistics of `elasticdl features analyze`"),
        ("[]", "expected statistics of version 1, received None"),
        ('{"version": 2}', "expected statistics of version 1, received 2; analyze again"),
        ('{"version": 1, "source": "x", "columns": {}}', "rows: Field required; analyze again"),
    ],
)
def test_a_file_without_statistics_is_refused(text: str, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(text)

    with pytest.raises(DataError, match=complaint):
        Statistics.load(tmp_path / "s.json")
