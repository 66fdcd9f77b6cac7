from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from elasticdl.data import Dataset
from elasticdl.errors import DataError
from tests.duckdb_shop import ROWS, path, source_of

__all__ = ["path"]

duckdb = pytest.importorskip("duckdb")


def test_rows_are_read_by_number_in_any_order(path: Path) -> None:
    source = source_of(path, "clicks")
    numbers = np.random.default_rng(0).permutation(ROWS)

    records = source.read(numbers)

    assert len(source) == ROWS and source.columns == ("id", "x", "a name", "even")
    assert [record["id"] for record in records] == numbers.tolist()
    assert records[int(np.flatnonzero(numbers == 4)[0])] == {"id": 4, "x": 2.0, "a name": 'é"4', "even": True}
    assert source.read_columns(numbers, {}).to_pylist() == records
    source.close()


def test_deleted_rows_leave_no_holes_in_the_numbers(path: Path) -> None:
    source = source_of(path, "holes")
    left = [n for n in range(5501) if n % 7 != 2]

    assert [record["id"] for record in source.read(np.arange(len(source))[::-1])] == left[::-1]
    source.close()


def test_a_model_sees_columns_of_the_types_it_asks_for(path: Path) -> None:
    source = source_of(path, "clicks", columns=("x", "id"))
    dataset = Dataset(source).map_columns(
        lambda b: (b["x"].fill_null(0).to_numpy(), b["id"].to_numpy()), {"x": "float32"}
    )

    batch = dataset.read_batch(np.array([4, 3, 2]))

    assert batch is not None and batch.features.dtype == np.float32 and batch.features.tolist() == [2, 0, 1]
    with pytest.raises(DataError, match=r"table=clicks, row 4, column 'id': expected date32.*, got 4"):
        source.read_columns(np.array([4]), {"id": pa.date32()})
    source.close()


def test_only_the_ranges_asked_for_are_fetched_and_each_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source: Any = source_of(path, "clicks")
    fetched = []
    fetch = source.rows.fetch
    monkeypatch.setattr(source.rows, "fetch", lambda *bounds: fetched.append(bounds) or fetch(*bounds))

    for _ in range(3):
        source.read(np.array([1100, 4999, 1025, 2047]))

    assert fetched == [(1024, 2048), (4096, 5000)]
    source.close()


def test_two_readers_of_one_file_agree(path: Path) -> None:
    first, second = source_of(path, "holes"), source_of(path, "holes")

    assert first.read(np.array([17, 4000])) == second.read(np.array([17, 4000]))
    first.close()
    second.close()


def test_a_missing_table_or_file_is_reported_with_the_fix(path: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no such table; there are main\.clicks, main\.holes, main\.none"):
        source_of(path, "click")
    with pytest.raises(DataError, match=r"is a view, .* CREATE TABLE"):
        source_of(path, "seen")
    with pytest.raises(DataError, match="the table has no rows"):
        source_of(path, "none")
    with pytest.raises(DataError, match=r"no column 'idd' among .* did you mean 'id'\?"):
        source_of(path, "clicks", columns=("idd",))
    with pytest.raises(DataError, match="has unknown parameters: key"):
        source_of(path, "clicks&key=id")
    with pytest.raises(DataError, match="no such file"):
        source_of(tmp_path / "nowhere.db", "clicks")
    (tmp_path / "text.db").write_text("no database at all")
    with pytest.raises(DataError, match="is not a DuckDB database"):
        source_of(tmp_path / "text.db", "clicks")


def test_a_replaced_file_is_reported(path: Path) -> None:
    source = source_of(path, "clicks")
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content + b"\0" * 4096)

    with pytest.raises(DataError, match="the file changed while the job was using it"):
        source.read(np.array([0]))
    source.close()


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM leaking",
        "SET enable_external_access = true",
        "SET threads = 4",
        "INSTALL httpfs",
        "ATTACH 'o.db'",
    ],
)
def test_nothing_in_a_database_opens_another_file(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    (tmp_path / "secret.csv").write_text("a\n1\n")
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"CREATE VIEW leaking AS SELECT * FROM read_csv('{tmp_path}/secret.csv')")
    opened, connect = [], duckdb.connect
    monkeypatch.setattr(duckdb, "connect", lambda *args, **more: opened.append(connect(*args, **more)) or opened[-1])
    source = source_of(path, "clicks")

    with pytest.raises(duckdb.Error, match=r"disabled by configuration|locked"):
        opened[0].execute(statement).fetchall()
    source.close()
