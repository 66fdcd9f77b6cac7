"""CSV files, counted by the native core while they are read. What it does not take for plain CSV, DuckDB reads.

The file is read once, a block at a time, and nothing of it is kept but how often each value is there. Tables of counts
have a sixteenth of the memory; the largest go to disk, sorted, when all are larger, and are merged at the end.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from elasticdl.errors import DataError
from elasticdl.features.sql import _counter, blocks, generate, memory_size, stream
from elasticdl.features.sql.duckdb_engine import DuckdbEngine
from elasticdl.features.sql.files import CsvFiles
from elasticdl.features.sql.interface import Column, Progress, Question, Row, Vocabulary
from elasticdl.features.values import Counts, Values

_SHARE = 16
"""The memory for tables is one part of so many. With more there is less on disk, a little less to do, and a peak that
grows with the rows."""

_MOST_THREADS = 4
_READING = 0.8
"""Of all the time, about that much goes into reading."""


class CsvEngine:
    """Of CSV files. `memory` as people write it: 512MB."""

    def __init__(self, source: CsvFiles, name: str, memory: str, temporary: Path | None) -> None:
        self.name = name
        self._source = source
        self._memory = memory
        self._memory_bytes = memory_size.parse(memory)
        self._temporary = temporary
        self._threads = min(len(os.sched_getaffinity(0)), _MOST_THREADS)

    def columns(self) -> Sequence[Column]:
        return stream.columns(self._source)

    def summarize(
        self, columns: Sequence[Column], question: Question, progress: Progress
    ) -> Iterator[Row | Vocabulary]:
        counter = self._counted(question, progress)
        if counter is None:
            yield from self._by_duckdb(columns, question, progress)
            return
        places = [self._source.columns.index(column.name) for column in columns if column.stored]
        folders = stream.partitions(self._source.paths)
        places += range(len(self._source.columns), len(self._source.columns) + len(folders))
        asked = _counter.Question(
            least_count=question.least_count,
            most_values=question.most_values,
            separator=question.separator,
            steps=question.steps,
            most_fractions=generate.MOST_FRACTIONS,
            examples=generate.EXAMPLES,
        )
        counter.finish()
        pool = ThreadPoolExecutor(self._threads, thread_name_prefix="elasticdl-summary")
        try:
            found = pool.map(lambda place: counter.summarize(place, asked), places)
            for place, column in enumerate(columns):
                progress(f"summing up {column.name}", _READING + (1 - _READING) * place / len(columns))
                yield from rows_of(place, counter.rows, next(found))
        except RuntimeError as exc:
            raise DataError(f"{self.name}: {exc}") from exc
        finally:
            counter.stop()
            pool.shutdown(cancel_futures=True)
        progress("done", 1.0)

    def close(self) -> None:
        """Nothing is open, and temporary files have no names."""

    def _counted(self, question: Question, progress: Progress) -> _counter.Counter | None:
        """None where the native core does not count: a sample, or unusual CSV."""
        # A sample is DuckDB's: the same seed gives the same rows as ever.
        if question.sample < 1 or not question.separator or not blocks.is_simple(self._source):
            return None
        counter = _counter.Counter(
            columns=len(self._source.columns),
            wanted=[self._source.columns.index(name) for name in self._source.wanted or self._source.columns],
            delimiter=self._source.delimiter,
            memory_bytes=self._memory_bytes // _SHARE,
            threads=self._threads,
            directory=str(self._temporary or tempfile.gettempdir()),
        )
        try:
            blocks.count(counter, self._source, question.most_rows, lambda done: progress("reading", _READING * done))
        except _counter.Irregular:
            return None
        except RuntimeError as exc:
            raise DataError(f"{self.name}: {exc}") from exc
        return counter

    def _by_duckdb(self, columns: Sequence[Column], question: Question, progress: Progress) -> Iterator[Row]:
        engine = DuckdbEngine(self._source, self.name, self._memory, self._temporary)
        try:
            yield from engine.summarize(columns, question, progress)
        finally:
            engine.close()


def rows_of(place: int, rows: int, found: _counter.Summary) -> Iterator[Row | Vocabulary]:
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
    yield Vocabulary(place, Values(*found.values()), Counts(found.counts()))
