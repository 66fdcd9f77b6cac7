"""Reads TFRecord files: a record is its bytes.

Lengths are checked when the file is opened, the bytes when they are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from elasticdl.data.files.offset_index import OffsetIndex, load_or_build_index, read_record_bytes
from elasticdl.data.files.stored_file import StoredFile
from elasticdl.data.interface import Indices, ProgressCallback, Record, check_indices
from elasticdl.errors import BadRecord, DataError
from elasticdl.tfrecord_frames import FOOT, HEAD, frame_record, masked_crc

_FRAME_BYTES = HEAD.size + FOOT.size
_BLOCK_BYTES = 1 << 20
_BATCH = 1 << 16
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class TFRecordSource:
    """One TFRecord file, opened by `open_tfrecord`."""

    file: StoredFile
    index: OffsetIndex
    columns: tuple[str, ...] = ()
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
        payload, begins, sizes = read_record_bytes(self.file, self.index, distinct)
        records = [
            self._unframe(index, payload, begin, size)
            for index, begin, size in zip(distinct.tolist(), begins.tolist(), sizes.tolist(), strict=True)
        ]
        return [records[index] for index in back.tolist()]

    def locate(self, index: int) -> str:
        starts, _ = self.index.byte_ranges(np.array([index]))
        return f"{self.name}, record {index} (byte {int(starts[0])})"

    def close(self) -> None:
        """Nothing is open."""

    def _unframe(self, index: int, payload: bytes, begin: int, size: int) -> bytes:
        record = payload[begin + HEAD.size : begin + size - FOOT.size]
        (expected,) = FOOT.unpack_from(payload, begin + size - FOOT.size)
        if masked_crc(record) != expected:
            raise BadRecord(
                f"{self.locate(index)}: the checksum of the record is wrong; the file is damaged, copy it again"
            )
        return record


def open_tfrecord(
    file: StoredFile, index_directory: Path | None = None, progress: ProgressCallback | None = None
) -> TFRecordSource:
    """Indexes the file. Raises DataError if its framing is damaged."""
    index = load_or_build_index(file, "tfrecord", lambda: _record_starts(file, progress), index_directory)
    return TFRecordSource(file, index)


def write_tfrecord(path: str | Path, records: Iterable[bytes]) -> None:
    """Writes `records` as one TFRecord file."""
    with open(path, "wb") as out:
        for record in records:
            out.write(frame_record(record))


def _record_starts(file: StoredFile, progress: ProgressCallback | None) -> Iterator[Indices]:
    """Yields the offsets of records by following the lengths; the bytes between are not read."""
    position = base = number = 0
    buffer = b""
    starts: list[int] = []
    while position < file.size:
        if position + HEAD.size > base + len(buffer):
            buffer, base = file.read_at(position, _BLOCK_BYTES), position
            if progress is not None:
                progress(position, file.size)
        if len(buffer) - (position - base) < HEAD.size:
            raise DataError(_truncated_message(file, number, position, "its 12 bytes of length"))
        length, crc = HEAD.unpack_from(buffer, position - base)
        if masked_crc(buffer[position - base : position - base + 8]) != crc:
            raise DataError(_wrong_length_message(file, number, position, buffer))
        if position + _FRAME_BYTES + length > file.size:
            raise DataError(_truncated_message(file, number, position, f"{_FRAME_BYTES + length} bytes"))
        starts.append(position)
        position += _FRAME_BYTES + length
        number += 1
        if len(starts) == _BATCH:
            yield np.array(starts, dtype=np.int64)
            starts.clear()
    yield np.array(starts, dtype=np.int64)
    if progress is not None:
        progress(file.size, file.size)


def _truncated_message(file: StoredFile, number: int, position: int, expected: str) -> str:
    return (
        f"{file.path}, record {number} (byte {position}): the file is truncated: expected {expected}, "
        f"got {file.size - position} bytes; copy or write the file again"
    )


def _wrong_length_message(file: StoredFile, number: int, position: int, buffer: bytes) -> str:
    where = f"{file.path}, record {number} (byte {position})"
    if position == 0:
        problem = "it is compressed with gzip: decompress it" if buffer.startswith(_GZIP) else "not a TFRecord file"
        return f"{where}: {problem}"
    return f"{where}: the checksum of the length is wrong; the file is damaged, copy or write it again"
