"""From the address of a table to a source of its rows."""

from __future__ import annotations

import os
from pathlib import Path

from elasticdl.data import table_uri
from elasticdl.data.table_source import Rows, TableSource, table_source
from elasticdl.data.table_uri import DuckdbTable, MaxComputeTable, PostgresTable
from elasticdl.errors import DataError
from elasticdl.spec import DataSpec


def open_table(uri: str, data: DataSpec, index_directory: Path | None = None) -> TableSource:
    """The rows of the table at `uri`, for which `table_uri.is_table` holds, by number."""
    table = table_uri.parse(uri)
    if data.format != "auto":
        raise DataError(f"{table}: data.format is {data.format}, which is for files; leave it out for a table")

    def open_rows(range_rows: int) -> Rows:
        match table:
            case DuckdbTable():
                from elasticdl.data import duckdb_rows

                return duckdb_rows.open_duckdb(table, data.columns, range_rows)
            case PostgresTable():
                from elasticdl.data import postgres_rows

                return postgres_rows.open_postgres(table, data.columns, table.key, range_rows, index_directory)
            case MaxComputeTable():
                from elasticdl.data import maxcompute_rows

                return maxcompute_rows.open_maxcompute(table, data.columns, os.environ)

    return table_source(open_rows, str(table), data.shard_records, data.retry_s)
