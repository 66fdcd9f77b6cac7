"""The frames of TFRecord files, which TensorBoard's event files have, too.

A frame: length (uint64), masked CRC32C of the length, the record, masked CRC32C of the record; little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import IO

import google_crc32c

HEAD = struct.Struct("<QI")
FOOT = struct.Struct("<I")


def masked_crc(payload: bytes) -> int:
    """Returns the CRC32C, rotated and offset as the format requires."""
    crc: int = google_crc32c.value(payload)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def frame_record(record: bytes) -> bytes:
    length = struct.pack("<Q", len(record))
    return length + FOOT.pack(masked_crc(length)) + record + FOOT.pack(masked_crc(record))


def read_intact_records(file: IO[bytes]) -> Iterator[bytes]:
    """Yields records up to the first that is incomplete or damaged: its end is unknown."""
    while len(head := file.read(HEAD.size)) == HEAD.size:
        length, head_crc = HEAD.unpack(head)
        if masked_crc(head[:8]) != head_crc:
            return
        content = file.read(length + FOOT.size)
        if len(content) != length + FOOT.size:
            return
        record = content[:length]
        if FOOT.unpack_from(content, length) != (masked_crc(record),):
            return
        yield record
