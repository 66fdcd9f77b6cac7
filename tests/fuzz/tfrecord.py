"""TFRecord files: records that are read are written as the same bytes, or the file or a record of it is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from elasticdl.data.files.stored_file import find_file
from elasticdl.data.readers.tfrecord import open_tfrecord, write_tfrecord
from elasticdl.errors import BadRecord, DataError
from tests.fuzz.scratch import directory, file_with


def fuzz_one(data: bytes) -> None:
    try:
        source = open_tfrecord(find_file(str(file_with(data, "a.tfrecord"))))
    except DataError:
        return
    try:
        records = source.read(np.arange(len(source)))
    except BadRecord:
        return
    again = directory() / "again.tfrecord"
    write_tfrecord(again, records)
    assert again.read_bytes() == data
    single_records = [source.read(np.array([number]))[0] for number in range(min(len(source), 8))]
    assert single_records == records[: len(single_records)]


def seeds() -> Iterator[bytes]:
    for number, records in enumerate(([b""], [b"one", b"two", b"three"], [bytes(range(256))] * 3)):
        path = Path(directory()) / f"seed-{number}.tfrecord"
        write_tfrecord(path, records)
        yield path.read_bytes()
    yield b"\x1f\x8b\x08\x00"
