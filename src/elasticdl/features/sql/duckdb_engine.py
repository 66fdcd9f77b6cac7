"""Analyzes files and DuckDB tables with DuckDB in this process, which bounds its memory and spills to disk.

CSV is read once, into a temporary file in columns that is deleted at the end. Parquet files and DuckDB tables are in
columns already: every column is read once from them.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from types import ModuleType
from typing import Any

from elasticdl.data.tables.table_uri import DuckdbTable
from elasticdl.errors import DataError
from elasticdl.extras import install_command
from elasticdl.features.sql import csv_stream, queries
from elasticdl.features.sql.dialects import DuckDbDialect
from elasticdl.features.sql.input_files import CsvFiles, ParquetFiles, compression_suffix, field_name
from elasticdl.features.sql.interface import AnalysisOptions, AnalysisProgress, ColumnForm, SummaryRow, TableColumn

_DIALECT = DuckDbDialect()
_POLL_S = 0.1
_FETCH_ROWS = 10_000
_READING_SHARE = 0.6
"""The share of reading CSV in the time of the whole analysis, roughly."""


class DuckdbEngine:
    """Analyzes files or a DuckDB table. `memory` is an amount such as 512MB."""

    def __init__(
        self, source: CsvFiles | ParquetFiles | DuckdbTable, name: str, memory: str, temporary: Path | None
    ) -> None:
        self.name = name
        self._source = source
        self._directory = Path(tempfile.mkdtemp(prefix="elasticdl-analyze-", dir=temporary))
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="elasticdl-duckdb")
        self._connection: Any = None
        try:
            self._connection = self._connect(memory)
            self._relation = self._open()
            self._confine()
        except BaseException:
            self.close()
            raise

    def columns(self) -> Sequence[TableColumn]:
        if isinstance(self._source, CsvFiles):
            return csv_stream.csv_table_columns(self._source)
        described = self._execute(f"DESCRIBE SELECT * FROM {self._relation}").fetchall()
        if isinstance(self._source, ParquetFiles):
            self._check_names([str(row[0]) for row in described], self._source)
        return [TableColumn(str(row[0]), column_form(str(row[1]))) for row in described]

    def _check_names(self, names: Sequence[str], source: ParquetFiles) -> None:
        """Raises DataError if DuckDB has renamed a column, which it does with `a` beside `A`."""
        from pyarrow import parquet

        original_names = {*parquet.read_schema(source.paths[0]).names, *csv_stream.partition_columns(source.paths)}
        renamed = [name for name in names if name not in original_names]
        if renamed:
            raise DataError(f"{self.name}: names of columns differ only in case (near {renamed[0]!r}); rename one")

    def summarize(
        self, columns: Sequence[TableColumn], options: AnalysisOptions, progress: AnalysisProgress
    ) -> Iterator[SummaryRow]:
        relation, start = self._relation, 0.0
        # A part is chosen once, so that every column is counted from the same rows.
        if isinstance(self._source, CsvFiles) or options.is_partial:
            relation, start = self._stage(columns, options, progress), _READING_SHARE
        self._execute("CREATE OR REPLACE TEMP TABLE counted (k INTEGER, v VARCHAR, n BIGINT)")
        for index, column in enumerate(columns):
            progress(f"counting {column.name}", start + (0.9 - start) * index / len(columns))
            self._run("INSERT INTO counted " + queries.count_column_query(relation, index, column, options, _DIALECT))
        progress("summing up", 0.9)
        result = self._run(queries.summary_query("counted", columns, options, _DIALECT))
        while rows := result.fetchmany(_FETCH_ROWS):
            yield from rows
        progress("done", 1.0)

    def close(self) -> None:
        """Interrupts a running query, closes the database and deletes temporary files."""
        connection = self._connection
        if connection is not None:
            connection.interrupt()
        self._thread.shutdown()
        if connection is not None:
            connection.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _connect(self, memory: str) -> Any:
        duckdb = _duckdb()
        # The staged columns are in a file, not in memory: DuckDB compresses them there.
        connection = duckdb.connect(str(self._directory / "staged.db"))
        try:
            connection.execute("SET memory_limit = " + _DIALECT.literal(memory))
        except duckdb.Error as exc:
            connection.close()
            raise DataError(f"--memory: expected an amount such as 512MB or 4GB, received {memory!r}") from exc
        settings = {"temp_directory": str(self._directory / "spilled"), "TimeZone": "UTC"}
        for setting, value in settings.items():
            connection.execute(f"SET {setting} = {_DIALECT.literal(value)}")
        switches = {"preserve_insertion_order": False, "enable_progress_bar": True, "enable_progress_bar_print": False}
        # A database file that is attached must not load extensions.
        switches |= {"autoinstall_known_extensions": False, "autoload_known_extensions": False}
        for switch, state in switches.items():
            connection.execute(f"SET {switch} = {str(state).lower()}")
        connection.execute(f"SET threads = {min(len(os.sched_getaffinity(0)), 4)}")
        return connection

    def _open(self) -> str:
        """Returns the SQL that stands after FROM."""
        match self._source:
            case CsvFiles():
                return "staged"
            case ParquetFiles(paths):
                listed = ", ".join(_DIALECT.literal(path) for path in paths)
                return f"read_parquet([{listed}], hive_partitioning = true, hive_types_autocast = false)"
            case DuckdbTable(path, table, schema):
                if not Path(path).is_file():
                    raise DataError(f"{path}: no such DuckDB file")
                self._execute(f"ATTACH {_DIALECT.literal(path)} AS source_database (READ_ONLY)")
                return f"source_database.{_DIALECT.identifier(schema)}.{_DIALECT.identifier(table)}"

    def _confine(self) -> None:
        """Restricts DuckDB to the files of the source; SQL cannot undo it.

        A view or macro in a foreign database could otherwise read any file or address.
        """
        paths = self._source.paths if not isinstance(self._source, DuckdbTable) else ()  # a table is attached already
        allowed = ", ".join(_DIALECT.literal(path) for path in paths)
        self._execute(f"SET allowed_paths = [{allowed}]")
        self._execute("SET enable_external_access = false")

    def _stage(self, columns: Sequence[TableColumn], options: AnalysisOptions, progress: AnalysisProgress) -> str:
        def report_progress(done: float) -> None:
            progress("reading", _READING_SHARE * min(done, 1.0))

        if options.max_rows is not None:  # otherwise the first rows are arbitrary
            self._execute("SET preserve_insertion_order = true")
        selected = ", ".join(_DIALECT.identifier(column.engine_name) for column in columns)
        relation, source, read = self._relation, self._source, None
        if isinstance(source, CsvFiles):
            # DuckDB reads .gz itself; other compressed files are decompressed here, block by block.
            if all(compression_suffix(path).lower() in ("", ".gz") for path in source.paths):
                relation = _read_csv(source)
            else:
                relation, read = "streamed", csv_stream.open_csv_stream(source, report_progress)
                self._connection.register(relation, read)
        part = queries.sampled_relation(relation, options, _DIALECT)
        try:
            self._run(
                f"CREATE OR REPLACE TEMP TABLE staged AS SELECT {selected} FROM {part}",
                None if read else report_progress,
            )
        finally:
            if read is not None:
                self._connection.unregister("streamed")
        return "staged"

    def _run(self, statement: str, report_progress: Any = None) -> Any:
        """Runs a statement in a thread, so that Ctrl-C acts at once and progress is reported."""
        running: Future[Any] = self._thread.submit(self._execute, statement)
        try:
            while not wait([running], timeout=_POLL_S).done:
                if report_progress is not None:
                    report_progress(max(self._connection.query_progress(), 0.0) / 100)
        except BaseException:
            self._connection.interrupt()
            raise
        return running.result()

    def _execute(self, statement: str) -> Any:
        duckdb = _duckdb()
        try:
            return self._connection.execute(statement)
        except duckdb.OutOfMemoryException as exc:
            raise DataError(f"{self.name}: the analysis needs more memory than it may use; raise --memory") from exc
        except duckdb.Error as exc:
            fix = "; correct or remove the line, or set another --delimiter" if "CSV Error" in str(exc) else ""
            raise DataError(f"{self.name}: {_shorten_message(str(exc))}{fix}") from exc


def column_form(declared: str) -> ColumnForm:
    """Returns the form of columns of a type, which is spelled as by DuckDB."""
    name = declared.upper()
    if name.endswith("]"):
        return ColumnForm.LIST
    if re.fullmatch(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?", name):
        return ColumnForm.WHOLE
    if name in ("FLOAT", "DOUBLE") or name.startswith("DECIMAL"):
        return ColumnForm.REAL
    if name == "BOOLEAN":
        return ColumnForm.TRUTH
    if name == "TIMESTAMP WITH TIME ZONE":
        return ColumnForm.ZONED
    return ColumnForm.DATE if name == "DATE" or name.startswith("TIMESTAMP") else ColumnForm.TEXT


def _read_csv(source: CsvFiles) -> str:
    listed = ", ".join(_DIALECT.literal(path) for path in source.paths)
    columns = ", ".join(f"{_DIALECT.literal(field_name(index))}: 'VARCHAR'" for index in range(len(source.columns)))
    options = {
        "auto_detect": "false",
        "columns": f"{{{columns}}}",
        "delim": _DIALECT.literal(source.delimiter),
        "header": str(source.has_header).lower(),
        "quote": "'\"'",
        "escape": "'\"'",
        "nullstr": "''",
        "hive_partitioning": str(bool(csv_stream.partition_columns(source.paths))).lower(),
        "hive_types_autocast": "false",
    }
    return f"read_csv([{listed}], {', '.join(f'{name} = {value}' for name, value in options.items())})"


def _shorten_message(message: str) -> str:
    """Returns a message of DuckDB as one line, without its hints at options of DuckDB."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    sentences = [line for line in lines[:4] if not line.startswith(("Possible", "LINE", "*"))]
    return re.sub(r"^\w[\w ]* Error: ", "", " ".join(sentences))


def _duckdb() -> ModuleType:
    try:
        import duckdb
    except ImportError as exc:
        raise DataError(f"analysis needs DuckDB: {install_command('features')}") from exc
    return duckdb
