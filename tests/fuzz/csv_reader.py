"""CSV files: records alone are those of a batch and what Python's csv module finds, or the file or a record is refused.

The first byte of an input says how it is read: with which delimiter, and whether columns are named.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

import numpy as np

from elasticdl.data.files.stored_file import find_file
from elasticdl.data.readers.csv import CsvSource, open_csv
from elasticdl.errors import BadRecord, DataError
from tests.fuzz.scratch import file_with

_DELIMITERS = (",", "\t", ";")
_SHOWN = 16


def fuzz_one(data: bytes) -> None:
    how, content = (data[0], data[1:]) if data else (0, b"")
    delimiter = _DELIMITERS[how % len(_DELIMITERS)]
    columns = ("a", "b") if how & 0x40 else ()
    try:
        source = open_csv(find_file(str(file_with(content, "a.csv"))), columns, delimiter=delimiter, tolerates_bad=True)
    except DataError:
        return
    assert len(source) <= content.count(b"\n") + 1
    _try_columns(source)
    numbers = np.arange(min(len(source), _SHOWN))
    try:
        records = source.read(numbers)
    except BadRecord:
        return
    assert [source.read(np.array([number]))[0] for number in numbers.tolist()] == records
    if columns or len(source) > _SHOWN:
        return
    rows = [row for row in csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), delimiter=delimiter) if row]
    assert [list(record.values()) for record in records] == rows[1:]


def _try_columns(source: CsvSource) -> None:
    try:
        batch = source.read_columns(np.arange(min(len(source), _SHOWN)), {})
    except DataError:
        return
    assert batch.num_rows == min(len(source), _SHOWN)


def seeds() -> Iterator[bytes]:
    yield b"\x00x,y\n1,2\n3,4\n"
    yield b'\x00x,y\r\n"a ""quoted"" one","of\ntwo lines"\r\n\r\n3,'
    yield b"\x01\xef\xbb\xbfx\ty\n1\t2"
    yield b"\x41a\tb\n1\t2\n"
    yield b"\x02x;y\n1;2;3\n"
