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

# The module's limit of 128 KiB a field guards readers of endless streams; ours are bounded by the index,
# and the text of one document is often longer.
csv.field_size_limit(sys.maxsize)


@dataclass(frozen=True, slots=True)
class CsvSource:
    """One CSV file, opened by `open_csv`."""

    file: StoredFile
    index: OffsetIndex
    delimiter: str
    fields: tuple[str, ...]  # all of the file's
    columns: tuple[str, ...]  # those that are read
    header_lines: int
    can_read_ahead: bool = True

    @property
    def name(self) -> str:
        return self.file.path

    def __len__(self) -> int:
        return self.index.records - self.header_lines

    def read(self, indices: Indices) -> list[Record]:
        wanted, back = np.unique(check_indices(indices, len(self), self.name), return_inverse=True)
        rows = self._rows(wanted)
        if self.columns == self.fields:
            return [dict(zip(self.columns, rows[at], strict=True)) for at in back.tolist()]
        select = self._selection()
        return [dict(zip(self.columns, select(rows[at]), strict=True)) for at in back.tolist()]

    def read_columns(self, indices: Indices, schema: Schema) -> Any:
        import pyarrow as pa  # takes a fifth of a second: only those who read columns wait for it

        from elasticdl.data import columns

        indices = check_indices(indices, len(self), self.name)
        data = self._lines(indices)
        if _has_bare_carriage_return(data):
            self._rows(np.unique(indices))  # refused outside of quotes
        places = [self.fields.index(column) for column in self.columns]
        parse_lines = partial(columns.parse_csv, data, self.delimiter, len(self.fields), places, self.columns)
        reason = "other lines are records to Arrow than to Python's csv module"
        try:
            batch = parse_lines(schema)
        except pa.ArrowException as exc:
            batch, reason = None, str(exc)
        if batch is not None and batch.num_rows == len(indices):
            return batch
        self._rows(np.unique(indices))  # tells of lines that are no records
        text = parse_lines({})
        for name, array in zip(self.columns, text.columns, strict=True):
            if name in schema:
                columns.check_values(self, name, array, indices, schema[name])
        raise DataError(f"{self.name}: cannot be read as columns of the types {dict(schema)}: {reason}")

    def locate(self, index: int) -> str:
        starts, _ = self.index.byte_ranges(np.array([index + self.header_lines]))
        return f"{self.name}, line {self.file.line_number(int(starts[0]))}"

    def close(self) -> None:
        """Nothing is held."""

    def _rows(self, wanted: Indices) -> list[list[str]]:
        """The fields of each record; `wanted` is sorted, each once, so that neighbours are read together."""
        if not len(wanted):
            return []
        starts, stops = self.index.byte_ranges(wanted + self.header_lines)
        breaks = np.flatnonzero(np.diff(wanted) != 1)
        chunks = self.file.read_ranges(starts[np.r_[0, breaks + 1]], stops[np.r_[breaks, len(wanted) - 1]])
        content = b"".join(chunks)
        try:
            rows = [] if _has_bare_carriage_return(content) else parse_rows(content.decode(), self.delimiter)
        except (UnicodeDecodeError, csv.Error):
            rows = []
        if len(rows) != len(wanted) or any(len(row) != len(self.fields) for row in rows):
            return self._rows_alone(wanted, starts, stops)
        return rows

    def _lines(self, indices: Indices) -> bytes:
        """The bytes of the records in this order, each with a newline at its end."""
        if not len(indices):
            return b""
        starts, stops = self.index.byte_ranges(indices + self.header_lines)
        breaks = np.flatnonzero(np.diff(indices) != 1)
        firsts, lasts = np.r_[0, breaks + 1], np.r_[breaks, len(indices) - 1]
        chunks = self.file.read_ranges(starts[firsts], stops[lasts])
        for at in np.flatnonzero(indices[lasts] == len(self) - 1).tolist():
            if not chunks[at].endswith(b"\n"):  # only the last line of a file may lack it
                chunks[at] += b"\n"
        return b"".join(chunks)

    def _rows_alone(self, wanted: Indices, starts: Indices, stops: Indices) -> list[list[str]]:
        """Each record by itself, so that one that is none is named."""
        found = []
        for index, chunk in zip(wanted.tolist(), self.file.read_ranges(starts, stops), strict=True):
            try:
                rows = parse_rows(chunk.decode(), self.delimiter)
            except UnicodeDecodeError as exc:
                at = int(starts[wanted.searchsorted(index)]) + exc.start
                raise BadRecord(f"{self.locate(index)}, byte {at}: not UTF-8 ({exc.reason}); convert the file") from exc
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
            found += rows
        return found

    def _selection(self) -> Callable[[list[str]], tuple[str, ...]]:
        places = [self.fields.index(column) for column in self.columns]
        if len(places) == 1:
            return lambda row: (row[places[0]],)
        select: Any = itemgetter(*places)
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
    """Index the file, find its columns, and look at its first and last record. `delimiter` "": that of its name."""
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
    # A file cut off in the middle of a line, or with other columns than its header says, shows it there.
    try:
        source.read(np.unique([0, len(source) - 1]) if len(source) else np.array([], dtype=np.int64))
    except BadRecord:
        if not tolerates_bad:
            raise
    return source


def detect_delimiter(file: StoredFile) -> str:
    """A comma in .csv, a tab in .tsv; with another name a tab if the first line has one, else a comma."""
    extension = PurePosixPath(uncompressed_name(file.path)).suffix.lower()
    if extension in (".csv", ".tsv"):
        return "," if extension == ".csv" else "\t"
    head = next(file.blocks(1 << 16))
    return "\t" if b"\t" in head.split(b"\n", 1)[0] else ","


def _has_bare_carriage_return(content: bytes) -> bool:
    """Whether a carriage return stands without a newline: outside of quotes it would make two records of one."""
    return content.count(b"\r") != content.count(b"\r\n")


def parse_rows(text: str, delimiter: str) -> list[list[str]]:
    """The rows of `text`, without the empty ones."""
    return [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if row]


def _first_line(file: StoredFile, chunk: bytes, delimiter: str) -> list[str]:
    try:
        rows = parse_rows(chunk.decode(), delimiter)
    except (UnicodeDecodeError, csv.Error) as exc:
        raise DataError(f"{file.path}, line 1: not a CSV file in UTF-8: {exc}") from exc
    if len(rows) != 1:
        raise DataError(f"{file.path}, line 1: a carriage return inside a record; end lines with \\n or \\r\\n")
    return rows[0]
