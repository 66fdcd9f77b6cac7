"""Analyzes CSV files by the native counter while they are read once, in blocks; unusual CSV goes to DuckDB."""

from __future__ import annotations

import lzma
import os
import re
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from elasticdl.data.files import stored_file
from elasticdl.errors import DataError
from elasticdl.features import _native
from elasticdl.features.sql import csv_stream, queries
from elasticdl.features.sql.duckdb_engine import DuckdbEngine
from elasticdl.features.sql.input_files import CsvFiles, open_decompressed
from elasticdl.features.sql.interface import (
    AnalysisOptions,
    AnalysisProgress,
    ColumnVocabulary,
    SummaryRow,
    TableColumn,
)
from elasticdl.features.vocabulary import PackedCounts, PackedStrings


def parse_memory_size(memory: str) -> int:
    """Returns bytes: 512MB is 512 million, 512MiB is 512 times 2**20. DataError if `memory` is not an amount."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGT])(i?)B?\s*", memory, re.IGNORECASE)
    size = float(match[1]) * (1024 if match[3] else 1000) ** (1 + "KMGT".index(match[2].upper())) if match else 0
    if size < 1:
        raise DataError(f"--memory: expected an amount such as 512MB or 4GB, received {memory!r}")
    return int(size)


_BLOCK_BYTES = 4 << 20
_ALL_ROWS = 1 << 62
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # may stand before the first letter of UTF-8


def is_countable(source: CsvFiles) -> bool:
    """Whether the native counter can read it: one byte as delimiter, and plain values in the names of folders."""
    for folders in map(_folders, source.paths):
        if len(dict(folders)) < len(folders) or any("%" in value or value[:2] == "__" for _, value in folders):
            return False
    return len(source.delimiter.encode()) == 1 and source.delimiter not in '"\r\n\0'


def count_rows(
    counter: _native.Counter, source: CsvFiles, max_rows: int | None, report_progress: Callable[[float], None]
) -> None:
    """Counts all rows, or the first `max_rows`. Irregular if a file is not plain CSV, DataError if it is unreadable."""
    limit = _ALL_ROWS if max_rows is None else max_rows
    total = sum(stored_file.find_file(path).size for path in source.paths) or 1
    added = [counter.add_column() for _ in csv_stream.partition_columns(source.paths)]
    block = np.empty(_BLOCK_BYTES + _native.PADDING, np.uint8)
    before = 0
    for path in source.paths:
        start = counter.rows
        try:
            with stored_file.find_file(path).open() as raw, open_decompressed(path, raw) as text:
                for _ in _count_file(counter, text, block, source.has_header, limit):
                    report_progress((before + raw.tell()) / total)
        except (lzma.LZMAError, zlib.error, EOFError, OSError) as exc:
            raise DataError(f"{path}: {exc}") from exc
        for column, (_, value) in zip(added, _folders(path), strict=True):
            counter.add(column, value, counter.rows - start)
        before += stored_file.find_file(path).size


def _count_file(
    counter: _native.Counter, text: IO[bytes], block: NDArray[np.uint8], has_header: bool, max_rows: int
) -> Iterator[None]:
    """Counts one file until the counter has `max_rows` rows. Yields after each block."""
    view = block.data
    line = text.readline(_BLOCK_BYTES) if has_header else b""
    if line.count(b'"') % 2:
        raise _native.Irregular("a header of several lines")
    pending = 0 if has_header else _skip_byte_order_mark(text, view)  # bytes that are not counted yet
    is_last = False
    while not is_last and counter.rows < max_rows:
        end = pending + _fill_buffer(text, view[pending : _BLOCK_BYTES - 2])
        is_last = end < _BLOCK_BYTES - 2
        if is_last and end and view[end - 1] != ord("\n"):
            ending = b"\r\n" if counter.has_crlf or line.endswith(b"\r\n") else b"\n"
            view[end : end + len(ending)] = ending
            end += len(ending)
        following = counter.count(block, 0, end, max_rows - counter.rows)
        pending = end - following
        view[:pending] = view[following:end]
        yield
    if pending and counter.rows < max_rows:
        raise _native.Irregular("a quote that is not closed")
    if counter.rows and line and line.endswith(b"\r\n") != counter.has_crlf:
        raise _native.Irregular("lines end in two ways")


def _fill_buffer(text: IO[bytes], room: memoryview) -> int:
    """Reads until `room` is full or the file ends. Returns the number of bytes."""
    filled = 0
    while filled < len(room):
        count = text.readinto(room[filled:])  # type: ignore[attr-defined]
        if not count:
            break
        filled += count
    return filled


def _skip_byte_order_mark(text: IO[bytes], view: memoryview) -> int:
    """Reads the first bytes and returns how many of them are data: none if they are the byte order mark."""
    size = _fill_buffer(text, view[: len(_BYTE_ORDER_MARK)])
    return 0 if bytes(view[:size]) == _BYTE_ORDER_MARK else size


def _folders(path: str) -> list[tuple[str, str]]:
    return re.findall(r"([^/=]+)=([^/]*)/", path)


_MEMORY_DIVISOR = 16
"""The tables get this fraction of the memory. A larger share puts less on disk and saves a little time, but the peak
then grows with the rows."""

_MAX_THREADS = 4
_READING_SHARE = 0.8
"""The share of reading in the time of the whole analysis, roughly."""


class CsvEngine:
    """Analyzes CSV files. `memory` is an amount such as 512MB."""

    def __init__(self, source: CsvFiles, name: str, memory: str, temporary: Path | None) -> None:
        self.name = name
        self._source = source
        self._memory = memory
        self._memory_bytes = parse_memory_size(memory)
        self._temporary = temporary
        self._threads = min(len(os.sched_getaffinity(0)), _MAX_THREADS)

    def columns(self) -> Sequence[TableColumn]:
        return csv_stream.csv_table_columns(self._source)

    def summarize(
        self, columns: Sequence[TableColumn], options: AnalysisOptions, progress: AnalysisProgress
    ) -> Iterator[SummaryRow | ColumnVocabulary]:
        counter = self._count(options, progress)
        if counter is None:
            yield from self._summarize_by_duckdb(columns, options, progress)
            return
        indices = [self._source.columns.index(column.name) for column in columns if column.stored_name]
        folders = csv_stream.partition_columns(self._source.paths)
        indices += range(len(self._source.columns), len(self._source.columns) + len(folders))
        question = _native.Question(
            min_count=options.min_count,
            max_values=options.max_values,
            separator=options.separator,
            steps=options.quantile_steps,
            max_fractions=queries.MAX_FRACTIONS,
            examples=queries.MAX_EXAMPLES,
        )
        counter.finish()
        pool = ThreadPoolExecutor(self._threads, thread_name_prefix="elasticdl-summary")
        try:
            summaries = pool.map(lambda index: counter.summarize(index, question), indices)
            for index, column in enumerate(columns):
                progress(f"summing up {column.name}", _READING_SHARE + (1 - _READING_SHARE) * index / len(columns))
                yield from summary_rows(index, counter.rows, next(summaries))
        except RuntimeError as exc:
            raise DataError(f"{self.name}: {exc}") from exc
        finally:
            counter.stop()
            pool.shutdown(cancel_futures=True)
        progress("done", 1.0)

    def close(self) -> None:
        """Does nothing: no file is open, and temporary files have no names."""

    def _count(self, options: AnalysisOptions, progress: AnalysisProgress) -> _native.Counter | None:
        """Counts all values. Returns None for what is left to DuckDB: a sample, or unusual CSV."""
        # DuckDB draws samples, so that a seed always means the same rows.
        if options.sample < 1 or not options.separator or not is_countable(self._source):
            return None
        counter = _native.Counter(
            columns=len(self._source.columns),
            selected=[self._source.columns.index(name) for name in self._source.selected or self._source.columns],
            delimiter=self._source.delimiter,
            memory_bytes=self._memory_bytes // _MEMORY_DIVISOR,
            threads=self._threads,
            directory=str(self._temporary or tempfile.gettempdir()),
        )
        try:
            count_rows(counter, self._source, options.max_rows, lambda done: progress("reading", _READING_SHARE * done))
        except _native.Irregular:
            return None
        except RuntimeError as exc:
            raise DataError(f"{self.name}: {exc}") from exc
        return counter

    def _summarize_by_duckdb(
        self, columns: Sequence[TableColumn], options: AnalysisOptions, progress: AnalysisProgress
    ) -> Iterator[SummaryRow]:
        engine = DuckdbEngine(self._source, self.name, self._memory, self._temporary)
        try:
            yield from engine.summarize(columns, options, progress)
        finally:
            engine.close()


def summary_rows(column: int, rows: int, summary: _native.Summary) -> Iterator[SummaryRow | ColumnVocabulary]:
    """Yields the summary of a column as the rows of `queries.summary_query`."""
    yield (column, "rows", None, rows, None)
    counts = ("present", "kinds", "numbers", "dates", "fractions", "separated", "longest", "words", "frequent")
    for key in counts:
        yield (column, key, None, getattr(summary, key), None)
    if summary.has_range:
        for key in ("minimum", "maximum", "mean", "deviation"):
            yield (column, key, None, None, getattr(summary, key))
    for reached, value in summary.quantiles:
        yield (column, "quantile", None, reached, value)
    for odd, count in summary.odd:
        yield (column, "odd", odd, count, None)
    yield ColumnVocabulary(column, PackedStrings(*summary.values()), PackedCounts(summary.counts()))
