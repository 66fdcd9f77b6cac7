"""Computes the statistics of a data set in one pass over its files or table."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from elasticdl.data.tables import table_uri
from elasticdl.data.tables.table_uri import DuckdbTable, MaxComputeTable, PostgresTable
from elasticdl.errors import DataError
from elasticdl.features.sql import input_files, summary
from elasticdl.features.sql.interface import AnalysisEngine, AnalysisOptions, AnalysisProgress, TableColumn
from elasticdl.features.statistics import ColumnKind, ColumnStatistics, Statistics

NATIVE_CORE = "elasticdl.features._native"


@dataclass(frozen=True, slots=True)
class AnalysisSource:
    """The data to analyze and the memory for it. `columns` and `delimiter` are for files only."""

    uri: str
    columns: tuple[str, ...] = ()
    delimiter: str | None = None
    memory: str = "512MB"
    temporary: Path | None = None  # where to spill; None: where the system keeps temporary files
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)


def ignore_progress(activity: str, done: float) -> None:
    """A progress callback that does nothing."""


def analyze(
    source: AnalysisSource,
    options: AnalysisOptions,
    label: str | None = None,
    progress: AnalysisProgress = ignore_progress,
    label_values: Mapping[str, int] | None = None,
) -> Statistics:
    """Computes the statistics of all columns. Raises DataError if the data cannot be read or the label is not 0 or 1.

    `label_values` says which texts of the label stand for 0 and 1.
    """
    with open_engine(source) as engine:
        columns = engine.columns()
        _check_columns(engine.name, columns, label)
        rows, statistics = summary.build_statistics(engine.summarize(columns, options, progress), columns, options)
        if rows == 0:
            raise DataError(f"{engine.name}: no rows; check that the path or table is the right one")
        if label is not None:
            if label_values:
                _check_label_values(engine.name, label, statistics[label], label_values)
            else:
                _check_label(engine.name, label, statistics[label])
        return Statistics(
            source=engine.name, rows=rows, label=label, sample_fraction=options.sample, columns=statistics
        )


@contextmanager
def open_engine(source: AnalysisSource) -> Iterator[AnalysisEngine]:
    """Opens the engine for the source and closes it at the end."""
    engine = _choose_engine(source)
    try:
        yield engine
    finally:
        engine.close()


def _choose_engine(source: AnalysisSource) -> AnalysisEngine:
    temporary = source.temporary
    if temporary is not None and not os.access(temporary, os.W_OK | os.X_OK):
        raise DataError(f"{temporary}: not a directory for temporary files, or not writable")
    if not table_uri.is_table_uri(source.uri):
        from elasticdl.features.sql.duckdb_engine import DuckdbEngine

        files = input_files.find_input_files(source.uri, source.columns, source.delimiter)
        if isinstance(files, input_files.CsvFiles) and find_spec(NATIVE_CORE) is not None:  # else DuckDB reads it
            from elasticdl.features.sql.csv_engine import CsvEngine

            return CsvEngine(files, source.uri, source.memory, temporary)
        if source.columns and isinstance(files, input_files.ParquetFiles):
            raise DataError(f"{source.uri}: Parquet files name their columns themselves; leave out --columns")
        return DuckdbEngine(files, source.uri, source.memory, temporary)
    if source.columns or source.delimiter:
        raise DataError("--columns and --delimiter are for files; a table has names of its own")
    match table_uri.parse_table_uri(source.uri):
        case DuckdbTable() as table:
            from elasticdl.features.sql.duckdb_engine import DuckdbEngine

            return DuckdbEngine(table, str(table), source.memory, temporary)
        case PostgresTable() as table:
            from elasticdl.features.sql.postgres_engine import PostgresEngine

            return PostgresEngine(table, source.memory)
        case MaxComputeTable() as table:
            from elasticdl.features.sql.maxcompute_engine import MaxComputeEngine

            return MaxComputeEngine.connect(table, source.environ)


def _check_columns(name: str, columns: Sequence[TableColumn], label: str | None) -> None:
    names = [column.name for column in columns]
    if not names:
        raise DataError(f"{name}: no columns")
    duplicates = sorted({column for column in names if names.count(column) > 1})
    if duplicates:
        raise DataError(f"{name}: duplicate columns: {', '.join(duplicates)}; rename them")
    if label is not None and label not in names:
        from difflib import get_close_matches

        near = get_close_matches(label, names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names[:8])}"
        raise DataError(f"{name}: no column {label!r} for the label; {hint}")


def _check_label(name: str, label: str, column: ColumnStatistics) -> None:
    subject = f"{name}: the label {label!r}"
    if column.missing:
        raise DataError(
            f"{subject} is missing in {column.missing:,} rows; leave those rows out: nothing can be learned from them"
        )
    if column.kind is not ColumnKind.NUMBER or not column.is_integer or (column.minimum, column.maximum) not in _BINARY:
        shown = ", ".join(repr(value) for value in column.exception_examples or column.values[:5])
        low, high = column.minimum, column.maximum
        received = (
            f"values such as {shown}"
            if shown
            else f"numbers from {low:g} to {high:g}"
            if low is not None and high is not None
            else "others"
        )
        raise DataError(f"{subject}: expected 0 and 1, received {received}{_mapping_hint(label, column)}")
    if column.distinct == 1:
        raise DataError(f"{subject} is {column.minimum:g} in every row: nothing can be learned from it")


def _mapping_hint(label: str, column: ColumnStatistics) -> str:
    """Says how to map a label of two values in ctr.yaml."""
    if len(column.values) != 2 or column.distinct != 2:
        return ""
    first, second = sorted(column.values, key=lambda value: (value.strip().lower() in _POSITIVE, value), reverse=True)
    values = f"{{{first!r}: 1, {second!r}: 0}}"
    return f"; map them in ctr.yaml: label: {{column: {label}, values: {values}}}"


def _check_label_values(name: str, label: str, column: ColumnStatistics, label_values: Mapping[str, int]) -> None:
    subject = f"{name}: the label {label!r}"
    if column.missing:
        raise DataError(
            f"{subject} is missing in {column.missing:,} rows; leave those rows out: nothing can be learned from them"
        )
    seen = [value.strip() for value in column.values]
    unknown = [value for value in seen if value not in label_values]
    if unknown:
        raise DataError(
            f"{subject} has values such as {', '.join(map(repr, unknown[:5]))}, which label.values does not name; "
            f"it names {', '.join(map(repr, label_values))}"
        )
    if seen and column.distinct == len(seen) and len({label_values[value] for value in seen}) == 1:
        raise DataError(f"{subject} is {label_values[seen[0]]} in every row: nothing can be learned from it")


_POSITIVE = ("yes", "true", "on", "y", "t", "1", "click", "clicked", "positive", "pos", "good")
_BINARY = ((0.0, 1.0), (0.0, 0.0), (1.0, 1.0))
