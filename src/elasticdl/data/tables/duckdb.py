"""Reads rows of a DuckDB table in the order of its row ids. Any number of processes open the file, read-only."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from elasticdl.data.files.stored_file import StoredFile, find_file
from elasticdl.data.interface import Indices
from elasticdl.data.tables.table_source import select_columns
from elasticdl.data.tables.table_uri import DuckdbTable
from elasticdl.errors import DatabaseUnavailable, DataError
from elasticdl.extras import install_command

_MAGIC, _HEAD = b"DUCK", 12  # after a checksum of eight bytes
# A database may come from an untrusted source: it must not open other files, addresses or extensions.
_SANDBOX_SETTINGS = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "lock_configuration": "true",
}


class DuckdbRows:
    """The rows of a DuckDB table, opened by `open_duckdb`."""

    def __init__(self, table: DuckdbTable, file: StoredFile, connection: Any, columns: tuple[str, ...]) -> None:
        self.name = str(table)
        self.columns = columns
        self._from = f"{_quote(table.schema)}.{_quote(table.table)}"
        self._file = file
        self._connection = connection
        self._lock = threading.Lock()
        self._range_rows = 0
        self._firsts: Indices = np.array([], dtype=np.int64)  # row id of the first row of each range
        self._rows, self._last = 0, -1

    def scan_ranges(self, range_rows: int) -> None:
        """Finds the start of each range. Row ids have gaps after rows were deleted."""
        ((rows, last),) = self._query(f"SELECT count(*), max(rowid) FROM {self._from}")
        self._rows, self._last, self._range_rows = int(rows), -1 if last is None else int(last), range_rows
        if self._rows == self._last + 1:
            self._firsts = np.arange(0, self._rows, range_rows, dtype=np.int64)
            return
        first_ids = self._query(
            f"SELECT id FROM (SELECT rowid AS id, row_number() OVER (ORDER BY rowid) - 1 AS n FROM {self._from}) "
            f"WHERE n % {int(range_rows)} = 0 ORDER BY n"
        )
        self._firsts = np.array([row[0] for row in first_ids], dtype=np.int64)

    def __len__(self) -> int:
        return self._rows

    def fetch(self, start: int, stop: int) -> Any:
        number = start // self._range_rows
        after = int(self._firsts[number + 1]) if number + 1 < len(self._firsts) else self._last + 1
        names = ", ".join(map(_quote, self.columns))
        with self._file.open():  # raises if the file was replaced
            return self._execute(
                f"SELECT {names} FROM {self._from} WHERE rowid >= {int(self._firsts[number])} AND rowid < {after} "
                f"ORDER BY rowid",
                lambda relation: relation.to_arrow_table(),
            )

    def locate(self, index: int) -> str:
        return f"{self.name}, row {index}"

    def close(self) -> None:
        self._connection.close()

    def _query(self, query: str) -> list[Any]:
        rows: list[Any] = self._execute(query, lambda relation: relation.fetchall())
        return rows

    def _execute(self, query: str, take: Callable[[Any], Any]) -> Any:
        """Runs a query and returns what `take` makes of its relation."""
        import duckdb

        try:
            with self._lock, self._connection.cursor() as cursor:
                return take(cursor.sql(query))
        except duckdb.IOException as exc:
            raise DatabaseUnavailable(str(exc)) from exc
        except duckdb.Error as exc:
            raise DataError(f"{self.name}: {exc}") from exc


def open_duckdb(table: DuckdbTable, columns: tuple[str, ...], range_rows: int) -> DuckdbRows:
    """Opens a table. Raises DataError if file, table or column is missing, and DatabaseUnavailable if it is locked."""
    try:
        import duckdb
    except ImportError as exc:
        raise DataError(f"{table}: reading it needs DuckDB: {install_command('features')}") from exc
    file = find_file(table.path)
    with file.open() as stored:
        if stored.read(_HEAD)[-len(_MAGIC) :] != _MAGIC:
            raise DataError(f"{table}: is not a DuckDB database; check the path")
    try:
        connection = duckdb.connect(table.path, read_only=True, config={"threads": 1, **_SANDBOX_SETTINGS})
    except duckdb.IOException as exc:
        raise DatabaseUnavailable(
            f"the file cannot be opened for reading, or is open for writing elsewhere: {exc}"
        ) from exc
    except duckdb.Error as exc:
        raise DataError(f"{table}: not a DuckDB database: {exc}") from exc
    try:
        rows = DuckdbRows(table, file, connection, _select_columns(table, connection, columns))
        rows.scan_ranges(range_rows)
    except BaseException:
        connection.close()
        raise
    return rows


def _select_columns(table: DuckdbTable, connection: Any, requested: tuple[str, ...]) -> tuple[str, ...]:
    parameters = [table.schema, table.table]
    where = "schema_name = ? AND table_name = ?"
    rows = connection.execute(
        f"SELECT column_name FROM duckdb_columns() WHERE {where} ORDER BY column_index", parameters
    ).fetchall()
    if not rows:
        tables = connection.execute(
            "SELECT schema_name || '.' || table_name FROM duckdb_tables() ORDER BY 1"
        ).fetchall()
        raise DataError(f"{table}: no such table; there are {', '.join(row[0] for row in tables) or 'none'}")
    if not connection.execute(f"SELECT 1 FROM duckdb_tables() WHERE {where}", parameters).fetchall():
        raise DataError(
            f"{table}: is a view, whose rows have no stable numbers; make a table of it: CREATE TABLE … AS SELECT …"
        )
    return select_columns(str(table), requested, [row[0] for row in rows])


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
