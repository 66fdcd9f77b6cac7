"""Databases of DuckDB that another process has open."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from elasticdl.data import ColumnarSource, open_source
from elasticdl.errors import DataUnavailable
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


def test_a_file_that_somebody_writes_to_is_waited_for(path: Path) -> None:
    writer = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('open', flush=True); input(); c.close()"
    with subprocess.Popen([sys.executable, "-c", writer, str(path)], stdin=PIPE, stdout=PIPE, text=True) as other:
        assert other.stdout is not None and other.stdin is not None
        assert other.stdout.readline() == "open\n"
        with pytest.raises(DataUnavailable, match=r"did not answer for 0.2 s: .*open for writing elsewhere"):
            source_of(path, "clicks", retry_s=0.2)
        other.stdin.write("\n")
        other.stdin.flush()
        source_of(path, "clicks", retry_s=30).close()
