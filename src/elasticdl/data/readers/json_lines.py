"""Reads JSON lines: a record is the value on one line, usually an object."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from elasticdl.data.files.offset_index import OffsetIndex, load_or_build_index, read_record_bytes
from elasticdl.data.files.stored_file import StoredFile
from elasticdl.data.interface import Indices, ProgressCallback, Record, check_indices
from elasticdl.data.readers import lines
from elasticdl.errors import BadRecord, DataError


@dataclass(frozen=True, slots=True)
class JsonLinesSource:
    """One file of JSON lines, opened by `open_json_lines`."""

    file: StoredFile
    index: OffsetIndex
    columns: tuple[str, ...] = ()  # the keys that are read; empty: the whole record
    can_read_ahead: bool = True

    @property
    def name(self) -> str:
        return self.file.path

    def __len__(self) -> int:
        return self.index.records

    def read(self, indices: Indices) -> list[Record]:
        distinct, back = np.unique(check_indices(indices, len(self), self.name), return_inverse=True)
        if not len(distinct):
            return []
        text, begins, sizes = read_record_bytes(self.file, self.index, distinct)
        bounds = zip(distinct.tolist(), begins.tolist(), sizes.tolist(), strict=True)
        records = [self._parse(index, text[begin : begin + size]) for index, begin, size in bounds]
        return [records[index] for index in back.tolist()]

    def locate(self, index: int) -> str:
        starts, _ = self.index.byte_ranges(np.array([index]))
        return f"{self.name}, line {self.file.line_number(int(starts[0]))}"

    def close(self) -> None:
        """Nothing is open."""

    def _parse(self, index: int, line: bytes) -> Record:
        try:
            record = json.loads(line)
        except UnicodeDecodeError as exc:
            raise BadRecord(f"{self.locate(index)}: not UTF-8 ({exc.reason}); convert the file") from exc
        except (json.JSONDecodeError, RecursionError) as exc:
            raise BadRecord(
                f"{self.locate(index)}: not a JSON value: {exc}; expected one value on each line (a file that is one "
                f"array is converted by `jq -c '.[]'`)"
            ) from exc
        if not self.columns:
            return record
        if not isinstance(record, dict):
            raise BadRecord(
                f"{self.locate(index)}: data.columns are keys of JSON objects, and the record is "
                f"{type(record).__name__}"
            )
        return {column: record.get(column) for column in self.columns}


def open_json_lines(
    file: StoredFile,
    columns: tuple[str, ...] = (),
    index_directory: Path | None = None,
    progress: ProgressCallback | None = None,
    *,
    tolerates_bad: bool = False,
) -> JsonLinesSource:
    """Indexes the file, and reads its first and last record."""
    index = load_or_build_index(
        file, "jsonl", lambda: lines.find_record_starts(file.blocks(progress=progress), None), index_directory
    )
    if index.records == 0:
        raise DataError(f"{file.path}: the file has only empty lines; remove it or leave it out of the data path")
    source = JsonLinesSource(file, index, columns)
    try:
        source.read(np.unique([0, len(source) - 1]))  # they show whether the file is truncated
    except BadRecord:
        if not tolerates_bad:
            raise
    return source
