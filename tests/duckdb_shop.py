"""A DuckDB database whose tables are dense, have holes or are empty, with a view."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elasticdl.data import ColumnarSource, open_source
from elasticdl.spec import DataSpec

duckdb = pytest.importorskip("duckdb")
ROWS = 5000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"""CREATE TABLE clicks AS SELECT n AS id, CASE WHEN n % 3 = 0 THEN NULL ELSE n / 2 END AS x,
            'é"' || n AS "a name", n % 2 = 0 AS even FROM range({ROWS}) r(n)""")
        connection.execute("CREATE TABLE holes AS SELECT n AS id FROM range(6000) r(n)")
        connection.execute("DELETE FROM holes WHERE id % 7 = 2 OR id > 5500")
        connection.execute("CREATE VIEW seen AS SELECT * FROM clicks")
        connection.execute("CREATE TABLE none (id int)")
    return path


def source_of(path: Path, table: str, **data: Any) -> ColumnarSource:
    source = open_source(f"duckdb://{path}?table={table}", DataSpec(**data))
    assert isinstance(source, ColumnarSource)
    return source
