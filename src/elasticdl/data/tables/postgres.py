"""Reads rows of a PostgreSQL table in the order of its key. A range is one COPY, which Arrow parses."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from pyarrow import csv

from elasticdl.data.tables import postgres_keys
from elasticdl.data.tables.postgres_keys import KeyRanges, PostgresColumn, TableDescription, describe_table
from elasticdl.data.tables.table_source import select_columns
from elasticdl.data.tables.table_uri import PostgresTable, read_secret
from elasticdl.errors import DatabaseUnavailable, DataError
from elasticdl.extras import install_command

_log = logging.getLogger(__name__)
_SETTINGS = "-c default_transaction_read_only=on -c DateStyle=ISO -c TimeZone=UTC -c client_encoding=UTF8"
# Without these settings a read would wait for hours for a machine that vanished.
_KEEPALIVE = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 20_000}
_CONNECT_S = 10

T = TypeVar("T")


class PostgresRows:
    """The rows of a table, opened by `open_postgres`. It has one connection, and opens it again if it is lost."""

    def __init__(self, table: PostgresTable) -> None:
        self.name = str(table)
        self.columns: tuple[str, ...] = ()
        self._table = table
        self._lock = threading.Lock()
        self._connection: Any = None
        self._description = TableDescription({}, ())
        self._ranges = KeyRanges(0, 1, (), ())

    def scan_ranges(
        self, requested: tuple[str, ...], key: Sequence[str], range_rows: int, directory: Path | None
    ) -> None:
        """Finds columns, key and the start of each range: from `directory`, or in one pass over the key."""
        relation = self._relation().as_string(None)
        self._description = self._run(lambda connection: describe_table(connection, relation, self.name, key))
        self.columns = select_columns(self.name, requested, list(self._description.columns))
        path = postgres_keys.ranges_path(directory, self.name, self._description.key, range_rows) if directory else None
        stored_ranges = postgres_keys.load_ranges(path) if path else None
        if stored_ranges is not None:
            self._ranges = stored_ranges
            self._warn_of_new_rows()
            return
        self._ranges = self._run(lambda connection: self._scan(connection, range_rows))
        if path and self._ranges.rows:
            self._ranges = postgres_keys.save_ranges(path, self._ranges)

    def __len__(self) -> int:
        return self._ranges.rows

    def fetch(self, start: int, stop: int) -> Any:
        from psycopg import sql

        first, after = self._ranges.bounds(start)
        bound = self._compare_key("<", after) if after else self._compare_key("<=", self._ranges.last)
        query = sql.SQL("COPY (SELECT {} FROM {} WHERE {} AND {} ORDER BY {}) TO STDOUT (FORMAT csv)").format(
            sql.SQL(", ").join(_column_expression(self._description.columns[name]) for name in self.columns),
            self._relation(), self._compare_key(">=", first), bound, self._order(),
        )  # fmt: skip

        def copy_rows(connection: Any) -> bytes:
            with connection.cursor().copy(query) as copy:
                return b"".join(bytes(block) for block in copy)

        return self._parse(self._run(copy_rows))

    def locate(self, index: int) -> str:
        return f"{self.name}, row {index} in the order of {', '.join(self._description.key)}"

    def close(self) -> None:
        with self._lock:
            self._drop()

    # ---- queries

    def _scan(self, connection: Any, range_rows: int) -> KeyRanges:
        from psycopg import sql

        texts = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(name)) for name in self._description.key)
        query = sql.SQL(
            "SELECT n, {} FROM (SELECT *, row_number() OVER (ORDER BY {}) - 1 AS n, count(*) OVER () AS total FROM "
            "(SELECT {} FROM {}) AS keys) AS numbered WHERE n %% %s = 0 OR n = total - 1 ORDER BY n"
        ).format(texts, self._order(), self._key(), self._relation())
        rows = connection.execute(query, [range_rows]).fetchall()
        if not rows:
            return KeyRanges(0, range_rows, (), ())
        firsts = tuple(tuple(key) for number, *key in rows if number % range_rows == 0)
        return KeyRanges(rows[-1][0] + 1, range_rows, firsts, tuple(rows[-1][1:]))

    def _warn_of_new_rows(self) -> None:
        from psycopg import sql

        query = sql.SQL("SELECT EXISTS (SELECT 1 FROM {} WHERE {})").format(
            self._relation(), self._compare_key(">", self._ranges.last)
        )
        if self._run(lambda connection: connection.execute(query).fetchone()[0]):
            _log.warning(
                "%s: rows were added since this job numbered it; it trains the first %d. A new job sees all",
                self.name, self._ranges.rows,
            )  # fmt: skip

    def _compare_key(self, sign: str, values: Sequence[str]) -> Any:
        from psycopg import sql

        types = [self._description.columns[name].sql_type for name in self._description.key]
        literals = [
            sql.SQL("{}::{}").format(sql.Literal(value), sql.SQL(kind))
            for value, kind in zip(values, types, strict=True)
        ]
        return sql.SQL("({}) {} ({})").format(self._key(), sql.SQL(sign), sql.SQL(", ").join(literals))

    def _key(self) -> Any:
        from psycopg import sql

        return sql.SQL(", ").join(sql.Identifier(name) for name in self._description.key)

    _order = _key

    def _relation(self) -> Any:
        from psycopg import sql

        return sql.Identifier(self._table.schema, self._table.table)

    def _parse(self, text: bytes) -> Any:
        kinds = {name: self._description.columns[name].arrow_type for name in self.columns}
        if not text:
            return pa.table({name: pa.array([], type=kind) for name, kind in kinds.items()})
        try:
            return csv.read_csv(
                pa.BufferReader(text),
                csv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=list(kinds)),
                csv.ParseOptions(newlines_in_values=True),
                # An empty field is null; an empty text is quoted.
                csv.ConvertOptions(
                    column_types=kinds, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False,
                    true_values=["t"], false_values=["f"],
                ),
            )  # fmt: skip
        except pa.ArrowException as exc:
            raise DataError(f"{self.name}: a value does not fit the type of its column: {exc}") from exc

    # ---- the connection

    def _run(self, query: Callable[[Any], T]) -> T:
        """Runs `query` on the connection. Raises DatabaseUnavailable if the connection is at fault."""
        import psycopg

        with self._lock:
            try:
                if self._connection is None:
                    self._connection = _connect(self._table)
                return query(self._connection)
            except (psycopg.OperationalError, psycopg.InterfaceError) as exc:
                self._drop()
                raise DatabaseUnavailable(_one_line(exc)) from exc
            except psycopg.Error as exc:
                self._drop()
                raise DataError(f"{self.name}: {_one_line(exc)}") from exc
            except BaseException:
                self._drop()
                raise

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def open_postgres(
    table: PostgresTable, columns: tuple[str, ...], key: Sequence[str], range_rows: int, directory: Path | None
) -> PostgresRows:
    """Opens a table. Raises DataError if it is missing or forbidden, and DatabaseUnavailable without an answer."""
    rows = PostgresRows(table)
    try:
        rows.scan_ranges(columns, key, range_rows, directory)
    except BaseException:
        rows.close()
        raise
    return rows


def _connect(table: PostgresTable) -> Any:
    try:
        import psycopg
    except ImportError as exc:
        raise DataError(f"{table}: reading it needs psycopg: {install_command('postgres')}") from exc
    password = read_secret(os.environ, "PGPASSWORD")
    params: dict[str, Any] = {"connect_timeout": _CONNECT_S, **_KEEPALIVE, **table.connection_params()}
    try:
        return psycopg.connect(**params, password=password, options=_SETTINGS, autocommit=True)
    except psycopg.OperationalError as exc:
        # A server that requires a password is available; a wrong or missing one will also be wrong the next time.
        if exc.pgconn is not None and (exc.pgconn.needs_password or exc.pgconn.used_password):
            raise DataError(
                f"{table}: the database refuses this user and password: {_one_line(exc)}; set PGPASSWORD, "
                f"PGPASSWORD_FILE or PGPASSFILE, on Kubernetes by a Secret with --env_secrets"
            ) from exc
        raise


def _column_expression(column: PostgresColumn) -> Any:
    from psycopg import sql

    name = sql.Identifier(column.name)
    if column.kind == "numeric":
        return sql.SQL("{}::float8").format(name)
    return sql.SQL("{}::text").format(name) if column.arrow_type == pa.string() else name


def _one_line(exc: Exception) -> str:
    return " ".join(str(exc).split())
