"""From the address of a table to a source of its rows."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlencode

from elasticdl.data import table_uri
from elasticdl.data.table_source import Rows, TableSource, table_source
from elasticdl.data.table_uri import DuckdbTable, MaxComputeTable, PostgresTable
from elasticdl.errors import DataError
from elasticdl.spec import DataSpec


def open_table(uri: str, data: DataSpec, index_directory: Path | None = None) -> TableSource:
    """The rows of the table at `uri`, for which `table_uri.is_table` holds, by number."""
    address, key = _without_key(uri)
    table = table_uri.parse(address)
    if data.format != "auto":
        raise DataError(f"{table}: data.format is {data.format}, which is for files; leave it out for a table")
    if key and not isinstance(table, PostgresTable):
        raise DataError(f"{table}: only tables of PostgreSQL have a key; leave it out")

    def open_rows(range_rows: int) -> Rows:
        match table:
            case DuckdbTable():
                from elasticdl.data import duckdb_rows

                return duckdb_rows.open_duckdb(table, data.columns, range_rows)
            case PostgresTable():
                from elasticdl.data import postgres_rows

                return postgres_rows.open_postgres(table, data.columns, key, range_rows, index_directory)
            case MaxComputeTable():
                from elasticdl.data import maxcompute_rows

                return maxcompute_rows.open_maxcompute(table, data.columns, os.environ)

    return table_source(open_rows, str(table), data.shard_records, data.retry_s)


def _without_key(uri: str) -> tuple[str, tuple[str, ...]]:
    """The address without `key=a,b`, which says how rows are numbered and not which table it is, and that key."""
    address, mark, text = uri.partition("?")
    query = parse_qsl(text, keep_blank_values=True)
    keys = [value for name, value in query if name == "key"]
    if not keys:
        return uri, ()
    if len(keys) > 1:
        raise DataError("the address of the table gives a key twice; give its columns once: key=a,b")
    rest = urlencode([(name, value) for name, value in query if name != "key"], quote_via=quote)
    return address + mark + rest, tuple(name.strip() for name in keys[0].split(",") if name.strip())
