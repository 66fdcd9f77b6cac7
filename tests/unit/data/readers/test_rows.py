"""A part of a data set by the numbers of its records."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.data.readers import composite
from elasticdl.data.readers.mapped import MappedSource
from elasticdl.data.sources import open_source
from elasticdl.errors import DataError
from elasticdl.spec import DataSpec


def clicks(tmp_path: Path, records: int = 10) -> Path:
    path = tmp_path / "clicks.csv"
    path.write_text("x\n" + "".join(f"{number}\n" for number in range(records)))
    return path


def test_a_part_is_read_by_numbers_of_its_own(tmp_path: Path) -> None:
    path = clicks(tmp_path)
    part, remainder = (open_source(f"{path}#rows={rows}", DataSpec()) for rows in ("80%:90%", "9:"))

    assert [record["x"] for record in part.read(np.arange(len(part)))] == ["8"]
    assert remainder.read(np.array([0])) == [{"x": "9"}]
    assert part.locate(0).endswith("line 10")
    assert part.read_columns(np.array([0]), {}).to_pydict() == {"x": ["8"]}  # type: ignore[attr-defined]


@given(st.integers(3, 500), st.lists(st.integers(0, 100), min_size=1, max_size=5).map(sorted))
def test_parts_that_follow_each_other_are_the_whole(records: int, cuts: list[int]) -> None:
    source = MappedSource(list(range(records)), "numbers")
    records_read = []
    for first, last in zip([0, *cuts], [*cuts, 100], strict=True):
        _, row_range = composite.split_row_range(f"x#rows={first}%:{last}%")
        assert row_range is not None
        if row_range.start.resolve(records) < row_range.stop.resolve(records):
            part = composite.RowRangeSource(source, row_range, "part")
            records_read += part.read(np.arange(len(part)))

    assert records_read == list(range(records))


@pytest.mark.parametrize("wrong", ["#rows=7", "#rows=a:b", "#rows=0:101%", "#rows=-1:5", "#rows=5:3", "#rows=50:"])
def test_rows_that_make_no_sense_are_refused(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(DataError, match=r"rows|no records between"):
        open_source(f"{clicks(tmp_path)}{wrong}", DataSpec())


def test_an_index_beyond_the_part_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IndexError):
        open_source(f"{clicks(tmp_path)}#rows=0:5", DataSpec()).read(np.array([5]))
