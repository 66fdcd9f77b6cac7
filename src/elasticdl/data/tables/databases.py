"""Opens the table at an address with the reader of its database."""

from __future__ import annotations

import os
from pathlib import Path

from elasticdl.data.tables import table_uri
from elasticdl.data.tables.table_source import TableRows, TableSource, open_table_source
from elasticdl.data.tables.table_uri import DuckdbTable, MaxComputeTable, PostgresTable
from elasticdl.errors import DataError
from elasticdl.spec import DataSpec


def open_table(uri: str, data: DataSpec, index_directory: Path | None = None) -> TableSource:
    """Opens the rows of the table at `uri`, which is an address for `is_table_uri`."""
    table = table_uri.parse_table_uri(uri)
    if data.format != "auto":
        raise DataError(f"{table}: data.format is {data.format}, which is for files; leave it out for a table")

    def open_rows(range_rows: int) -> TableRows:
        match table:
            case DuckdbTable():
                from elasticdl.data.tables import duckdb

                return duckdb.open_duckdb(table, data.columns, range_rows)
            case PostgresTable():
                from elasticdl.data.tables import postgres

                return postgres.open_postgres(table, data.columns, table.key, range_rows, index_directory)
            case MaxComputeTable():
                from elasticdl.data.tables import maxcompute

                return maxcompute.open_maxcompute(table, data.columns, os.environ)

    return open_table_source(open_rows, str(table), data.shard_records, data.retry_s)
