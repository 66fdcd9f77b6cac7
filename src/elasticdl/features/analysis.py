"""Computes the statistics of a data set in one pass over its files or table."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from elasticdl.data.tables import table_uri
from elasticdl.data.tables.table_uri import DuckdbTable, MaxComputeTable, PostgresTable
from elasticdl.errors import DataError
from elasticdl.features.sql import has_counter, input_files, summary
from elasticdl.features.sql.interface import AnalysisEngine, AnalysisOptions, AnalysisProgress, TableColumn
from elasticdl.features.statistics import ColumnKind, ColumnStatistics, Statistics


@dataclass(frozen=True, slots=True)
class AnalysisSource:
    """What to analyze, and with how much memory. `columns` and `delimiter` are for files only."""

    uri: str
    columns: tuple[str, ...] = ()
    delimiter: str | None = None
    memory: str = "512MB"
    temporary: Path | None = None  # where to spill; None: where the system keeps temporary files
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)


def ignore_progress(what: str, done: float) -> None:
    """Nobody watches."""


def analyze(
    source: AnalysisSource,
    question: AnalysisOptions,
    label: str | None = None,
    progress: AnalysisProgress = ignore_progress,
    label_values: Mapping[str, int] | None = None,
) -> Statistics:
    """The statistics of all columns. DataError where the data cannot be read, or the label is not 0 or 1.

    `label_values` says which texts of the label stand for 0 and 1.
    """
    with open_engine(source) as engine:
        columns = engine.columns()
        _check_columns(engine.name, columns, label)
        rows, found = summary.build_statistics(engine.summarize(columns, question, progress), columns, question)
        if rows == 0:
            raise DataError(f"{engine.name}: no rows; check that the path or table is the one meant")
        if label is not None:
            if label_values:
                _check_label_values(engine.name, label, found[label], label_values)
            else:
                _check_label(engine.name, label, found[label])
        return Statistics(source=engine.name, rows=rows, label=label, sampled=question.sample, columns=found)


@contextmanager
def open_engine(source: AnalysisSource) -> Iterator[AnalysisEngine]:
    """The engine for the source, closed at the end however it comes."""
    engine = _choose_engine(source)
    try:
        yield engine
    finally:
        engine.close()


def _choose_engine(source: AnalysisSource) -> AnalysisEngine:
    temporary = source.temporary
    if temporary is not None and not os.access(temporary, os.W_OK | os.X_OK):
        raise DataError(f"{temporary}: no directory, or none that can be written to; it is for temporary files")
    if not table_uri.is_table_uri(source.uri):
        from elasticdl.features.sql.duckdb_engine import DuckdbEngine

        found = input_files.find_input_files(source.uri, source.columns, source.delimiter)
        if isinstance(found, input_files.CsvFiles) and has_counter():  # else DuckDB reads it all
            from elasticdl.features.sql.csv_engine import CsvEngine

            return CsvEngine(found, source.uri, source.memory, temporary)
        if source.columns and isinstance(found, input_files.ParquetFiles):
            raise DataError(f"{source.uri}: Parquet files name their columns themselves; leave out --columns")
        return DuckdbEngine(found, source.uri, source.memory, temporary)
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
    twice = sorted({one for one in names if names.count(one) > 1})
    if twice:
        raise DataError(f"{name}: columns are there twice: {', '.join(twice)}; rename them")
    if label is not None and label not in names:
        from difflib import get_close_matches

        near = get_close_matches(label, names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names[:8])}"
        raise DataError(f"{name}: no column {label!r} for the label; {hint}")


def _check_label(name: str, label: str, found: ColumnStatistics) -> None:
    place = f"{name}: the label {label!r}"
    if found.missing:
        raise DataError(f"{place} is missing in {found.missing:,} rows; leave those rows out, they teach nothing")
    if found.kind is not ColumnKind.NUMBER or not found.is_whole or (found.minimum, found.maximum) not in _BINARY:
        shown = ", ".join(repr(value) for value in found.odd_examples or found.values[:5])
        low, high = found.minimum, found.maximum
        received = (
            f"values such as {shown}"
            if shown
            else f"numbers from {low:g} to {high:g}"
            if low is not None and high is not None
            else "others"
        )
        raise DataError(f"{place}: expected 0 and 1, received {received}{_mapping_hint(label, found)}")
    if found.distinct == 1:
        raise DataError(f"{place} is {found.minimum:g} in every row: nothing can be learned from it")


def _mapping_hint(label: str, found: ColumnStatistics) -> str:
    """For a label of two values: how ctr.yaml says what they stand for."""
    if len(found.values) != 2 or found.distinct != 2:
        return ""
    first, second = sorted(found.values, key=lambda value: (value.strip().lower() in _POSITIVE, value), reverse=True)
    values = f"{{{first!r}: 1, {second!r}: 0}}"
    return f"; say in ctr.yaml what they stand for: label: {{column: {label}, values: {values}}}"


def _check_label_values(name: str, label: str, found: ColumnStatistics, known: Mapping[str, int]) -> None:
    place = f"{name}: the label {label!r}"
    if found.missing:
        raise DataError(f"{place} is missing in {found.missing:,} rows; leave those rows out, they teach nothing")
    seen = [value.strip() for value in found.values]
    unknown = [value for value in seen if value not in known]
    if unknown:
        raise DataError(
            f"{place} has values such as {', '.join(map(repr, unknown[:5]))}, which label.values does not name; "
            f"it names {', '.join(map(repr, known))}"
        )
    if seen and found.distinct == len(seen) and len({known[value] for value in seen}) == 1:
        raise DataError(f"{place} is {known[seen[0]]} in every row: nothing can be learned from it")


_POSITIVE = ("yes", "true", "on", "y", "t", "1", "click", "clicked", "positive", "pos", "good")
_BINARY = ((0.0, 1.0), (0.0, 0.0), (1.0, 1.0))
