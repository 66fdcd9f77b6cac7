"""Analyzes tables of MaxCompute with PyODPS.

MaxCompute computes a common table expression again at every use. So the counts are written to a table of their own,
which lives for a day at most and is dropped at the end. The analyzed table is scanned once; the account needs the
right to create a table in the project.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from elasticdl.data.tables import table_uri
from elasticdl.data.tables.table_uri import MaxComputeTable
from elasticdl.errors import DataError
from elasticdl.extras import install_command
from elasticdl.features.sql import queries
from elasticdl.features.sql.dialects import MaxComputeDialect
from elasticdl.features.sql.interface import AnalysisOptions, AnalysisProgress, ColumnForm, SummaryRow, TableColumn

_DIALECT = MaxComputeDialect()
_WHOLE_TYPES = ("tinyint", "smallint", "int", "bigint")
_HINTS = {"odps.sql.type.system.odps2": "true", "odps.sql.allow.fullscan": "true"}


class MaxComputeEngine:
    """Analyzes a table; `connect` opens it. `use_tunnel` lifts the limit of 10,000 rows per result."""

    def __init__(self, table: MaxComputeTable, client: Any, use_tunnel: bool = True) -> None:
        self.name = str(table)
        self._table = table
        self._client = client
        self._use_tunnel = use_tunnel

    @classmethod
    def connect(cls, table: MaxComputeTable, environ: Mapping[str, str]) -> MaxComputeEngine:
        """Connects to ODPS_ENDPOINT with ODPS_ACCESS_ID and ODPS_ACCESS_KEY (or the file ODPS_ACCESS_KEY_FILE)."""
        try:
            from odps import ODPS
        except ImportError as exc:
            raise DataError(f"tables of MaxCompute need PyODPS: {install_command('maxcompute')}") from exc
        access_id, endpoint = environ.get("ODPS_ACCESS_ID"), environ.get("ODPS_ENDPOINT")
        key = table_uri.read_secret(environ, "ODPS_ACCESS_KEY")
        if not access_id or not key or not endpoint:
            raise DataError(f"{table}: set ODPS_ACCESS_ID, ODPS_ACCESS_KEY (or ODPS_ACCESS_KEY_FILE) and ODPS_ENDPOINT")
        return cls(table, ODPS(access_id, key, project=table.project, endpoint=endpoint))

    def columns(self) -> Sequence[TableColumn]:
        with _translate_errors(self.name):
            table = self._client.get_table(self._table.table, project=self._table.project)
            return [TableColumn(column.name, _column_form(str(column.type))) for column in table.table_schema.columns]

    def summarize(
        self, columns: Sequence[TableColumn], options: AnalysisOptions, progress: AnalysisProgress
    ) -> Iterator[SummaryRow]:
        counts = f"elasticdl_counts_{uuid.uuid4().hex}"
        with _translate_errors(self.name):
            try:
                progress("counting in MaxCompute", 0.0)
                self._execute(self.count_statement(counts, columns, options))
                progress("summing up", 0.8)
                done = self._execute(queries.summary_query(_DIALECT.identifier(counts), columns, options, _DIALECT))
                with done.open_reader(tunnel=self._use_tunnel) as reader:
                    for record in reader:
                        index, key, value, count, number = record.values
                        yield int(index), str(key), value, _parse_int(count), _parse_float(number)
            finally:
                self._execute(f"DROP TABLE IF EXISTS {_DIALECT.identifier(counts)}")
        progress("done", 1.0)

    def count_statement(self, counts: str, columns: Sequence[TableColumn], options: AnalysisOptions) -> str:
        """Returns the statement that scans the table."""
        relation = f"{_DIALECT.identifier(self._table.project)}.{_DIALECT.identifier(self._table.table)}"
        if self._table.partition:
            relation = f"(SELECT * FROM {relation} WHERE {_partition_condition(self._table.partition)}) selected"
        relation = queries.sampled_relation(relation, options, _DIALECT)
        counted = queries.count_query(relation, columns, options, _DIALECT)
        return f"CREATE TABLE {_DIALECT.identifier(counts)} LIFECYCLE 1 AS\n{counted}"

    def close(self) -> None:
        """Does nothing: no statement outlives its call."""

    def _execute(self, statement: str) -> Any:
        return self._client.execute_sql(statement, hints=_HINTS)


class _translate_errors:  # noqa: N801 - used like a function
    """Turns errors of PyODPS into DataError."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, exc: BaseException | None, trace: Any) -> None:
        if exc is not None and type(exc).__module__.startswith(("odps.", "requests.")):
            raise DataError(f"{self._name}: {' '.join(str(exc).split())}") from exc


def _column_form(declared: str) -> ColumnForm:
    name = declared.lower()
    if name in _WHOLE_TYPES:
        return ColumnForm.WHOLE
    if name in ("float", "double") or name.startswith("decimal"):
        return ColumnForm.REAL
    if name == "boolean":
        return ColumnForm.TRUTH
    if name.startswith("array"):
        return ColumnForm.LIST
    return ColumnForm.DATE if name in ("date", "datetime", "timestamp") else ColumnForm.TEXT


def _partition_condition(partition: str) -> str:
    """Returns the SQL condition for a partition such as `ds=20260101,hour=01`."""
    parts = [part.partition("=") for part in partition.split(",")]
    if any(not name.strip() or not equals for name, equals, _ in parts):
        raise DataError(f"partition: expected e.g. ds=20260101,hour=01, received {partition!r}")
    return " AND ".join(f"{_DIALECT.identifier(name.strip())} = {_DIALECT.literal(value)}" for name, _, value in parts)


# Without the tunnel, numbers come as text.
def _parse_int(value: Any) -> int | None:
    return None if value in (None, "", "\\N") else int(value)


def _parse_float(value: Any) -> float | None:
    return None if value in (None, "", "\\N") else float(value)
