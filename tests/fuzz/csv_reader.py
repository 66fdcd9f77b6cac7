"""CSV files: a record read alone equals the same record of a batch and of Python's csv module, or it is refused.

The first byte of an input chooses the delimiter and whether columns are named.
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
_MAX_RECORDS = 16


def fuzz_one(data: bytes) -> None:
    choice, content = (data[0], data[1:]) if data else (0, b"")
    delimiter = _DELIMITERS[choice % len(_DELIMITERS)]
    columns = ("a", "b") if choice & 0x40 else ()
    try:
        source = open_csv(find_file(str(file_with(content, "a.csv"))), columns, delimiter=delimiter, tolerates_bad=True)
    except DataError:
        return
    assert len(source) <= content.count(b"\n") + 1
    _try_columns(source)
    numbers = np.arange(min(len(source), _MAX_RECORDS))
    try:
        records = source.read(numbers)
    except BadRecord:
        return
    assert [source.read(np.array([number]))[0] for number in numbers.tolist()] == records
    if columns or len(source) > _MAX_RECORDS:
        return
    rows = [row for row in csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), delimiter=delimiter) if row]
    assert [list(record.values()) for record in records] == rows[1:]


def _try_columns(source: CsvSource) -> None:
    try:
        batch = source.read_columns(np.arange(min(len(source), _MAX_RECORDS)), {})
    except DataError:
        return
    assert batch.num_rows == min(len(source), _MAX_RECORDS)


def seeds() -> Iterator[bytes]:
    yield b"\x00x,y\n1,2\n3,4\n"
    yield b'\x00x,y\r\n"a ""quoted"" one","of\ntwo lines"\r\n\r\n3,'
    yield b"\x01\xef\xbb\xbfx\ty\n1\t2"
    yield b"\x41a\tb\n1\t2\n"
    yield b"\x02x;y\n1;2;3\n"
