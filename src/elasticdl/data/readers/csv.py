"""Reads CSV files: a record is a dict from column to text."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from elasticdl.data.column_names import format_names, resolve_columns
from elasticdl.data.files.offset_index import OffsetIndex, load_or_build_index
from elasticdl.data.files.stored_file import StoredFile
from elasticdl.data.files.unpack import uncompressed_name
from elasticdl.data.interface import Indices, ProgressCallback, Record, Schema, check_indices
from elasticdl.data.readers import lines
from elasticdl.errors import BadRecord, DataError

# The csv module limits fields to 128 KiB, for endless streams. Here the index bounds a record, and the text of
# one document is often longer.
csv.field_size_limit(sys.maxsize)


@dataclass(frozen=True, slots=True)
class CsvSource:
    """One CSV file, opened by `open_csv`."""

    file: StoredFile
    index: OffsetIndex
    delimiter: str
    fields: tuple[str, ...]  # all fields of the file
    columns: tuple[str, ...]  # the fields that are read
    header_lines: int
    can_read_ahead: bool = True

    @property
    def name(self) -> str:
        return self.file.path

    def __len__(self) -> int:
        return self.index.records - self.header_lines

    def read(self, indices: Indices) -> list[Record]:
        distinct, back = np.unique(check_indices(indices, len(self), self.name), return_inverse=True)
        rows = self._read_rows(distinct)
        if self.columns == self.fields:
            return [dict(zip(self.columns, rows[index], strict=True)) for index in back.tolist()]
        select = self._selection()
        return [dict(zip(self.columns, select(rows[index]), strict=True)) for index in back.tolist()]

    def read_columns(self, indices: Indices, schema: Schema) -> Any:
        import pyarrow as pa  # imported here because it takes a fifth of a second

        from elasticdl.data import columns

        indices = check_indices(indices, len(self), self.name)
        data = self._read_lines(indices)
        if _has_bare_carriage_return(data):
            self._read_rows(np.unique(indices))  # raises if it is outside of quotes
        field_indices = [self.fields.index(column) for column in self.columns]
        parse_lines = partial(columns.parse_csv, data, self.delimiter, len(self.fields), field_indices, self.columns)
        reason = "Arrow splits records differently from Python's csv module"
        try:
            batch = parse_lines(schema)
        except pa.ArrowException as exc:
            batch, reason = None, str(exc)
        if batch is not None and batch.num_rows == len(indices):
            return batch
        self._read_rows(np.unique(indices))  # raises for lines that are no records
        text = parse_lines({})
        for name, array in zip(self.columns, text.columns, strict=True):
            if name in schema:
                columns.check_values(self, name, array, indices, schema[name])
        raise DataError(f"{self.name}: cannot be read as columns of the types {dict(schema)}: {reason}")

    def locate(self, index: int) -> str:
        starts, _ = self.index.byte_ranges(np.array([index + self.header_lines]))
        return f"{self.name}, line {self.file.line_number(int(starts[0]))}"

    def close(self) -> None:
        """Nothing is open."""

    def _read_rows(self, distinct: Indices) -> list[list[str]]:
        """Reads the fields of sorted, distinct records; neighbours are read together."""
        if not len(distinct):
            return []
        starts, stops = self.index.byte_ranges(distinct + self.header_lines)
        breaks = np.flatnonzero(np.diff(distinct) != 1)
        chunks = self.file.read_ranges(starts[np.r_[0, breaks + 1]], stops[np.r_[breaks, len(distinct) - 1]])
        content = b"".join(chunks)
        try:
            rows = [] if _has_bare_carriage_return(content) else parse_rows(content.decode(), self.delimiter)
        except (UnicodeDecodeError, csv.Error):
            rows = []
        if len(rows) != len(distinct) or any(len(row) != len(self.fields) for row in rows):
            return self._read_rows_singly(distinct, starts, stops)
        return rows

    def _read_lines(self, indices: Indices) -> bytes:
        """Reads the bytes of records in this order, each with a newline at its end."""
        if not len(indices):
            return b""
        starts, stops = self.index.byte_ranges(indices + self.header_lines)
        breaks = np.flatnonzero(np.diff(indices) != 1)
        firsts, lasts = np.r_[0, breaks + 1], np.r_[breaks, len(indices) - 1]
        chunks = self.file.read_ranges(starts[firsts], stops[lasts])
        for index in np.flatnonzero(indices[lasts] == len(self) - 1).tolist():
            if not chunks[index].endswith(b"\n"):  # only the last line of a file may lack a newline
                chunks[index] += b"\n"
        return b"".join(chunks)

    def _read_rows_singly(self, distinct: Indices, starts: Indices, stops: Indices) -> list[list[str]]:
        """Reads each record by itself, so that an error names it."""
        all_rows = []
        for index, chunk in zip(distinct.tolist(), self.file.read_ranges(starts, stops), strict=True):
            try:
                rows = parse_rows(chunk.decode(), self.delimiter)
            except UnicodeDecodeError as exc:
                offset = int(starts[distinct.searchsorted(index)]) + exc.start
                raise BadRecord(
                    f"{self.locate(index)}, byte {offset}: not UTF-8 ({exc.reason}); convert the file"
                ) from exc
            except csv.Error as exc:
                raise BadRecord(f"{self.locate(index)}: not a CSV record: {exc}") from exc
            if len(rows) != 1:
                raise BadRecord(
                    f"{self.locate(index)}: a carriage return inside a record; end lines with \\n or \\r\\n"
                )
            if len(rows[0]) != len(self.fields):
                raise BadRecord(
                    f"{self.locate(index)}: expected {len(self.fields)} fields ({format_names(self.fields)}), "
                    f"got {len(rows[0])}; correct or remove the line, or quote fields with {self.delimiter!r} in them"
                )
            all_rows += rows
        return all_rows

    def _selection(self) -> Callable[[list[str]], tuple[str, ...]]:
        field_indices = [self.fields.index(column) for column in self.columns]
        if len(field_indices) == 1:
            return lambda row: (row[field_indices[0]],)
        select: Any = itemgetter(*field_indices)
        return select  # type: ignore[no-any-return]


def open_csv(
    file: StoredFile,
    columns: tuple[str, ...] = (),
    index_directory: Path | None = None,
    progress: ProgressCallback | None = None,
    delimiter: str = "",
    *,
    tolerates_bad: bool = False,
) -> CsvSource:
    """Indexes the file, finds its columns, and reads its first and last record. `delimiter` "": by its name."""
    delimiter = delimiter or detect_delimiter(file)

    kind = {",": "csv", "\t": "tsv"}.get(delimiter, f"csv-{ord(delimiter):02x}")
    try:
        index = load_or_build_index(
            file,
            kind,
            lambda: lines.find_record_starts(file.blocks(progress=progress), delimiter.encode()),
            index_directory,
        )
    except lines.UnclosedQuoteError as exc:
        raise DataError(
            f'{file.path}, line {file.line_number(exc.offset)}: a quote (") is opened in this record and never closed; '
            f"the file is truncated, or the quote should be doubled"
        ) from exc
    if index.records == 0:
        raise DataError(f"{file.path}: the file has only empty lines; remove it or leave it out of the data path")
    starts, stops = index.byte_ranges(np.array([0]))
    first = _first_line(file, file.read_ranges(starts, stops)[0], delimiter)
    fields, selected, header_lines = resolve_columns(file.path, first, columns)
    source = CsvSource(file, index, delimiter, fields, selected, header_lines)
    # They show whether the file is truncated inside a line, or has other columns than its header says.
    try:
        source.read(np.unique([0, len(source) - 1]) if len(source) else np.array([], dtype=np.int64))
    except BadRecord:
        if not tolerates_bad:
            raise
    return source


def detect_delimiter(file: StoredFile) -> str:
    """Returns a comma for .csv, a tab for .tsv, and otherwise a tab if the first line has one, else a comma."""
    extension = PurePosixPath(uncompressed_name(file.path)).suffix.lower()
    if extension in (".csv", ".tsv"):
        return "," if extension == ".csv" else "\t"
    head = next(file.blocks(1 << 16))
    return "\t" if b"\t" in head.split(b"\n", 1)[0] else ","


def _has_bare_carriage_return(content: bytes) -> bool:
    """Whether there is a carriage return without a newline, which outside of quotes would split a record."""
    return content.count(b"\r") != content.count(b"\r\n")


def parse_rows(text: str, delimiter: str) -> list[list[str]]:
    """Returns the rows of `text`, without empty ones."""
    return [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if row]


def _first_line(file: StoredFile, chunk: bytes, delimiter: str) -> list[str]:
    try:
        rows = parse_rows(chunk.decode(), delimiter)
    except (UnicodeDecodeError, csv.Error) as exc:
        raise DataError(f"{file.path}, line 1: not a CSV file in UTF-8: {exc}") from exc
    if len(rows) != 1:
        raise DataError(f"{file.path}, line 1: a carriage return inside a record; end lines with \\n or \\r\\n")
    return rows[0]
