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
from elasticdl.features.sql import _counter, csv_stream, queries
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
    """Bytes: 512MB is 512 millions, 512MiB is 512 times 2**20. DataError where it is no amount."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGT])(i?)B?\s*", memory, re.IGNORECASE)
    size = float(found[1]) * (1024 if found[3] else 1000) ** (1 + "KMGT".index(found[2].upper())) if found else 0
    if not found or size < 1:
        raise DataError(f"--memory: expected an amount such as 512MB or 4GB, received {memory!r}")
    return int(size)


_BLOCK_BYTES = 4 << 20
_ALL_ROWS = 1 << 62
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # of Unicode, before the first letter


def is_countable(source: CsvFiles) -> bool:
    """Whether the counter can split it: by one byte, and folders with values that are written as they are."""
    for folders in map(_folders, source.paths):
        if len(dict(folders)) < len(folders) or any("%" in value or value[:2] == "__" for _, value in folders):
            return False
    return len(source.delimiter.encode()) == 1 and source.delimiter not in '"\r\n\0'


def count_rows(
    counter: _counter.Counter, source: CsvFiles, most_rows: int | None, told: Callable[[float], None]
) -> None:
    """All rows, or the first ones. Irregular where it is not plain CSV, DataError where it cannot be read."""
    most = _ALL_ROWS if most_rows is None else most_rows
    total = sum(stored_file.find_file(path).size for path in source.paths) or 1
    added = [counter.add_column() for _ in csv_stream.partition_columns(source.paths)]
    block = np.empty(_BLOCK_BYTES + _counter.PADDING, np.uint8)
    before = 0
    for path in source.paths:
        start = counter.rows
        try:
            with stored_file.find_file(path).open() as raw, open_decompressed(path, raw) as text:
                for _ in _count_file(counter, text, block, source.has_header, most):
                    told((before + raw.tell()) / total)
        except (lzma.LZMAError, zlib.error, EOFError, OSError) as exc:
            raise DataError(f"{path}: {exc}") from exc
        for column, (_, value) in zip(added, _folders(path), strict=True):
            counter.add(column, value, counter.rows - start)
        before += stored_file.find_file(path).size


def _count_file(
    counter: _counter.Counter, text: IO[bytes], block: NDArray[np.uint8], has_header: bool, most: int
) -> Iterator[None]:
    """Of one file, until there are `most` rows; yields after each block."""
    view = block.data
    line = text.readline(_BLOCK_BYTES) if has_header else b""
    if line.count(b'"') % 2:
        raise _counter.Irregular("a header of several lines")
    kept = 0 if has_header else _skip_byte_order_mark(text, view)
    is_last = False
    while not is_last and counter.rows < most:
        end = kept + _fill_buffer(text, view[kept : _BLOCK_BYTES - 2])
        is_last = end < _BLOCK_BYTES - 2
        if is_last and end and view[end - 1] != ord("\n"):
            ending = b"\r\n" if counter.has_crlf or line.endswith(b"\r\n") else b"\n"
            view[end : end + len(ending)] = ending
            end += len(ending)
        following = counter.count(block, 0, end, most - counter.rows)
        kept = end - following
        view[:kept] = view[following:end]
        yield
    if kept and counter.rows < most:
        raise _counter.Irregular("a quote that is not closed")
    if counter.rows and line and line.endswith(b"\r\n") != counter.has_crlf:
        raise _counter.Irregular("lines end in two ways")


def _fill_buffer(text: IO[bytes], room: memoryview) -> int:
    """How many bytes were read: fewer than there is room for only at the end."""
    done = 0
    while done < len(room):
        got = text.readinto(room[done:])  # type: ignore[attr-defined]
        if not got:
            break
        done += got
    return done


def _skip_byte_order_mark(text: IO[bytes], view: memoryview) -> int:
    """The first bytes, unless they are the mark of Unicode."""
    found = _fill_buffer(text, view[: len(_BYTE_ORDER_MARK)])
    return 0 if bytes(view[:found]) == _BYTE_ORDER_MARK else found


def _folders(path: str) -> list[tuple[str, str]]:
    return re.findall(r"([^/=]+)=([^/]*)/", path)


_MEMORY_DIVISOR = 16
"""The memory for tables is one part of so many. With more there is less on disk, a little less to do, and a peak that
grows with the rows."""

_MAX_THREADS = 4
_READING_SHARE = 0.8
"""Of all the time, about that much goes into reading."""


class CsvEngine:
    """Of CSV files. `memory` as people write it: 512MB."""

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
        counter = self._counted(options, progress)
        if counter is None:
            yield from self._by_duckdb(columns, options, progress)
            return
        places = [self._source.columns.index(column.name) for column in columns if column.stored_name]
        folders = csv_stream.partition_columns(self._source.paths)
        places += range(len(self._source.columns), len(self._source.columns) + len(folders))
        asked = _counter.Question(
            least_count=options.min_count,
            most_values=options.max_values,
            separator=options.separator,
            steps=options.quantile_steps,
            most_fractions=queries.MAX_FRACTIONS,
            examples=queries.MAX_EXAMPLES,
        )
        counter.finish()
        pool = ThreadPoolExecutor(self._threads, thread_name_prefix="elasticdl-summary")
        try:
            found = pool.map(lambda place: counter.summarize(place, asked), places)
            for place, column in enumerate(columns):
                progress(f"summing up {column.name}", _READING_SHARE + (1 - _READING_SHARE) * place / len(columns))
                yield from summary_rows(place, counter.rows, next(found))
        except RuntimeError as exc:
            raise DataError(f"{self.name}: {exc}") from exc
        finally:
            counter.stop()
            pool.shutdown(cancel_futures=True)
        progress("done", 1.0)

    def close(self) -> None:
        """Nothing is open, and temporary files have no names."""

    def _counted(self, options: AnalysisOptions, progress: AnalysisProgress) -> _counter.Counter | None:
        """None where the native core does not count: a sample, or unusual CSV."""
        # A sample is DuckDB's: the same seed gives the same rows as ever.
        if options.sample < 1 or not options.separator or not is_countable(self._source):
            return None
        counter = _counter.Counter(
            columns=len(self._source.columns),
            wanted=[self._source.columns.index(name) for name in self._source.wanted or self._source.columns],
            delimiter=self._source.delimiter,
            memory_bytes=self._memory_bytes // _MEMORY_DIVISOR,
            threads=self._threads,
            directory=str(self._temporary or tempfile.gettempdir()),
        )
        try:
            count_rows(counter, self._source, options.max_rows, lambda done: progress("reading", _READING_SHARE * done))
        except _counter.Irregular:
            return None
        except RuntimeError as exc:
            raise DataError(f"{self.name}: {exc}") from exc
        return counter

    def _by_duckdb(
        self, columns: Sequence[TableColumn], options: AnalysisOptions, progress: AnalysisProgress
    ) -> Iterator[SummaryRow]:
        engine = DuckdbEngine(self._source, self.name, self._memory, self._temporary)
        try:
            yield from engine.summarize(columns, options, progress)
        finally:
            engine.close()


def summary_rows(place: int, rows: int, found: _counter.Summary) -> Iterator[SummaryRow | ColumnVocabulary]:
    """What is told of a column, as the SQL tells it."""
    yield (place, "rows", None, rows, None)
    counts = ("present", "kinds", "numbers", "dates", "fractions", "separated", "longest", "words", "frequent")
    for what in counts:
        yield (place, what, None, getattr(found, what), None)
    if found.has_range:
        for what in ("minimum", "maximum", "mean", "deviation"):
            yield (place, what, None, None, getattr(found, what))
    for reached, value in found.quantiles:
        yield (place, "quantile", None, reached, value)
    for odd, count in found.odd:
        yield (place, "odd", odd, count, None)
    yield ColumnVocabulary(place, PackedStrings(*found.values()), PackedCounts(found.counts()))
