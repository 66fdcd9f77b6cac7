"""Analyzes tables of PostgreSQL with psycopg. It only reads, so that a replica and a read-only role are enough.

The table is scanned once, in a read-only transaction; the server counts values within its own memory (work_mem) and
spills to disk. Only the summary is transferred.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

from elasticdl.data.tables import postgres_keys
from elasticdl.data.tables.table_uri import PostgresTable
from elasticdl.errors import DataError
from elasticdl.extras import install_command
from elasticdl.features.sql import queries
from elasticdl.features.sql.dialects import PostgresDialect
from elasticdl.features.sql.interface import AnalysisOptions, AnalysisProgress, ColumnForm, SummaryRow, TableColumn

_DIALECT = PostgresDialect()
_FETCH_ROWS = 10_000
_WHOLE_TYPES = {"smallint", "integer", "bigint"}
_REAL_TYPES = {"real", "double precision", "numeric"}
_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, NULL), t.typcategory::text, c.relkind::text
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_type t ON t.oid = a.atttypid
WHERE n.nspname = %s AND c.relname = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""


class PostgresEngine:
    """Analyzes a table. libpq reads the password from PGPASSWORD, PGPASSFILE or ~/.pgpass."""

    def __init__(self, table: PostgresTable, memory: str, connect_s: int = 10) -> None:
        self.name = str(table)
        self._table = table
        self._psycopg = _psycopg()
        self._connection: Any = None
        try:
            self._connection = self._psycopg.connect(
                **({"connect_timeout": str(connect_s)} | table.connection_params()), autocommit=True
            )
            self._connection.execute("SET default_transaction_read_only = on")
            self._connection.execute("SET DateStyle = 'ISO, YMD'")
            self._connection.execute("SELECT set_config('work_mem', %s, false)", (_work_mem(memory),))
            self._described = self._connection.execute(_COLUMNS, (table.schema, table.table)).fetchall()
        except self._psycopg.Error as exc:
            raise self._data_error(exc) from exc
        if not self._described:
            self.close()
            raise DataError(f"{self.name}: the table or view does not exist, or the user may not see it")

    def columns(self) -> Sequence[TableColumn]:
        return [TableColumn(name, _column_form(declared, category)) for name, declared, category, _ in self._described]

    def summarize(
        self, columns: Sequence[TableColumn], options: AnalysisOptions, progress: AnalysisProgress
    ) -> Iterator[SummaryRow]:
        statement = self.summary_statement(columns, options)
        progress("counting in the database", 0.0)
        try:
            with self._connection.transaction(), self._connection.cursor("elasticdl_summary") as cursor:
                # A cursor on the server: a vocabulary comes in parts, not at once.
                cursor.itersize = _FETCH_ROWS
                cursor.execute(statement)
                yield from cursor
        except self._psycopg.Error as exc:
            raise self._data_error(exc) from exc
        progress("done", 1.0)

    def summary_statement(self, columns: Sequence[TableColumn], options: AnalysisOptions) -> str:
        relation = f"{_DIALECT.identifier(self._table.schema)}.{_DIALECT.identifier(self._table.table)}"
        is_view = self._described[0][3] in ("v", "f")
        key = self._key(relation) if options.max_rows is not None else ()
        relation = queries.sampled_relation(relation, options, _DIALECT, can_sample=not is_view, key=key)
        counted = queries.count_query(relation, columns, options, _DIALECT)
        return queries.summary_query("counted_cells", columns, options, _DIALECT, inline=counted)

    def _key(self, relation: str) -> tuple[str, ...]:
        """Returns the key that orders the rows in training. Without one (empty), the first rows are arbitrary."""
        try:
            return postgres_keys.describe_table(self._connection, relation, self.name, self._table.key).key
        except DataError:
            return ()

    def close(self) -> None:
        connection = self._connection
        if connection is not None:
            connection.close()

    def _data_error(self, exc: Exception) -> DataError:
        # Messages of the server contain hosts and users, but never a password.
        return DataError(f"{self.name}: {' '.join(str(exc).split())}")


def _column_form(declared: str, category: str) -> ColumnForm:
    if declared in _WHOLE_TYPES:
        return ColumnForm.WHOLE
    if declared in _REAL_TYPES:
        return ColumnForm.REAL
    if declared == "boolean":
        return ColumnForm.TRUTH
    if declared == "timestamp with time zone":
        return ColumnForm.ZONED
    if declared in ("date", "timestamp without time zone"):
        return ColumnForm.DATE
    return ColumnForm.LIST if category == "A" else ColumnForm.TEXT


def _work_mem(memory: str) -> str:
    """Returns an eighth of `memory` for PostgreSQL: a query has several sorts and tables at once."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGT])i?B?\s*", memory, re.IGNORECASE)
    if match is None:
        raise DataError(f"--memory: expected an amount such as 512MB or 4GB, received {memory!r}")
    kilobytes = float(match[1]) * 1024 ** "KMGT".index(match[2].upper())
    return f"{max(int(kilobytes / 8), 64)}kB"


def _psycopg() -> ModuleType:
    try:
        import psycopg
    except ImportError as exc:
        raise DataError(f"tables of PostgreSQL need psycopg: {install_command('postgres')}") from exc
    return psycopg
