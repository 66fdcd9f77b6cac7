from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elasticdl.data.files.stored_file import find_file
from elasticdl.data.readers.parquet import ParquetSource, RowGroupCache, open_parquet
from elasticdl.errors import DataError


def table(rows: int) -> pa.Table:
    numbers = list(range(rows))
    return pa.table(
        {
            "id": numbers,
            "share": [number / 4 for number in numbers],
            "word": [f"w{number}" if number % 5 else None for number in numbers],
            "pixels": [[number, number + 1] for number in numbers],
        }
    )


def source_of(
    path: Path, rows: int, columns: tuple[str, ...] = (), cache: RowGroupCache | None = None
) -> ParquetSource:
    pq.write_table(table(rows), path, row_group_size=10)
    return open_parquet(find_file(str(path)), columns, cache)


def test_records_are_typed_dicts_in_the_order_asked_for(tmp_path: Path) -> None:
    source = source_of(tmp_path / "a.parquet", 35)
    numbers = [34, 0, 17, 17, 9, 10]

    records = source.read(np.array(numbers))

    assert len(source) == 35
    assert source.columns == ("id", "share", "word", "pixels")
    assert records == table(35).take(numbers).to_pylist()


def test_only_the_columns_asked_for_are_read(tmp_path: Path) -> None:
    source = source_of(tmp_path / "a.parquet", 12, ("word", "id"))

    assert source.read(np.array([11])) == [{"word": "w11", "id": 11}]


def test_a_column_that_is_not_there_is_refused_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.parquet: no column 'shares'; did you mean 'share'\? It has: 'id', "):
        source_of(tmp_path / "a.parquet", 5, ("id", "shares"))


def test_a_truncated_file_is_refused_when_it_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    source_of(path, 50)
    path.write_bytes(path.read_bytes()[:-20])

    with pytest.raises(DataError, match=rf"a\.parquet, byte {path.stat().st_size - 8}: .* truncated"):
        open_parquet(find_file(str(path)))


def test_a_damaged_row_group_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    metadata = source_of(path, 50).metadata
    damaged = bytearray(path.read_bytes())
    offset = metadata.row_group(3).column(0).dictionary_page_offset
    damaged[offset : offset + 16] = b"\xff" * 16
    path.write_bytes(damaged)
    source = open_parquet(find_file(str(path)), ("id",))

    assert source.read(np.array([29])) == [{"id": 29}]
    with pytest.raises(DataError, match=r"a\.parquet, row group 3: damaged"):
        source.read(np.array([30]))


def test_a_place_is_a_row_of_a_row_group(tmp_path: Path) -> None:
    assert source_of(tmp_path / "a.parquet", 35).locate(17).endswith("a.parquet, row group 1, row 7 of the group")


def test_row_groups_stay_decoded_as_long_as_they_fit(tmp_path: Path) -> None:
    cache = RowGroupCache(max_bytes=1)
    source = source_of(tmp_path / "a.parquet", 30, ("id",), cache)
    path = source.file.path

    source.read(np.array([0, 10]))

    assert cache.get(path, 0) is None
    assert cache.get(path, 1) is not None
    cache.max_bytes = 200
    source.read(np.array([20]))
    assert cache.get(path, 1) is not None and cache.get(path, 2) is not None
    source.close()
    assert cache.get(path, 2) is None
